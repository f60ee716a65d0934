// From the event stream to the session's log, and from the log to the timeline. Pure: the same events give the same
// timeline, however often, late or out of order they come.
import type { Event, Run, RunStatus } from "greenroom-client";
import { type Built, STEERING, type State, buildItems, partsOf } from "./items";
import { type Draft, withDrafts } from "./drafts";
import type { Item, LoggedEvent, RunGroup, Timeline, ToolOutput } from "./model";
import { pieceOf, withOutputs } from "./outputs";

/** seq: null for a partial event, which is not stored. */
export type Input =
  | { readonly kind: "event"; readonly seq: number | null; readonly event: Event }
  | { readonly kind: "run"; readonly run: Run };

/** Consecutive events of one run. A new object whenever its items change. */
type Segment = { readonly runId: string; readonly events: readonly LoggedEvent[] };

export type Log = {
  readonly segments: readonly Segment[];
  readonly events: readonly LoggedEvent[];
  readonly byId: ReadonlyMap<string, number>;
  readonly runs: ReadonlyMap<string, Run>;
  readonly drafts: ReadonlyMap<string, Draft>;
  /** By call id, while the call runs. */
  readonly outputs: ReadonlyMap<string, ToolOutput>;
  /** Events with responses, by call id. */
  readonly responses: ReadonlyMap<string, readonly LoggedEvent[]>;
  /** The time of the newest stored event, by agent as in `drafts`. */
  readonly storedAt: ReadonlyMap<string, number>;
};

export const EMPTY_LOG: Log = {
  segments: [],
  events: [],
  byId: new Map(),
  runs: new Map(),
  drafts: new Map(),
  outputs: new Map(),
  responses: new Map(),
  storedAt: new Map(),
};

const PATCH_PREFIX = "p-";

/** Whether an event is no run's: a change of the state, or a rewind. */
export function isOutsideOfRuns({ invocationId, actions }: Event): boolean {
  return invocationId.startsWith(PATCH_PREFIX) || Boolean(actions.rewindBeforeInvocationId);
}

function isPatch({ runId, events }: Segment): boolean {
  const [first] = events;
  return first === undefined ? runId.startsWith(PATCH_PREFIX) : isOutsideOfRuns(first.event);
}

/** Takes in what the server sent. Events that the log has already change nothing. */
export function reduce(log: Log, inputs: readonly Input[]): Log {
  const stored: LoggedEvent[] = [];
  const chunks: Event[] = [];
  const pieces: Event[] = [];
  let runs: Map<string, Run> | null = null;
  const taken = new Set<string>();
  for (const input of inputs) {
    if (input.kind === "run") {
      const known: Run | undefined = (runs ?? log.runs).get(input.run.id);
      if (known !== undefined && !isNewer(input.run, known)) continue;
      runs ??= new Map(log.runs);
      runs.set(input.run.id, input.run);
    } else if (input.seq === null) {
      if (partsOf(input.event).length > 0) chunks.push(input.event); // sound alone shows nothing
      else if (pieceOf(input.event) !== null) pieces.push(input.event);
    }
    else if (!log.byId.has(input.event.id) && !taken.has(input.event.id)) {
      taken.add(input.event.id);
      stored.push({ seq: input.seq, event: input.event });
    }
  }
  let next = stored.length > 0 ? withStored(log, stored) : log;
  if (runs !== null) next = { ...next, runs };
  const drafts = new Map(next.drafts);
  for (const chunk of chunks) addChunk(drafts, chunk);
  for (const [key, draft] of drafts) if (isOver(next, key, draft)) drafts.delete(key);
  return { ...next, drafts, outputs: withOutputs(next, pieces) };
}

function isNewer(run: Run, than: Run): boolean {
  const [attempts, before] = [run.attempts ?? 0, than.attempts ?? 0];
  if (attempts !== before) return attempts > before;
  return (run.endedAt ?? 0) > (than.endedAt ?? 0) || ((run.startedAt ?? 0) > (than.startedAt ?? 0) && !than.endedAt);
}

/** Whose message an event is part of: agents of a run write side by side. */
function writer(event: Event): string {
  return [event.invocationId, event.author, event.branch ?? "", event.isolationScope ?? ""].join("\n");
}

