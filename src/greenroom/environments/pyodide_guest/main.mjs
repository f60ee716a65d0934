// The program of a WebAssembly sandbox, for Deno. It speaks with the host by the messages that `guest_connection.py`
// documents. Python runs in a worker, which gets one request at a time and can be stopped.
//
// Arguments: the URL of the folder with Pyodide's files, the URL of the snapshot.

import { readMessage, writeMessage } from "./messages.mjs";

const MAX_TIMER = 2 ** 31 - 1;
const MILLISECONDS_BETWEEN_CHECKS = 50;
const MILLISECONDS_BETWEEN_INTERRUPTS = 100;
const SIGINT = 2;
const KILLED = 137;

const [folder, snapshot] = Deno.args;
const interrupts = new Int32Array(new SharedArrayBuffer(4));
const worker = new Worker(new URL("./worker.mjs", import.meta.url), { type: "module" });

let interrupting; // a timer
let running = null; // the request that the worker answers: {message, resolve, stopped}

worker.onmessage = ({ data: { message, payload } }) => {
  if (message.type === "result") {
    finish(message, payload);
  } else {
    writeMessage(message, payload);
  }
};

worker.onerror = (event) => fail(event.message);

function fail(reason) {
  console.error(reason);
  Deno.exit(1);
}

function ask(message, payload) {
  return new Promise((resolve) => {
    running = { message, resolve, stopped: null };
    worker.postMessage({ message, payload }, [payload.buffer]);
  });
}

function finish(result, payload) {
  const { message, resolve, stopped } = running;
  running = null;
  if (stopped !== null) {
    result = { ...result, stopped, exit_code: KILLED, lost_variables: message.keeps_variables };
  }
  writeMessage(result, payload);
  resolve();
}

// Interrupts code as by Ctrl+C, again and again, since code can handle that. In the end the host ends the sandbox.
function stop(reason) {
  if (running?.message.do !== "python" || running.stopped !== null) {
    return;
  }
  running.stopped = reason;
  if (running.message.keeps_variables) {
    worker.postMessage({ message: { do: "forget" } });
  }
  Atomics.store(interrupts, 0, SIGINT);
  interrupting = setInterval(() => Atomics.store(interrupts, 0, SIGINT), MILLISECONDS_BETWEEN_INTERRUPTS);
}

async function answer({ message, payload }) {
  let timer;
  if (message.timeout != null) {
    timer = setTimeout(() => stop("timeout"), Math.min(message.timeout * 1000, MAX_TIMER));
  }
  await ask(message, payload);
  clearTimeout(timer);
  clearInterval(interrupting);
  Atomics.store(interrupts, 0, 0);
}

// WebAssembly's own memory has this limit, too. But code can also make objects of JavaScript.
function limitMemory(bytes) {
  const most = Deno.memoryUsage().rss + bytes;
  setInterval(() => {
    if (Deno.memoryUsage().rss > most) {
      fail("It used too much memory");
    }
  }, MILLISECONDS_BETWEEN_CHECKS);
}

const start = await readMessage();
Object.assign(start.message, { folder, snapshot, interrupts });
await answer(start);
limitMemory(start.message.memory_bytes + start.message.disk_bytes);

// Requests are read while code runs, since `stop` may come.
let answered = Promise.resolve();
let request;
while ((request = await readMessage()) !== null) {
  const next = request;
  if (next.message.do === "stop") {
    stop("stop");
  } else {
    answered = answered.then(() => answer(next));
  }
}
Deno.exit(0); // the host has closed the connection
