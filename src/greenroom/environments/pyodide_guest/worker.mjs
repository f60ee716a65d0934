// Runs Python and keeps its files in memory, for main.mjs. Answers one request after the other.

import { describeError, Files } from "./files.mjs";
import { loadPython } from "./interpreter.mjs";

const post = postMessage.bind(globalThis);
const encoder = new TextEncoder();
const decoder = new TextDecoder();

let python;
let runner; // the module of runner.py
let files;
const streams = { stdout: { printed: 0 }, stderr: { printed: 0 } };

const REQUESTS = {
  snapshot: makeSnapshot,
  start,
  python: run,
  forget: () => runner.forget_variables(),
  write: ({ files: written }, payload) => files.write(written, payload) ?? reply({}),
  read: ({ name, limit }) => reply({}, files.read(name, limit)),
  list: ({ limit }) => reply({}, json(files.list(limit))),
  changed,
};

globalThis.onmessage = async ({ data: { message, payload } }) => {
  try {
    await REQUESTS[message.do](message, payload);
  } catch (error) {
    const described = describeError(error);
    if (described === null) {
      throw error; // ends the sandbox
    }
    reply(described);
  }
};

function send(message, payload = new Uint8Array(0)) {
  post({ message, payload }, [payload.buffer]);
}

function reply(result, payload) {
  send({ type: "result", ...result }, payload);
}

function json(value) {
  return encoder.encode(JSON.stringify(value));
}

async function makeSnapshot({ folder, source }) {
  const loaded = await loadPython(folder, null);
  loaded.runPython(`
import sys, types
runner = sys.modules["greenroom_runner"] = types.ModuleType("greenroom_runner")
exec(${JSON.stringify(source)}, runner.__dict__)
del sys, types, runner
`);
  send({}, loaded.makeMemorySnapshot());
}

async function start({ folder, snapshot, interrupts, working_dir, disk_bytes, output_bytes }) {
  python = await loadPython(folder, snapshot);
  python.setInterruptBuffer(interrupts);
  python.setStdin({ stdin: () => null });
  python.setStdout({ write: (bytes) => print("stdout", bytes, output_bytes) });
  python.setStderr({ write: (bytes) => print("stderr", bytes, output_bytes) });
  python.unregisterJsModule("js");
  python.unregisterJsModule("pyodide_js");

  runner = python.pyimport("greenroom_runner");
  runner.start(working_dir);
  files = new Files(python.FS, working_dir, disk_bytes);
  runner.run("", false); // V8 compiles most of Python now, not in the time of the first code
  reply({});
}

function print(type, bytes, limit) {
  const stream = streams[type];
  const kept = bytes.slice(0, Math.max(limit - stream.printed, 0));
  stream.printed += bytes.length;
  if (kept.length > 0) {
    send({ type }, kept);
  }
  return bytes.length;
}

function run({ keeps_variables }, code) {
  streams.stdout.printed = streams.stderr.printed = 0;
  files.reopenStandardStreams();
  const opened = files.openFiles();
  const exitCode = runToItsEnd(decoder.decode(code), keeps_variables);
  if (!keeps_variables) {
    files.closeAllBut(opened);
  }
  reply({ exit_code: exitCode, stdout_bytes: streams.stdout.printed, stderr_bytes: streams.stderr.printed });
}

function runToItsEnd(code, keepsVariables) {
  try {
    return runner.run(code, keepsVariables);
  } catch (error) {
    if (error.type === "KeyboardInterrupt") {
      return 1; // interrupted before or after the code
    }
    throw error; // Python has crashed, has ended by `os._exit`, or is of no more use
  }
}

function changed(limits) {
  const { named, notNamed } = files.changed(limits, (name, content) => send({ type: "file", name }, content));
  reply({ not_named: notNamed }, json(named));
}
