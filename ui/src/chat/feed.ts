// A session's log as it grows: pages of what is stored, then the stream, across lost connections.
import type { Event, Run } from "greenroom-client";
import { type SessionPlace, client, patientClient } from "../api";
import type { Timeline } from "../timeline/model";
import { EMPTY_LOG, type Input, type Log, isOutsideOfRuns, reduce, timelineOf } from "../timeline/reduce";

export type Connection = "loading" | "live" | "reconnecting" | "failed";
export type Snapshot = { readonly timeline: Timeline; readonly connection: Connection; readonly error: Error | null };

const PAGE = 1000;
const FLUSH_MS = 64; // text grows smoothly, at less cost than with 40

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
    try {
      await this.catchUp(signal);
      const following = { after: this.lastSeq(), signal, onConnection: (isOpen: boolean) => this.connected(isOpen) };
      for await (const item of patientClient.followSession(this.place, following))
        this.take(item.kind === "event" ? item : { kind: "run", run: item.run });
    } catch (error) {
      if (!signal.aborted) this.set({ connection: "failed", error: error as Error });
    }
  }

  private connected(isOpen: boolean): void {
    if (this.stopped.signal.aborted) return;
    if (isOpen && this.snapshot.connection === "reconnecting") void this.readRuns().catch(() => undefined);
    this.set({ connection: isOpen ? "live" : "reconnecting" });
  }

  private async catchUp(signal: AbortSignal): Promise<void> {
    const read = (after: number) => patientClient.listEvents(this.place, { after, limit: PAGE, signal });
    let after = 0;
    for (let page = await read(after); page.events.length > 0; ) {
      const isLast = page.events.length < PAGE;
      const next = isLast ? null : read(after + PAGE); // while this one is taken in
      for (const [index, event] of page.events.entries()) this.waiting.push({ kind: "event", seq: after + index + 1, event });
      after += page.events.length;
      if (next === null) break;
      page = await next;
    }
    const last = this.waiting.findLast((input) => input.kind === "event")?.event;
    const runs = await this.readRuns();
    if (last !== undefined && !runs.some((run) => run.id === last.invocationId)) this.waiting.push(this.imported(last));
    this.flush();
  }

  private async readRuns(): Promise<readonly Run[]> {
    const { app, user, session } = this.place;
    const query = { app_name: app, user_id: user, session_id: session, limit: PAGE, signal: this.stopped.signal };
    const { runs = [] } = await patientClient.listRuns(query);
    for (const run of runs) this.take({ kind: "run", run });
    return runs;
  }

  /** Imported runs have no record. */
  private imported({ invocationId, timestamp }: Event): Input {
    const { app, user, session } = this.place;
    const names = { appName: app, userId: user, sessionId: session };
    const times = { createdAt: timestamp, endedAt: timestamp };
    return { kind: "run", run: { id: invocationId, ...names, ...times, status: "succeeded", attempts: 0 } };
  }

  private lastSeq(): number {
    const waiting = this.waiting.reduce((most, input) => Math.max(most, input.kind === "event" ? (input.seq ?? 0) : 0), 0);
    return Math.max(this.log.events.at(-1)?.seq ?? 0, waiting);
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
    const newest = this.log.events.at(-1)?.event;
    if (newest === undefined || isOutsideOfRuns(newest)) return;
    const id = newest.invocationId;
    if (this.log.runs.has(id) || this.asked.has(id)) return;
    this.asked.add(id);
    try {
      const run = await client.getRun(id);
      if (run.sessionId === this.place.session) this.take({ kind: "run", run }); // a fork's older events are of its origin's runs
    } catch {
      this.asked.delete(id); // asked for again with the next event
    }
  }

  private set(change: Partial<Snapshot>): void {
    this.snapshot = { ...this.snapshot, ...change };
    for (const listener of this.listeners) listener();
  }
}
