import { GreenroomError, errorOf } from "./errors.ts";
import { frames } from "./sse.ts";
import { Pauses, type Transport } from "./transport.ts";
import type { Event, FunctionCall, Problem, Run } from "./wire.ts";

/** An event with its sequence number in the session's log (null of a partial one), or the record of a run that ended. */
export type StreamItem =
  | { readonly kind: "event"; readonly seq: number | null; readonly event: Event }
  | { readonly kind: "end"; readonly run: Run };

const IDLE_MS = 60_000; // the server sends a comment at least every 15 s by default
const REQUESTS = new Set(["adk_request_confirmation", "adk_request_credential", "adk_request_input"]);

/** Source of `follow`. isOver: whether the first end is the end of the stream. */
export type Source = { readonly path: string; readonly after: number | null; readonly isOver: boolean };

/** after: sequence number of the last event seen. onConnection: called with true when the stream is open, with false when it is lost. */
export type Following = {
  readonly after?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onConnection?: (isOpen: boolean) => void;
};

/** Reads a stream across lost connections: each stored event once and in order. Throws GreenroomError. */
export async function* follow(transport: Transport, source: Source, { signal, onConnection }: Following = {}): AsyncGenerator<StreamItem> {
  const pauses = new Pauses(transport.retryMs);
  let last = source.after;
  let lastEnd = "";
  for (;;) {
    const idle = new AbortController();
    let alarm: ReturnType<typeof setTimeout> | undefined;
    const wake = (): void => {
      clearTimeout(alarm);
      alarm = setTimeout(() => idle.abort(), IDLE_MS);
    };
    let failure: unknown = new GreenroomError("Unavailable", 0, "The connection was closed before the stream's end");
    try {
      wake();
      const reply = await transport.once(source.path, {
        headers: { accept: "text/event-stream", ...(last === null ? {} : { "last-event-id": String(last) }) },
        signal: signal === undefined ? idle.signal : AbortSignal.any([signal, idle.signal]),
      });
      if (!reply.headers.get("content-type")?.startsWith("text/event-stream") || reply.body === null)
        throw new GreenroomError("CallerError", reply.status, "The answer is not a stream of events");
      onConnection?.(true);
      for await (const frame of frames(reply.body)) {
        wake();
        if (frame.data === "") continue;
        pauses.succeeded();
        if (frame.event === "end") {
          if (source.isOver || frame.data !== lastEnd) yield { kind: "end", run: JSON.parse(frame.data) as Run };
          if (source.isOver) return;
          lastEnd = frame.data;
          continue;
        }
        const seq = frame.id === null || frame.id === "" ? null : Number(frame.id);
        if (seq !== null && last !== null && seq <= last) continue;
        last = seq ?? last;
        yield { kind: "event", seq, event: JSON.parse(frame.data) as Event };
      }
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof GreenroomError && !isPassing(error)) throw error;
      failure = error;
    } finally {
      clearTimeout(alarm);
    }
    onConnection?.(false);
    await pauses.next(failure, signal);
  }
}

function isPassing({ status }: GreenroomError): boolean {
  return status === 0 || status === 429 || (status >= 502 && status <= 504);
}

/**
 * The events of a run. It can be iterated once; the run continues when the reader stops.
 *
 * run: the run's record, from the end of the stream on the last one. lastSeq: the sequence number up to which the log
 * was read. requests: the calls that wait for an answer.
 * Iterating throws GreenroomError after the last event of a failed run.
 */
export class RunStream implements AsyncIterable<Event> {
  run: Run;
  lastSeq: number | null;
  private readonly open = new Map<string, FunctionCall>();
  private readonly items: AsyncIterable<StreamItem>;
  private readonly withUserEvents: boolean;

  constructor(run: Run, items: AsyncIterable<StreamItem>, after: number | null, withUserEvents: boolean) {
    this.run = run;
    this.lastSeq = after;
    this.items = items;
    this.withUserEvents = withUserEvents;
  }

  get requests(): readonly FunctionCall[] {
    return [...this.open.values()];
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Event> {
    for await (const item of this.items) {
      if (item.kind === "event") {
        this.lastSeq = item.seq ?? this.lastSeq;
        if (!item.event.partial) this.note(item.event);
        if (this.withUserEvents || item.event.author !== "user") yield item.event;
        continue;
      }
      const { problem, ...run } = item.run as Run & { readonly problem?: Problem };
      this.run = run;
      if (problem !== undefined) throw errorOf(problem);
    }
  }

  /** Reads to the end of the run and returns its record. */
  async wait(): Promise<Run> {
    for await (const _ of this) void _;
    return this.run;
  }

  private note(event: Event): void {
    for (const { functionCall: call, functionResponse: response } of event.content?.parts ?? []) {
      const isLong = call?.id !== undefined && event.longRunningToolIds?.includes(call.id) === true;
      if (call?.id !== undefined && (isLong || REQUESTS.has(call.name))) this.open.set(call.id, call);
      // an agent's response of a long-running call is preliminary; a user's answers it
      if (response?.id !== undefined && event.author === "user") this.open.delete(response.id);
    }
  }
}
