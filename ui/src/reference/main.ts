import SwaggerUI from "swagger-ui-dist/swagger-ui-es-bundle.js";
import "swagger-ui-dist/swagger-ui.css";
import { applyTheme, theme } from "../theme";
import "../styles/tokens.css";
import "./reference.css";
import { type OpenApi, type TaggedOperations, forReading, matching } from "./openapi";

const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

function showTheme(): void {
  applyTheme();
  const wanted = theme();
  document.documentElement.classList.toggle("dark-mode", wanted === "dark" || (wanted === "system" && systemIsDark.matches));
}

async function show(): Promise<void> {
  const reply = await fetch("openapi.json");
  SwaggerUI({
    dom_id: "#reference",
    spec: forReading((await reply.json()) as OpenApi),
    deepLinking: true,
    docExpansion: "list",
    defaultModelsExpandDepth: 0,
    displayRequestDuration: true,
    filter: true,
    validatorUrl: null, // else it asks a server of its own
    plugins: [() => ({ fn: { opsFilter: (operations: TaggedOperations, text: string) => matching(operations, text) } })],
  });
}

showTheme();
systemIsDark.addEventListener("change", showTheme);
show().catch((error: unknown) => {
  const main = document.getElementById("reference");
  if (main !== null) main.textContent = `The OpenAPI document can't be shown: ${String(error)}`;
});
