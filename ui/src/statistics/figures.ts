// The plots and the numbers of the page, made from the server's figures.
import type { Figures, Latency, LoadPoint, LoadStatistics, Statistics, StatisticsGroup, StatisticsPoint } from "greenroom-client";
import type { Search } from "../pages/filters";
import { count, money, seconds } from "./format";
import type { Period } from "./range";
import type { Grouping, Percentile } from "./view";

/** One line, or one layer of bars. */
export type Series = {
  readonly name: string;
  /** A variable of the theme: "--ok". */
  readonly color: string;
  /** Lengths of strokes and gaps of a line, in pixels. */
  readonly dash?: readonly number[];
  /** One for each time; null where there is none. */
  readonly values: readonly (number | null)[];
  /** Of the whole range. */
  readonly total: number | null;
  /** Filters of the page of runs for what is behind the series, besides those of the page. */
  readonly runs: Search;
};

export type Panel = {
  readonly title: string;
  readonly note?: string | undefined;
  /** Bars on top of each other, or lines. */
  readonly isStacked: boolean;
  /** Whether values are counts, so that an axis needs no fractions. */
  readonly isCount: boolean;
  readonly format: (value: number) => string;
  /** The starts of the steps. */
  readonly times: readonly number[];
  readonly series: readonly Series[];
  /** Whether runs are behind its values. */
  readonly hasRuns: boolean;
};

const GROUP_COLORS = ["--agent-0", "--agent-1", "--agent-3", "--agent-2", "--agent-4", "--agent-5", "--agent-6", "--agent-7"] as const;
const ERROR_COLORS = ["--bad", "--agent-1", "--wait", "--agent-2", "--agent-4", "--agent-6"] as const;
const REST_COLOR = "--line-strong";
/** The server's name for errors, models and tools that have no figures of their own. */
const REST = "(other)";
/** The number of groups that are drawn; the sum of the others is drawn besides. */
export const DRAWN_GROUPS = GROUP_COLORS.length;

const DASHES: Readonly<Record<Percentile, readonly number[] | undefined>> = { p50: undefined, p95: [7, 3], p99: [2, 2] };
const STATUSES = [
  { status: "succeeded", name: "Succeeded", color: "--ok" },
  { status: "failed", name: "Failed", color: "--bad" },
  { status: "cancelled", name: "Cancelled", color: REST_COLOR },
] as const;

const sum = (values: readonly number[]) => values.reduce((left, right) => left + right, 0);

export function runCount({ runs = {} }: Figures): number {
  return sum(Object.values(runs));
}

export function failureCount({ errors = {} }: Figures): number {
  return sum(Object.values(errors));
}

export function callCount({ modelCalls = 0, toolCalls = 0 }: Figures): number {
  return modelCalls + toolCalls;
}

export function tokenCount({ inputTokens = 0, outputTokens = 0 }: Figures): number {
  return inputTokens + outputTokens;
}

function costOf({ cost = 0 }: Figures): number {
  return cost;
}

/** The cost of the tokens whose price is known; null if there are none but others. */
export function knownCost({ cost = 0, unpricedTokens = 0 }: Figures): number | null {
  return cost === 0 && unpricedTokens > 0 ? null : cost;
}

export function isEmpty(figures: Figures): boolean {
  return runCount(figures) === 0 && callCount(figures) === 0 && failureCount(figures) === 0;
}

/** The starts of the steps. */
function timesOf({ start, end, step }: Period): readonly number[] {
  return Array.from({ length: Math.round((end - start) / step) }, (_, index) => start + index * step);
}

/** The values of a group over time; `none` where it has no figures. */
function valuesOf<None>(times: readonly number[], group: StatisticsGroup, of: (point: StatisticsPoint) => number | None, none: None) {
  const points = new Map(group.points.map((point) => [point.time, point]));
  return times.map((time) => {
    const point = points.get(time);
    return point === undefined ? none : of(point);
  });
}

type Summand = {
  readonly name: string;
  readonly color: string;
  readonly of: (figures: Figures) => number;
  /** Of the whole range, if another figure says it. */
  readonly totalOf?: (figures: Figures) => number | null;
  readonly runs?: Search;
};

/** Bars of several figures of one group. */
function stacked(times: readonly number[], group: StatisticsGroup, summands: readonly Summand[]): Series[] {
  return summands.map(({ name, color, of, totalOf = of, runs = {} }) => ({
    name,
    color,
    values: valuesOf(times, group, of, 0),
    total: totalOf(group.total),
    runs,
  }));
}

