// The filters of the page Runs, as they stand in its address and in the request to the server.
import type { Run, RunStatus } from "greenroom-client";

export const STATUSES = ["queued", "running", "waiting", "succeeded", "failed", "cancelled"] as const satisfies readonly RunStatus[];

/** Ages in seconds by their name in the address. */
export const AGES = { "15m": 900, "1h": 3_600, "24h": 86_400, "7d": 604_800 } as const;
export type Age = keyof typeof AGES;

/** A range of time, in Unix seconds; `to` is not in it. */
export type Between = { readonly from: number; readonly to: number };

/**
 * version: a version of the code, or with an app the name of a published one. ended: the time in which the runs ended.
 * feedback: a name, for one app; least, greatest: of its scores.
 */
export type RunFilters = {
  readonly app: string;
  readonly user: string;
  readonly session: string;
  readonly statuses: readonly RunStatus[];
  readonly error: string;
  readonly version: string;
  readonly age: Age | null;
  readonly ended: Between | null;
  readonly feedback: string;
  readonly least: number | null;
  readonly greatest: number | null;
};

/** The server finds runs by their creation only: those that took longer than this are not among the ones that ended in a time. */
const LONGEST_RUN = 86_400;

export type Search = Readonly<Record<string, string | undefined>>;

export const NO_FILTERS: RunFilters = {
  app: "",
  user: "",
  session: "",
  statuses: [],
  error: "",
  version: "",
  age: null,
  ended: null,
  feedback: "",
  least: null,
  greatest: null,
};

/** Unknown statuses and ages in an address are ignored. */
export function parseFilters(search: Search): RunFilters {
  const wanted = (search.status ?? "").split(",");
  const age = search.age;
  return {
    app: search.app ?? "",
    user: search.user ?? "",
    session: search.session ?? "",
    statuses: STATUSES.filter((status) => wanted.includes(status)),
    error: search.error ?? "",
    version: search.version ?? "",
    ended: parseBetween(search.from, search.to),
    ...parseFeedback(search),
    age: age !== undefined && Object.hasOwn(AGES, age) ? (age as Age) : null,
  };
}

function parseFeedback({ app = "", feedback = "", least, greatest }: Search): Pick<RunFilters, "feedback" | "least" | "greatest"> {
  if (app === "" || feedback === "") return { feedback: "", least: null, greatest: null };
  return { feedback, least: parseScore(least), greatest: parseScore(greatest) };
}

/** The number in a text; null if there is none. The router hands over the numbers of an address as such. */
export function parseScore(text: string | number = ""): number | null {
  const score = String(text).trim() === "" ? Number.NaN : Number(text);
  return Number.isFinite(score) ? score : null;
}

function parseBetween(from = "", to = ""): Between | null {
  const between = { from: Number.parseFloat(from), to: Number.parseFloat(to) };
  return between.from >= 0 && between.from < between.to ? between : null;
}

/** The address of filters; what filters nothing is left out. */
export function toSearch(filters: RunFilters): Search {
  const { app, user, session, statuses, error, version, age, ended, feedback, least, greatest } = filters;
  const isJudged = app !== "" && feedback !== "";
  return {
    ...(app === "" ? {} : { app }),
    ...(user === "" ? {} : { user }),
    ...(session === "" ? {} : { session }),
    ...(statuses.length === 0 || statuses.length === STATUSES.length ? {} : { status: statuses.join(",") }),
    ...(error === "" ? {} : { error }),
    ...(version === "" ? {} : { version }),
    ...(age === null ? {} : { age }),
    ...(ended === null ? {} : { from: String(ended.from), to: String(ended.to) }),
    ...(isJudged ? { feedback } : {}),
    ...(isJudged && least !== null ? { least: String(least) } : {}),
    ...(isJudged && greatest !== null ? { greatest: String(greatest) } : {}),
  };
}

/** The query of `GET /runs`. now: Unix seconds. */
export function toQuery(filters: RunFilters, limit: number, token: string | null, now: number): URLSearchParams {
  const query = new URLSearchParams({ limit: String(limit) });
  if (filters.app !== "") query.set("app_name", filters.app);
  if (filters.user !== "") query.set("user_id", filters.user);
  if (filters.session !== "") query.set("session_id", filters.session);
  for (const status of filters.statuses) query.append("status", status);
  if (filters.error !== "") query.set("error_code", filters.error);
  if (filters.version !== "") query.set("app_version", filters.version);
  const since = createdFrom(filters, now);
  if (since !== null) query.set("created_from", String(since));
  if (filters.ended !== null) query.set("created_before", String(filters.ended.to));
  if (filters.app !== "" && filters.feedback !== "") {
    query.set("feedback", filters.feedback);
    if (filters.least !== null) query.set("min_score", String(filters.least));
    if (filters.greatest !== null) query.set("max_score", String(filters.greatest));
  }
  if (token !== null) query.set("page_token", token);
  return query;
}

function createdFrom({ age, ended }: RunFilters, now: number): number | null {
  if (age === null && ended === null) return null;
  const since = age === null ? 0 : Math.floor(now - AGES[age]);
  return Math.max(since, ended === null ? 0 : ended.from - LONGEST_RUN);
}

/** Whether a run is among those that ended in the wanted time, if one is. */
export function hasEnded({ endedAt }: Run, { ended }: RunFilters): boolean {
  return ended === null || (endedAt != null && endedAt >= ended.from && endedAt < ended.to);
}

export function isFiltered(filters: RunFilters): boolean {
  return Object.keys(toSearch(filters)).length > 0;
}

/** The list with changed runs in their places, newest first. Runs that no longer match leave it. */
export function merge(runs: readonly Run[], changed: readonly Run[], filters: RunFilters): readonly Run[] {
  const newest = new Map(changed.map((run) => [run.id, run]));
  const since = filters.age === null ? 0 : Date.now() / 1000 - AGES[filters.age];
  const matches = (run: Run) =>
    (filters.statuses.length === 0 || filters.statuses.includes(run.status)) &&
    (filters.error === "" || run.error?.code === filters.error) &&
    run.createdAt >= since;
  const kept: Run[] = [];
  for (const run of runs) {
    const now = newest.get(run.id) ?? run;
    newest.delete(run.id);
    if (now === run || matches(now)) kept.push(now);
  }
  // Runs don't have their feedback: a run that enters such a list does so when the list is read again.
  const added = filters.feedback === "" ? [...newest.values()].filter(matches) : [];
  if (added.length === 0) return kept;
  return [...added, ...kept].sort((left, right) => right.createdAt - left.createdAt || (left.id < right.id ? 1 : -1));
}