function withStored(log: Log, added: LoggedEvent[]): Log {
  added.sort((one, other) => one.seq - other.seq);
  const isAppended = (added[0]?.seq ?? 0) > (log.events.at(-1)?.seq ?? 0);
  const events = [...log.events, ...added];
  if (!isAppended) events.sort((one, other) => one.seq - other.seq);
  const start = isAppended ? log.events.length : 0;
  const byId = new Map(isAppended ? log.byId : []);
  const storedAt = new Map(isAppended ? log.storedAt : []);
  const responses = new Map(isAppended ? log.responses : []);
  const segments: Segment[] = isAppended ? [...log.segments] : [];
  const answered = new Set<string>();
  let open: { runId: string; events: LoggedEvent[] } | null = null;
  for (let index = start; index < events.length; index++) {
    const logged = events[index];
    if (logged === undefined) continue;
    const { event } = logged;
    byId.set(event.id, index);
    const key = writer(event);
    storedAt.set(key, Math.max(storedAt.get(key) ?? 0, event.timestamp));
    for (const part of event.content?.parts ?? []) {
      const id = part.functionResponse?.id;
      if (!id) continue;
      responses.set(id, [...(responses.get(id) ?? []), logged]);
      answered.add(id);
    }
    if (open === null || open.runId !== event.invocationId) {
      const last: Segment | undefined = segments.at(-1);
      if (open === null && last?.runId === event.invocationId) {
        open = { runId: last.runId, events: [...last.events] };
        segments[segments.length - 1] = open;
      } else {
        open = { runId: event.invocationId, events: [] };
        segments.push(open);
      }
    }
    open.events.push(logged);
  }
  if (isAppended) renewAnswered(segments, log.segments.length, answered);
  return { ...log, segments, events, byId, storedAt, responses };
}

/** Earlier segments with a call that is answered now become new objects, so that their items are made again. */
function renewAnswered(segments: Segment[], count: number, answered: ReadonlySet<string>): void {
  if (answered.size === 0) return;
  for (let index = 0; index < count; index++) {
    const segment = segments[index];
    const isAnswered = segment?.events.some(({ event }) =>
      event.content?.parts?.some((part) => answered.has(part.functionCall?.id ?? "")),
    );
    if (segment !== undefined && isAnswered) segments[index] = { ...segment };
  }
}

function addChunk(drafts: Map<string, Draft>, chunk: Event): void {
  const key = writer(chunk);
  const draft = drafts.get(key);
  if (draft === undefined || (draft.eventId !== chunk.id && chunk.timestamp > draft.startedAt)) {
    drafts.set(key, { eventId: chunk.id, startedAt: chunk.timestamp, chunks: [chunk] });
    return;
  }
  if (draft.eventId !== chunk.id) return;
  let at = draft.chunks.length;
  while (at > 0 && (draft.chunks[at - 1]?.timestamp ?? 0) > chunk.timestamp) at--;
  if (draft.chunks[at - 1]?.timestamp === chunk.timestamp) return;
  const chunks = at === draft.chunks.length ? [...draft.chunks, chunk] : draft.chunks.toSpliced(at, 0, chunk);
  drafts.set(key, { ...draft, startedAt: Math.min(draft.startedAt, chunk.timestamp), chunks });
}

/** Whether the message was stored, or its agent or run went past it without. */
function isOver(log: Log, key: string, draft: Draft): boolean {
  if (log.byId.has(draft.eventId)) return true;
  const newest = draft.chunks.at(-1);
  if (newest === undefined || (log.storedAt.get(key) ?? 0) >= newest.timestamp) return true;
  return (log.runs.get(newest.invocationId)?.endedAt ?? 0) >= newest.timestamp;
}

type Memo = { readonly before: State; readonly status: RunStatus; readonly built: Built };

const memos = new WeakMap<Segment, Memo>();
const NO_STATE: State = new Map();

