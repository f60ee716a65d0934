// A session's log as it grows: pages of what is stored, then the stream, across lost connections.
import type { EventPage, Event, Run } from "greenroom-client";
import { ApiError, SERVER, type SessionPlace, call, errorOf, runsOfSession, sessionPath } from "../api";
import type { Timeline } from "../timeline/model";
import { EMPTY_LOG, type Input, type Log, reduce, timelineOf } from "../timeline/reduce";

export type Connection = "loading" | "live" | "reconnecting" | "failed";
export type Snapshot = { readonly timeline: Timeline; readonly connection: Connection; readonly error: Error | null };

const PAGE = 1000;
const FLUSH_MS = 64; // text grows smoothly, at less cost than with 40
const IDLE_MS = 45_000; // the server sends a comment every 15 s
const MOST_RETRY_MS = 8_000;

export class SessionFeed {
  private log: Log = EMPTY_LOG;
  private snapshot: Snapshot = { timeline: timelineOf(EMPTY_LOG), connection: "loading", error: null };
  private readonly listeners = new Set<() => void>();
  private readonly stopped = new AbortController();
  private waiting: Input[] = [];
  private timer: ReturnType<typeof setTimeout> | null = null;
  private readonly asked = new Set<string>();

  constructor(private readonly place: SessionPlace) {}

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  readonly getSnapshot = (): Snapshot => this.snapshot;

  start(): void {
    void this.follow();
  }

  stop(): void {
    this.stopped.abort();
    if (this.timer !== null) clearTimeout(this.timer);
  }

  /** The record of a run, from the reply to a request. */
  add(run: Run): void {
    this.take({ kind: "run", run });
  }

  private async follow(): Promise<void> {
    const signal = this.stopped.signal;
    let retryMs = 250;
    while (!signal.aborted) {
      try {
        await this.catchUp(signal);
        this.set({ connection: "live", error: null });
        retryMs = 250;
        await this.readStream(signal);
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof ApiError && error.status < 500 && error.status !== 429) {
          this.set({ connection: "failed", error });
          return;
        }
      }
      if (signal.aborted) return;
      this.set({ connection: "reconnecting" });
      await pause(retryMs, signal);
      retryMs = Math.min(retryMs * 2, MOST_RETRY_MS);
    }
  }

  private async catchUp(signal: AbortSignal): Promise<void> {
    const read = (after: number) =>
      call<EventPage>("GET", `${sessionPath(this.place)}/events?after=${after}&limit=${PAGE}`, undefined, signal);
    let after = this.lastSeq();
    for (let page = await read(after); page.events.length > 0; ) {
      const isLast = page.events.length < PAGE;
      const next = isLast ? null : read(after + PAGE); // while this one is taken in
      for (const [index, event] of page.events.entries()) this.waiting.push({ kind: "event", seq: after + index + 1, event });
      after += page.events.length;
      if (next === null) break;
      page = await next;
    }
    const runs = await runsOfSession(this.place);
    for (const run of runs) this.waiting.push({ kind: "run", run });
    const last = this.waiting.findLast((input) => input.kind === "event")?.event;
    if (last !== undefined && !runs.some((run) => run.id === last.invocationId)) this.waiting.push(this.imported(last));
    this.flush();
  }

  /** Imported runs have no record. */
  private imported({ invocationId, timestamp }: Event): Input {
    const { app, user, session } = this.place;
    const names = { appName: app, userId: user, sessionId: session };
    return { kind: "run", run: { id: invocationId, ...names, status: "succeeded", createdAt: timestamp, endedAt: timestamp } };
  }

  private lastSeq(): number {
    const waiting = this.waiting.reduce((most, input) => Math.max(most, input.kind === "event" ? (input.seq ?? 0) : 0), 0);
    return Math.max(this.log.events.at(-1)?.seq ?? 0, waiting);
  }

  private async readStream(signal: AbortSignal): Promise<void> {
    const idle = new AbortController();
    const reply = await fetch(`${SERVER}${sessionPath(this.place)}/events?after=${this.lastSeq()}`, {
      headers: { accept: "text/event-stream" },
      signal: AbortSignal.any([signal, idle.signal]),
    });
    if (!reply.ok) throw await errorOf(reply);
    if (reply.body === null) return;
    const decoder = new TextDecoder();
    let rest = "";
    let alarm = setTimeout(() => idle.abort(), IDLE_MS);
    const reader = reply.body.getReader();
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(alarm);
        alarm = setTimeout(() => idle.abort(), IDLE_MS);
        const frames = (rest + decoder.decode(value, { stream: true })).split("\n\n");
        rest = frames.pop() ?? "";
        for (const frame of frames) this.takeFrame(frame);
      }
    } finally {
      clearTimeout(alarm);
    }
  }

  private takeFrame(frame: string): void {
    let seq: number | null = null;
    let isEnd = false;
    let data = "";
    for (const line of frame.split("\n")) {
      if (line.startsWith("id: ")) seq = Number(line.slice(4));
      else if (line === "event: end") isEnd = true;
      else if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (data === "") return;
    if (isEnd) this.take({ kind: "run", run: JSON.parse(data) as Run });
    else this.take({ kind: "event", seq, event: JSON.parse(data) as Event });
  }

  private take(input: Input): void {
    this.waiting.push(input);
    this.timer ??= setTimeout(() => this.flush(), FLUSH_MS);
  }

  private flush(): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
    if (this.waiting.length === 0) return;
    const inputs = this.waiting;
    this.waiting = [];
    this.log = reduce(this.log, inputs);
    this.set({ timeline: timelineOf(this.log) });
    void this.askForRun();
  }

  /** The record of the newest run, when another client has started it. */
  private async askForRun(): Promise<void> {
    const id = this.log.events.at(-1)?.event.invocationId;
    if (id === undefined || id.startsWith("p-") || this.log.runs.has(id) || this.asked.has(id)) return;
    this.asked.add(id);
    try {
      this.take({ kind: "run", run: await call<Run>("GET", `/runs/${encodeURIComponent(id)}`) });
    } catch {
      this.asked.delete(id); // asked for again with the next event
    }
  }

  private set(change: Partial<Snapshot>): void {
    this.snapshot = { ...this.snapshot, ...change };
    for (const listener of this.listeners) listener();
  }
}

/** Ends early when the browser is online again. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    function end() {
      clearTimeout(timer);
      removeEventListener("online", end);
      signal.removeEventListener("abort", end);
      resolve();
    }
    const timer = setTimeout(end, ms);
    addEventListener("online", end);
    signal.addEventListener("abort", end);
  });
}
