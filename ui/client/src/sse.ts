/** One Server-Sent Event. event: empty for the default type. id: null if the frame has none. */
export type Frame = { readonly event: string; readonly data: string; readonly id: string | null };

/** Parses Server-Sent Events. Source: the HTML standard, 9.2.6. Comments are yielded as frames without data. */
export async function* frames(body: ReadableStream<Uint8Array>): AsyncGenerator<Frame> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return; // an unfinished frame is dropped
      const text = rest + decoder.decode(value, { stream: true });
      const end = text.endsWith("\r") ? text.length - 1 : text.length; // its \n may follow
      const parts = text.slice(0, end).split(/\r\n\r\n|\n\n|\r\r/);
      rest = (parts.pop() ?? "") + text.slice(end);
      for (const part of parts) yield parse(part);
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function parse(frame: string): Frame {
  let event = "";
  let id: string | null = null;
  const data: string[] = [];
  for (const line of frame.split(/\r\n|\n|\r/)) {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") data.push(value);
    else if (name === "event") event = value;
    else if (name === "id") id = value;
  }
  return { event, data: data.join("\n"), id };
}
