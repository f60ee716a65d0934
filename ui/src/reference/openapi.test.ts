import { expect, test } from "vitest";
import { forReading } from "./openapi";

test("aliases are named at their operation, and WebSockets in the introduction", () => {
  const document = {
    info: { description: "Hosts agents." },
    paths: {
      "/run_sse": { post: { summary: "Run; with `streaming`" } },
      "/run-sse": { post: { summary: "Run", "x-alias-of": "/run_sse" }, get: { summary: "Not an alias" } },
    },
    "x-websockets": [{ path: "/run_live", summary: "Live" }],
  };
  const { info, paths } = forReading(document);
  expect(info.description).toBe("Hosts agents.\n\nWebSockets:\n\n- `/run_live`: Live");
  expect(paths).toEqual({
    "/run_sse": { post: { summary: "Run; with streaming", description: "Also at `/run-sse`." } },
    "/run-sse": { get: { summary: "Not an alias" } },
  });
});
