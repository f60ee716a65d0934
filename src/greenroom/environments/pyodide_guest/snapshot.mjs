// Writes a snapshot of Python's memory to stdout: loaded, with runner.py. Sandboxes start from it, since loading takes
// seconds.
//
// Argument: the URL of the folder with Pyodide's files.

const worker = new Worker(new URL("./worker.mjs", import.meta.url), { type: "module" });
const source = Deno.readTextFileSync(new URL("./runner.py", import.meta.url));

worker.onmessage = async ({ data: { payload } }) => {
  await new Response(payload).body.pipeTo(Deno.stdout.writable);
  Deno.exit(0);
};
worker.postMessage({ message: { do: "snapshot", folder: Deno.args[0], source } });