function percentiles(times: readonly number[], group: StatisticsGroup, of: (figures: Figures) => Latency | undefined): Series[] {
  const lines = { p50: "--agent-1", p95: "--agent-2", p99: "--agent-3" } as const;
  return Object.entries(lines).map(([name, color]) => {
    const percentile = name as Percentile;
    const valueOf = (figures: Figures) => of(figures)?.[percentile] ?? null;
    return {
      name,
      color,
      dash: DASHES[percentile],
      values: valuesOf(times, group, valueOf, null),
      total: valueOf(group.total),
      runs: {},
    };
  });
}

/** The most frequent errors, and the sum of the others. */
function errorsOf(group: StatisticsGroup, ofCalls: boolean): Summand[] {
  const codes = Object.entries(group.total.errors ?? {})
    .sort(([, left], [, right]) => right - left)
    .map(([code]) => code);
  const named = codes.length > ERROR_COLORS.length ? codes.slice(0, ERROR_COLORS.length - 1) : codes;
  const others = codes.slice(named.length);
  const summands: Summand[] = named.map((code, index) => ({
    name: code,
    color: ERROR_COLORS[index] ?? REST_COLOR,
    of: ({ errors = {} }) => errors[code] ?? 0,
    runs: ofCalls ? {} : { status: "failed", ...(code === REST ? {} : { error: code }) },
  }));
  if (others.length > 0) {
    const of = ({ errors = {} }: Figures) => sum(others.map((code) => errors[code] ?? 0));
    summands.push({ name: `${others.length} others`, color: REST_COLOR, of, runs: ofCalls ? {} : { status: "failed" } });
  }
  return summands;
}

/** The plots of all runs or calls together. */
export function panelsOfAll(statistics: Statistics, ofCalls: boolean): readonly Panel[] {
  const times = timesOf(statistics);
  const group = statistics.groups[0] ?? { total: {}, points: [] };
  const counts = { isStacked: true, isCount: true, format: count, times, hasRuns: true };
  const durations = { isStacked: false, isCount: false, format: seconds, times, hasRuns: true };
  const calls: Panel = {
    ...counts,
    title: "Calls",
    series: stacked(times, group, [
      { name: "Models", color: "--agent-1", of: ({ modelCalls = 0 }) => modelCalls },
      { name: "Tools", color: "--agent-3", of: ({ toolCalls = 0 }) => toolCalls },
    ]),
  };
  const errors = errorsOf(group, ofCalls);
  const all: (Panel | null)[] = [
    ofCalls
      ? calls
      : {
          ...counts,
          title: "Runs by status",
          series: stacked(
            times,
            group,
            STATUSES.map(({ status, name, color }) => ({ name, color, of: ({ runs = {} }) => runs[status] ?? 0, runs: { status } })),
          ),
        },
    {
      ...counts,
      title: ofCalls ? "Failed calls by kind" : "Failed runs by error",
      series: errors.length === 0 ? stacked(times, group, [{ name: "Errors", color: "--bad", of: () => 0 }]) : stacked(times, group, errors),
    },
    ofCalls ? null : { ...durations, title: "Time to the first text", series: percentiles(times, group, ({ firstText }) => firstText) },
    { ...durations, title: ofCalls ? "Duration of calls" : "Time to the end", series: percentiles(times, group, ({ duration }) => duration) },
    {
      ...counts,
      title: "Tokens",
      series: stacked(times, group, [
        { name: "Input", color: "--agent-1", of: ({ inputTokens = 0, cachedTokens = 0 }) => inputTokens - cachedTokens },
        { name: "Cached input", color: "--agent-4", of: ({ cachedTokens = 0 }) => cachedTokens },
        { name: "Output", color: "--agent-3", of: ({ outputTokens = 0 }) => outputTokens },
      ]),
    },
    costPanel(statistics, stacked(times, group, [{ name: "Cost", color: "--agent-0", of: costOf, totalOf: knownCost }]), [group]),
  ];
  return all.filter((panel) => panel !== null);
}

function costPanel({ currency = "USD", ...period }: Statistics, series: readonly Series[], groups: readonly StatisticsGroup[]): Panel {
  const unpriced = sum(groups.map(({ total }) => total.unpricedTokens ?? 0));
  return {
    title: "Cost",
    note: unpriced === 0 ? undefined : `Without ${count(unpriced)} tokens whose price is unknown`,
    isStacked: true,
    isCount: false,
    format: money(currency),
    times: timesOf(period),
    hasRuns: true,
    series,
  };
}

