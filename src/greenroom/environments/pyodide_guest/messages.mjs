// Messages on stdin and stdout: a line of JSON, followed by as many bytes as its `size` says.

const NEWLINE = 10;
const PIECE_BYTES = 64 * 1024;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

let received = new Uint8Array(0);

async function receive() {
  const piece = new Uint8Array(PIECE_BYTES);
  const count = await Deno.stdin.read(piece);
  if (count === null) {
    return false;
  }
  const joined = new Uint8Array(received.length + count);
  joined.set(received);
  joined.set(piece.subarray(0, count), received.length);
  received = joined;
  return true;
}

// Returns null when the host has closed the connection.
export async function readMessage() {
  let end;
  while ((end = received.indexOf(NEWLINE)) === -1) {
    if (!(await receive())) {
      return null;
    }
  }
  const message = JSON.parse(decoder.decode(received.subarray(0, end)));
  const payload = new Uint8Array(message.size ?? 0);

  received = received.slice(end + 1);
  let filled = 0;
  for (;;) {
    const piece = received.subarray(0, payload.length - filled);
    payload.set(piece, filled);
    filled += piece.length;
    received = received.slice(piece.length);
    if (filled === payload.length) {
      return { message, payload };
    }
    if (!(await receive())) {
      return null;
    }
  }
}

export function writeMessage(message, payload = new Uint8Array(0)) {
  writeAll(encoder.encode(JSON.stringify({ ...message, size: payload.length }) + "\n"));
  writeAll(payload);
}

function writeAll(bytes) {
  while (bytes.length > 0) {
    bytes = bytes.subarray(Deno.stdout.writeSync(bytes));
  }
}
