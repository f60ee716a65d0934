import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { type Plugin, defaultClientConditions, defineConfig } from "vite";

const OUT = resolve(import.meta.dirname, "../src/greenroom/server/dev_ui");
const FIRST_SCRIPT_KB = 150;

/** Writes .br and .gz beside each file; fails when what the page loads first exceeds its budget. */
function compress(): Plugin {
  return {
    name: "compress",
    apply: "build",
    closeBundle() {
      const page = readFileSync(join(OUT, "index.html"), "utf8");
      let first = 0;
      for (const name of readdirSync(OUT, { recursive: true, encoding: "utf8" })) {
        if (!/\.(js|css|html|svg|wasm)$/.test(name)) continue;
        const data = readFileSync(join(OUT, name));
        const gzipped = gzipSync(data, { level: 9 });
        writeFileSync(join(OUT, `${name}.gz`), gzipped);
        const params = { [constants.BROTLI_PARAM_QUALITY]: data.length > 500_000 ? 9 : 11 };
        writeFileSync(join(OUT, `${name}.br`), brotliCompressSync(data, { params }));
        if (name.endsWith(".js") && page.includes(name)) first += gzipped.length;
      }
      const kb = first / 1000;
      if (kb > FIRST_SCRIPT_KB) throw new Error(`the first script is ${kb.toFixed(1)} kB gzipped, over ${FIRST_SCRIPT_KB}`);
      console.log(`first script: ${kb.toFixed(1)} kB gzipped`);
    },
  };
}

export default defineConfig({
  base: "/dev-ui/",
  resolve: { conditions: ["source", ...defaultClientConditions] }, // the client's sources
  plugins: [react(), compress()],
  // Below a prefix, the server writes it into the pages; scripts and styles find their files beside themselves.
  experimental: { renderBuiltUrl: (_name, { hostType }) => (hostType === "html" ? undefined : { relative: true }) },
  build: { outDir: OUT, emptyOutDir: true, target: "es2023", chunkSizeWarningLimit: 2000, reportCompressedSize: false, assetsInlineLimit: 0, rollupOptions: { input: ["index.html", "docs.html"] } },
  logLevel: "warn",
  server: { proxy: { "^/(?!dev-ui/)": "http://127.0.0.1:8000" } },
});