/** The timeline that pages show. Items of segments that did not change are the same objects as before. */
export function timelineOf(log: Log): Timeline {
  const runs: RunGroup[] = [];
  const lastOf = new Map(log.segments.map((segment, index) => [segment.runId, index]));
  let state = NO_STATE;
  for (const [index, segment] of log.segments.entries()) {
    const isLast = lastOf.get(segment.runId) === index;
    const status = isLast ? statusOf(log, segment, index === log.segments.length - 1) : "waiting";
    let memo = memos.get(segment);
    if (memo === undefined || memo.before !== state || memo.status !== status) {
      memo = { before: state, status, built: buildItems(segment.events, state, status, log.responses) };
      memos.set(segment, memo);
    }
    const drafts = isLast ? draftsOf(log, segment.runId) : [];
    runs.push(group(log, segment, status, isLast, withDrafts(memo.built.items, drafts), memo.built));
    state = memo.built.state;
  }
  for (const [runId, status] of withoutEvents(log, lastOf)) {
    runs.push(group(log, { runId, events: [] }, status, true, withDrafts([], draftsOf(log, runId)), null));
  }
  return { runs: withRewound(runs), events: log.events, byId: log.byId, lastSeq: log.events.at(-1)?.seq ?? 0, outputs: log.outputs };
}

/** Marks the runs that were taken back: those from the named one up to each rewind. */
function withRewound(runs: readonly RunGroup[]): readonly RunGroup[] {
  const rewound = new Set<RunGroup>();
  for (const [index, run] of runs.entries()) {
    for (const item of run.items) {
      if (item.kind !== "rewind") continue;
      const first = runs.findIndex(({ id }) => id === item.runId);
      if (first >= 0) for (const one of runs.slice(first, index)) rewound.add(one);
    }
  }
  return rewound.size === 0 ? runs : runs.map((run) => (rewound.has(run) ? { ...run, isRewound: true } : run));
}

/** Active runs that have no stored event yet: queued ones, and those of which only chunks have come. A message that another
    run has read needs none. */
function withoutEvents(log: Log, known: ReadonlyMap<string, number>): ReadonlyMap<string, RunStatus> {
  const found = new Map<string, RunStatus>();
  for (const draft of log.drafts.values()) found.set(draft.chunks[0]?.invocationId ?? "", "running");
  for (const run of log.runs.values()) if (run.status === "queued" || run.status === "running") found.set(run.id, run.status);
  for (const id of known.keys()) found.delete(id);
  for (const id of found.keys()) if (log.byId.has(STEERING + id)) found.delete(id);
  return found;
}

function draftsOf(log: Log, runId: string): readonly Draft[] {
  return [...log.drafts.values()].filter((draft) => draft.chunks[0]?.invocationId === runId);
}

/** The record's status, unless there are later events: then the run was continued. Imported runs have no record. */
function statusOf(log: Log, segment: Segment, isNewest: boolean): RunStatus {
  const run = log.runs.get(segment.runId);
  if (isPatch(segment)) return "succeeded";
  if (run === undefined) return isNewest ? "running" : "succeeded";
  if (run.status === "queued" || run.endedAt === undefined || run.endedAt === null) return run.status === "queued" ? "running" : run.status;
  return (segment.events.at(-1)?.event.timestamp ?? 0) > run.endedAt ? "running" : run.status;
}

function group(log: Log, segment: Segment, status: RunStatus, isLast: boolean, items: readonly Item[], built: Built | null): RunGroup {
  const run = log.runs.get(segment.runId);
  const [first, last] = [segment.events[0], segment.events.at(-1)];
  const isActive = status === "running" || status === "queued";
  const ended = isLast ? (run?.endedAt ?? last?.event.timestamp ?? null) : (last?.event.timestamp ?? null);
  const attempts = run?.attempts ?? 1;
  const retries = run?.retries ?? 0;
  return {
    key: `${segment.runId}:${first?.seq ?? 0}`,
    id: segment.runId,
    isPatch: isPatch(segment),
    status,
    startedAt: first?.event.timestamp ?? run?.startedAt ?? run?.createdAt ?? 0,
    endedAt: isActive ? null : ended,
    attempts,
    isResumed: attempts - retries > 1,
    retries,
    isRewound: false,
    models: built?.models ?? [],
    tokens: built?.tokens ?? 0,
    steeredInto: status === "queued" ? (run?.steeredInto ?? null) : null,
    startAt: status === "queued" ? (run?.startAt ?? null) : null,
    wakeUps: isLast && status === "waiting" ? (run?.wakeUps ?? {}) : {},
    error: isLast && status === "failed" ? (run?.error ?? null) : null,
    items,
  };
}
