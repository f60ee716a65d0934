// What the page of statistics shows, as it stands in its address and in requests to the server.
import type { LoadQuery, StatisticsQuery } from "greenroom-client";
import type { Search } from "../pages/filters";
import { type Period, type Range, STEPS, defaultStep, inDays, rangeSearch } from "./range";

export const GROUPINGS = ["app", "model", "tool", "user"] as const;
export type Grouping = (typeof GROUPINGS)[number];

export const PERCENTILES = ["p50", "p95", "p99"] as const;
export type Percentile = (typeof PERCENTILES)[number];

/** What figures are kept by, besides apps. */
const KINDS = ["user", "model", "tool"] as const;
type Kind = (typeof KINDS)[number];

export type Filters = Readonly<Record<"app" | Kind, string>>;

/** sort: a column of the table of groups, with a minus sign before it for the largest first; "" as the server sorts. */
export type View = {
  readonly grouping: Grouping | "";
  readonly percentile: Percentile;
  readonly filters: Filters;
  readonly sort: string;
};

const DEFAULT_PERCENTILE: Percentile = "p95";

/** What can't be read in an address is ignored. */
export function parseView(search: Search): View {
  const { app = "", user = "", model = "", tool = "", sort = "" } = search;
  return {
    grouping: GROUPINGS.find((one) => one === search.by) ?? "",
    percentile: PERCENTILES.find((one) => one === search.percentile) ?? DEFAULT_PERCENTILE,
    filters: { app, user, model, tool },
    sort,
  };
}

/** The page's address; defaults are left out. */
export function toSearch({ grouping, percentile, filters, sort }: View, range: Range): Search {
  const values = { by: grouping, percentile: percentile === DEFAULT_PERCENTILE ? "" : percentile, sort, ...filters };
  return { ...rangeSearch(range), ...Object.fromEntries(Object.entries(values).filter(([, value]) => value !== "")) };
}

/**
 * The query of `GET /statistics`. The server chooses the step, except for figures of users, which are kept by day only:
 * for these the period is widened to days.
 */
export function toQuery({ app, user, model, tool }: Filters, period: Period, grouping: Grouping | "", limit: number): StatisticsQuery {
  const isByDay = grouping === "user" || user !== "";
  return {
    ...(isByDay ? timeQuery(inDays(period)) : timeQuery(period)),
    app_name: app || undefined,
    user_id: user || undefined,
    model: model || undefined,
    tool: tool || undefined,
    ...(grouping === "" ? {} : { group_by: grouping, limit }),
  };
}

/** The times of a query; the step is named only if the server would choose another one. */
export function timeQuery({ start, end, step }: Period): LoadQuery {
  const isDefault = step === defaultStep(end - start);
  return { start, end, step: isDefault ? undefined : STEPS.find((one) => one === step) };
}

export function isFiltered({ app, user, model, tool }: Filters): boolean {
  return app !== "" || user !== "" || model !== "" || tool !== "";
}

/**
 * The view after a change. The server keeps figures by one of user, model and tool at a time: choosing one of them drops
 * what was chosen of the others.
 */
export function changed(view: View, change: Partial<View>): View {
  const next = { ...view, ...change };
  const isChosen = (kind: Kind) =>
    (next.grouping === kind && view.grouping !== kind) || (next.filters[kind] !== "" && next.filters[kind] !== view.filters[kind]);
  const chosen = KINDS.find(isChosen);
  if (chosen === undefined) return next;
  const kept = next.filters[chosen];
  const grouping = next.grouping === "app" || next.grouping === chosen ? next.grouping : "";
  return { ...next, grouping, filters: { ...next.filters, user: "", model: "", tool: "", [chosen]: kept } };
}

/** Whether figures are those of calls of models or tools, which have no runs. */
export function isOfCalls({ grouping, filters }: View): boolean {
  return grouping === "model" || grouping === "tool" || filters.model !== "" || filters.tool !== "";
}

/** The page of the runs that ended in a time. more: further filters of that page. */
export function runsSearch({ app, user }: Filters, from: number, to: number, more: Search): Search {
  return {
    ...(app === "" ? {} : { app }),
    ...(user === "" ? {} : { user }),
    ...more,
    from: String(from),
    to: String(to),
  };
}
