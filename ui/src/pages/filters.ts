// The filters of the page Runs, as they stand in its address and in the request to the server.
import type { Run, RunStatus } from "greenroom-client";

export const STATUSES = ["queued", "running", "waiting", "succeeded", "failed", "cancelled"] as const satisfies readonly RunStatus[];

/** Ages in seconds by their name in the address. */
export const AGES = { "15m": 900, "1h": 3_600, "24h": 86_400, "7d": 604_800 } as const;
export type Age = keyof typeof AGES;

export type RunFilters = {
  readonly app: string;
  readonly user: string;
  readonly session: string;
  readonly statuses: readonly RunStatus[];
  readonly age: Age | null;
};

export type Search = Readonly<Record<string, string | undefined>>;

export const NO_FILTERS: RunFilters = { app: "", user: "", session: "", statuses: [], age: null };

/** Unknown statuses and ages in an address are ignored. */
export function parseFilters(search: Search): RunFilters {
  const wanted = (search.status ?? "").split(",");
  const age = search.age;
  return {
    app: search.app ?? "",
    user: search.user ?? "",
    session: search.session ?? "",
    statuses: STATUSES.filter((status) => wanted.includes(status)),
    age: age !== undefined && Object.hasOwn(AGES, age) ? (age as Age) : null,
  };
}

/** The address of filters; what filters nothing is left out. */
export function toSearch(filters: RunFilters): Search {
  const { app, user, session, statuses, age } = filters;
  return {
    ...(app === "" ? {} : { app }),
    ...(user === "" ? {} : { user }),
    ...(session === "" ? {} : { session }),
    ...(statuses.length === 0 || statuses.length === STATUSES.length ? {} : { status: statuses.join(",") }),
    ...(age === null ? {} : { age }),
  };
}

/** The query of `GET /runs`. now: Unix seconds. */
export function toQuery(filters: RunFilters, limit: number, token: string | null, now: number): URLSearchParams {
  const query = new URLSearchParams({ limit: String(limit) });
  if (filters.app !== "") query.set("app_name", filters.app);
  if (filters.user !== "") query.set("user_id", filters.user);
  if (filters.session !== "") query.set("session_id", filters.session);
  for (const status of filters.statuses) query.append("status", status);
  if (filters.age !== null) query.set("created_from", String(Math.floor(now - AGES[filters.age])));
  if (token !== null) query.set("page_token", token);
  return query;
}

export function isFiltered(filters: RunFilters): boolean {
  return Object.keys(toSearch(filters)).length > 0;
}

/** The list with changed runs in their places, newest first. Runs that no longer match leave it. */
export function merge(runs: readonly Run[], changed: readonly Run[], filters: RunFilters): readonly Run[] {
  const newest = new Map(changed.map((run) => [run.id, run]));
  const since = filters.age === null ? 0 : Date.now() / 1000 - AGES[filters.age];
  const matches = (run: Run) =>
    (filters.statuses.length === 0 || filters.statuses.includes(run.status)) && run.createdAt >= since;
  const kept: Run[] = [];
  for (const run of runs) {
    const now = newest.get(run.id) ?? run;
    newest.delete(run.id);
    if (now === run || matches(now)) kept.push(now);
  }
  const added = [...newest.values()].filter(matches);
  if (added.length === 0) return kept;
  return [...added, ...kept].sort((left, right) => right.createdAt - left.createdAt || (left.id < right.id ? 1 : -1));
}
