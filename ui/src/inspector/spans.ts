// Layout of a trace as a waterfall: rows in tree order, positions as fractions of the shown time.
import type { JsonObject, JsonValue } from "greenroom-client";

/** A finished span as the server sends it. Times are nanoseconds since the epoch. */
export type SpanRecord = {
  readonly name: string;
  readonly trace_id: string;
  readonly span_id: string;
  readonly parent_span_id: string | null;
  readonly start_time: number;
  readonly end_time: number;
  readonly attributes: JsonObject;
  readonly logs: readonly JsonObject[];
};

/** A row of the waterfall. depth: from 0. start, end: milliseconds after the start of the trace's first span. */
export type SpanRow = {
  readonly span: SpanRecord;
  readonly depth: number;
  readonly start: number;
  readonly end: number;
  readonly eventId: string | null;
  readonly isError: boolean;
  readonly children: number;
};

/** A part of the time axis, in milliseconds. */
export type TimeWindow = { readonly from: number; readonly to: number };

export const EVENT_ID = "gcp.vertex.agent.event_id";
const RUN_ID = "gcp.vertex.agent.invocation_id";

export function text(value: JsonValue | undefined): string | null {
  return typeof value === "string" && value !== "" ? value : null;
}

/** Rows in the order of a tree, siblings by start time; the descendants of `folded` spans are left out. Spans whose
    parent is missing, or which are their own ancestors, are roots. */
export function layOut(spans: readonly SpanRecord[], folded: ReadonlySet<string> = new Set()): readonly SpanRow[] {
  const known = new Set(spans.map((span) => span.span_id));
  const children = new Map<string | null, SpanRecord[]>();
  let first = Number.POSITIVE_INFINITY;
  for (const span of spans) {
    first = Math.min(first, span.start_time);
    const parent = span.parent_span_id !== null && known.has(span.parent_span_id) ? span.parent_span_id : null;
    const siblings = children.get(parent);
    if (siblings === undefined) children.set(parent, [span]);
    else siblings.push(span);
  }
  for (const siblings of children.values()) siblings.sort((one, other) => one.start_time - other.start_time);
  const rows: SpanRow[] = [];
  const seen = new Set<string>();
  const pending = (children.get(null) ?? []).map((span) => ({ span, depth: 0 })).reverse();
  for (;;) {
    const next = pending.pop();
    if (next === undefined) break;
    const { span, depth } = next;
    if (seen.has(span.span_id)) continue;
    seen.add(span.span_id);
    const below = children.get(span.span_id) ?? [];
    rows.push({
      span,
      depth,
      start: (span.start_time - first) / 1e6,
      end: (Math.max(span.end_time, span.start_time) - first) / 1e6,
      eventId: text(span.attributes[EVENT_ID]),
      isError: span.attributes["error.type"] !== undefined,
      children: below.length,
    });
    if (folded.has(span.span_id)) continue;
    for (let at = below.length - 1; at >= 0; at--) {
      const child = below[at];
      if (child !== undefined) pending.push({ span: child, depth: depth + 1 });
    }
  }
  return rows;
}

export function wholeTime(rows: readonly SpanRow[]): TimeWindow {
  let [from, to] = [Number.POSITIVE_INFINITY, 0];
  for (const row of rows) {
    from = Math.min(from, row.start);
    to = Math.max(to, row.end);
  }
  return from < to ? { from, to } : { from: rows.length === 0 ? 0 : from, to: (rows.length === 0 ? 0 : from) + 1 };
}

/** Left edge and width of a row's bar as fractions of the window, cut at its edges; null when it is outside. */
export function bar(row: SpanRow, shown: TimeWindow): { readonly left: number; readonly width: number } | null {
  if (row.end < shown.from || row.start > shown.to) return null;
  const length = shown.to - shown.from;
  const left = (Math.max(row.start, shown.from) - shown.from) / length;
  return { left, width: (Math.min(row.end, shown.to) - shown.from) / length - left };
}

const SHORTEST_MS = 0.001;

/** The window zoomed by `factor` (2 shows half the time) around `at`, a fraction of it; never outside of `whole`. */
export function zoom(shown: TimeWindow, whole: TimeWindow, factor: number, at: number): TimeWindow {
  const length = Math.min(Math.max((shown.to - shown.from) / factor, SHORTEST_MS), whole.to - whole.from);
  const center = shown.from + (shown.to - shown.from) * at;
  return moved({ from: center - length * at, to: center + length * (1 - at) }, whole);
}

/** The window shifted by a fraction of its length; never outside of `whole`. */
export function pan(shown: TimeWindow, whole: TimeWindow, by: number): TimeWindow {
  const distance = (shown.to - shown.from) * by;
  return moved({ from: shown.from + distance, to: shown.to + distance }, whole);
}

function moved(wanted: TimeWindow, whole: TimeWindow): TimeWindow {
  const length = wanted.to - wanted.from;
  const from = Math.min(Math.max(wanted.from, whole.from), whole.to - length);
  return { from, to: from + length };
}

/** The spans of the run that an event belongs to: of the traces in which its id, or else its run's, occurs. */
export function spansOfRun(spans: readonly SpanRecord[], eventId: string, runId: string): readonly SpanRecord[] {
  for (const [key, wanted] of [
    [RUN_ID, runId],
    [EVENT_ID, eventId],
  ] as const) {
    const traces = new Set(spans.filter((span) => span.attributes[key] === wanted).map((span) => span.trace_id));
    if (traces.size > 0) return spans.filter((span) => traces.has(span.trace_id));
  }
  return [];
}
