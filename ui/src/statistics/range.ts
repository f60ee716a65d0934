// The range of time that the page shows: the last hour, day, week or month, or a fixed one. Times are Unix seconds.
import type { Search } from "../pages/filters";

/** Lengths of the ranges that end now, by their name in the address. */
export const SPANS = { hour: 3_600, day: 86_400, week: 604_800, month: 2_592_000 } as const;
export type Span = keyof typeof SPANS;

const DEFAULT_SPAN: Span = "day";
const HOUR = 3_600;
const DAY = 86_400;
/** The steps and the number of points that the server chooses by. */
export const STEPS = [60, 300, HOUR, DAY] as const;
const MOST_POINTS = 500;
const SHORTEST = 5 * 60;
const LONGEST = 366 * DAY;
/** Figures of minutes that are older may be deleted; those of hours stay for a year. */
const MINUTES_KEPT = 13 * DAY;

/** A time in steps. Its start and end are multiples of the step; the end is not in it. */
export type Period = { readonly start: number; readonly end: number; readonly step: number };

/** span: null if the range is fixed. */
export type Range = Period & { readonly span: Span | null };

/** The step that the server chooses for a length. */
export function defaultStep(seconds: number): number {
  return STEPS.find((step) => seconds / step <= MOST_POINTS) ?? DAY;
}

/** The range that ends with the current step. */
export function lastRange(span: Span, now: number): Range {
  const step = defaultStep(SPANS[span]);
  const end = (Math.floor(now / step) + 1) * step;
  return { span, start: end - SPANS[span], end, step };
}

/** A fixed range, widened to whole steps, with a length and a place in time that the page can show. */
export function fixedRange(from: number, to: number, now: number): Range {
  const length = Math.min(Math.max(to - from, SHORTEST), LONGEST);
  const shortest = defaultStep(length);
  const step = from < now - MINUTES_KEPT && shortest < HOUR ? HOUR : shortest;
  const last = (Math.floor(now / step) + 1) * step;
  const end = Math.min(Math.ceil((from + length) / step) * step, last);
  const start = Math.min(Math.floor(from / step) * step, end - Math.ceil(SHORTEST / step) * step);
  return { span: null, start: Math.max(start, 0), end, step };
}

/** What can't be read in an address is ignored. */
export function parseRange(search: Search, now: number): Range {
  const start = Number(search.start ?? Number.NaN);
  const end = Number(search.end ?? Number.NaN);
  if (Number.isFinite(start) && Number.isFinite(end) && start >= 0 && start < end && start < now) return fixedRange(start, end, now);
  const span = search.range ?? "";
  return lastRange(Object.hasOwn(SPANS, span) ? (span as Span) : DEFAULT_SPAN, now);
}

export function rangeSearch({ span, start, end }: Range): Search {
  if (span === null) return { start: String(start), end: String(end) };
  return span === DEFAULT_SPAN ? {} : { range: span };
}

/** The range of the same length right before, or after it, but not after now. */
export function moved({ start, end }: Range, direction: -1 | 1, now: number): Range {
  const by = (end - start) * direction;
  return fixedRange(start + by, end + by, now);
}

/** Three times the range, around its middle as far as now allows. */
export function widened({ start, end }: Range, now: number): Range {
  const length = end - start;
  const wanted = Math.min(length * 3, LONGEST);
  const to = Math.min(end + length, now);
  return fixedRange(Math.max(to - wanted, 0), to, now);
}

/** Whether the range ends in the future. */
export function isOpen({ end }: Period, now: number): boolean {
  return end > now;
}

/** Seconds between two loads of the page's figures. */
export function refreshSeconds({ step }: Period): number {
  return Math.min(Math.max(step / 4, 15), 300);
}

/** The whole days (UTC) that the range touches. */
export function inDays({ start, end }: Period): Period {
  return { start: Math.floor(start / DAY) * DAY, end: Math.ceil(end / DAY) * DAY, step: DAY };
}

/** The period of the same length right before. */
export function before({ start, end, step }: Period): Period {
  return { start: Math.max(start - (end - start), 0), end: start, step };
}
