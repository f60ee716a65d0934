// Loads Pyodide in a worker, from its files or from a snapshot of its memory.
//
// What separates code from the host are the permissions of the process, which is only allowed to read this folder and
// Pyodide's, together with WebAssembly's own memory. That most of JavaScript's globals are removed here, and that V8
// makes no code from strings, keeps Python from getting as far as those permissions.

// Not of the language itself, but used by Pyodide, or by Deno when it passes messages.
const USED = ["self", "WorkerGlobalScope", "TextDecoder", "TextEncoder", "crypto", "performance", "queueMicrotask"];
const USED_TO_LOAD = ["Response", "URL", "location", "setTimeout", "clearTimeout"];

const LANGUAGE = [
  ...["globalThis", "Infinity", "NaN", "undefined", "eval", "isFinite", "isNaN", "parseFloat", "parseInt"],
  ...["decodeURI", "decodeURIComponent", "encodeURI", "encodeURIComponent", "escape", "unescape", "Math", "JSON", "Intl"],
  ...["Object", "Function", "Boolean", "Symbol", "Number", "BigInt", "String", "RegExp", "Date", "Iterator", "Proxy"],
  ...["Error", "AggregateError", "EvalError", "RangeError", "ReferenceError", "SuppressedError", "SyntaxError"],
  ...["TypeError", "URIError", "Promise", "Reflect", "Map", "Set", "WeakMap", "WeakSet", "WeakRef"],
  ...["FinalizationRegistry", "Array", "ArrayBuffer", "SharedArrayBuffer", "DataView", "Atomics", "Int8Array"],
  ...["Uint8Array", "Uint8ClampedArray", "Int16Array", "Uint16Array", "Int32Array", "Uint32Array", "BigInt64Array"],
  ...["BigUint64Array", "Float16Array", "Float32Array", "Float64Array", "WebAssembly"],
];

const events = EventTarget.prototype; // Deno itself uses it

const nothing = () => {};

// folder: the URL of Pyodide's files. snapshot: its URL, or null to load Python for one.
export async function loadPython(folder, snapshot) {
  const readFile = Deno.readFileSync;
  const options = {
    indexURL: folder,
    jsglobals: Object.create(null),
    lockFileContents: lockFile(readFile(new URL("pyodide-lock.json", folder))),
    ...(snapshot === null ? { _makeSnapshot: true } : { _loadSnapshot: readFile(new URL(snapshot)) }),
  };

  removeGlobals([...LANGUAGE, ...USED, ...USED_TO_LOAD]);
  globalThis.console = { log: nothing, info: nothing, warn: nothing, error: nothing, debug: nothing };
  globalThis.fetch = async (url) => {
    const type = String(url).endsWith(".wasm") ? "application/wasm" : "application/octet-stream";
    return new Response(readFile(new URL(url)), { headers: { "content-type": type } });
  };

  const { loadPyodide } = await import(new URL("pyodide.mjs", folder));
  const python = await loadPyodide(options);
  removeGlobals([...LANGUAGE, ...USED, "console"]);
  globalThis.setTimeout = globalThis.clearTimeout = nothing; // code leaves nothing to be done later
  return python;
}

function removeGlobals(kept) {
  for (let owner = globalThis; owner !== events; owner = Object.getPrototypeOf(owner)) {
    for (const name of Object.getOwnPropertyNames(owner)) {
      if (!kept.includes(name)) {
        delete owner[name];
      }
    }
  }
}

// Names no packages, which Pyodide would fetch.
function lockFile(bytes) {
  const { info } = JSON.parse(new TextDecoder().decode(bytes));
  return JSON.stringify({ info, packages: {} });
}