/** The plots of groups beside each other: in each, one series of every group. */
export function panelsOfGroups(statistics: Statistics, grouping: Grouping, percentile: Percentile): readonly Panel[] {
  const times = timesOf(statistics);
  const ofCalls = grouping === "model" || grouping === "tool";
  const groups = groupsOf(statistics).map(({ group, name, isRest }, index) => ({
    group,
    name,
    color: isRest ? REST_COLOR : (GROUP_COLORS[index] ?? REST_COLOR),
    runs: !isRest && (grouping === "app" || grouping === "user") ? { [grouping]: name } : {},
  }));
  const sums = (of: (figures: Figures) => number, totalOf: NonNullable<Summand["totalOf"]> = of): Series[] =>
    groups.map(({ group, ...look }) => ({ ...look, values: valuesOf(times, group, of, 0), total: totalOf(group.total) }));
  const lines = (of: (figures: Figures) => Latency | undefined): Series[] =>
    groups.map(({ group, ...look }) => ({
      ...look,
      values: valuesOf(times, group, (point) => of(point)?.[percentile] ?? null, null),
      total: of(group.total)?.[percentile] ?? null,
    }));
  const counts = { isStacked: true, isCount: true, format: count, times, hasRuns: true };
  const durations = { isStacked: false, isCount: false, format: seconds, times, hasRuns: true };
  const failed = (series: readonly Series[]) => series.map((one) => ({ ...one, runs: ofCalls ? {} : { ...one.runs, status: "failed" } }));
  const costs = costPanel(statistics, sums(costOf, knownCost), groups.map(({ group }) => group));
  const all: (Panel | null)[] = [
    ofCalls ? { ...counts, title: "Calls", series: sums(callCount) } : { ...counts, title: "Runs", series: sums(runCount) },
    { ...counts, title: ofCalls ? "Failed calls" : "Failed runs", series: failed(sums(failureCount)) },
    ofCalls ? null : { ...durations, title: `Time to the first text, ${percentile}`, series: lines(({ firstText }) => firstText) },
    { ...durations, title: `${ofCalls ? "Duration of calls" : "Time to the end"}, ${percentile}`, series: lines(({ duration }) => duration) },
    grouping === "tool" ? null : { ...counts, title: "Tokens", series: sums(tokenCount) },
    grouping === "tool" ? null : costs,
  ];
  return all.filter((panel) => panel !== null);
}

export type NamedGroup = { readonly group: StatisticsGroup; readonly name: string; readonly isRest: boolean };

/** The groups with their names, and the sum of those that are not listed. */
export function groupsOf({ groups, others, otherGroups = 0 }: Statistics): readonly NamedGroup[] {
  const named: NamedGroup[] = groups.map((group) => ({ group, name: group.key ?? "", isRest: false }));
  if (others != null) named.push({ group: others, name: otherGroups === 1 ? "1 other" : `${otherGroups} others`, isRest: true });
  return named;
}

const LEVELS = [
  { title: "Running", of: (point: LoadPoint) => point.running, color: "--agent-1" },
  { title: "Queued", of: (point: LoadPoint) => point.queued, color: "--agent-2" },
  { title: "Requests to people", of: (point: LoadPoint) => point.openRequests, color: "--wait" },
  { title: "Replicas", of: (point: LoadPoint) => point.replicas, color: "--agent-0" },
] as const;

/** The plots of the load. Those of which no point has a value are left out. */
export function panelsOfLoad(load: LoadStatistics): readonly Panel[] {
  const times = timesOf(load);
  const points = new Map(load.points.map((point) => [point.time, point]));
  return LEVELS.filter(({ of }) => load.points.some((point) => of(point) != null)).map(({ title, of, color }) => {
    const levels = times.map((time) => {
      const point = points.get(time);
      return point === undefined ? null : (of(point) ?? null);
    });
    const known = levels.filter((level) => level !== null);
    const averages = levels.map((level) => level?.average ?? null);
    const maxima = levels.map((level) => level?.maximum ?? null);
    const average = sum(known.map((level) => level.average)) / known.length;
    const most = Math.max(...known.map((level) => level.maximum));
    return {
      title,
      isStacked: false,
      isCount: true,
      format: count,
      times,
      hasRuns: false,
      series: [
        { name: "Average", color, values: averages, total: average, runs: {} },
        { name: "Maximum", color, dash: DASHES.p99, values: maxima, total: most, runs: {} },
      ],
    };
  });
}
