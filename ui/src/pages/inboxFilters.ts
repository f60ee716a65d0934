// The filters of the page Inbox, as they stand in its address and in the request to the server.
import type { HumanRequest } from "greenroom-client";
import type { Search } from "./filters";

export const KINDS = ["approval", "login", "input"] as const satisfies readonly HumanRequest["kind"][];
export type Kind = (typeof KINDS)[number];

/** How long requests have waited at least, in seconds, by the name in the address. */
export const WAITED = { "1h": 3_600, "24h": 86_400, "7d": 604_800 } as const;
export type Waited = keyof typeof WAITED;

/** approver: a user who may answer now. */
export type InboxFilters = {
  readonly app: string;
  readonly kind: Kind | "";
  readonly tool: string;
  readonly approver: string;
  readonly waited: Waited | "";
};

/** Unknown kinds and times in an address are ignored. */
export function parseFilters(search: Search): InboxFilters {
  const { app = "", tool = "", approver = "", waited = "" } = search;
  return {
    app,
    kind: KINDS.find((kind) => kind === search.kind) ?? "",
    tool,
    approver,
    waited: Object.hasOwn(WAITED, waited) ? (waited as Waited) : "",
  };
}

/** The address of filters; what filters nothing is left out. */
export function toSearch(filters: InboxFilters): Search {
  return Object.fromEntries(Object.entries(filters).filter(([, value]) => value !== ""));
}

/** The query of `GET /requests`, which has no filter by time. */
export function toQuery({ app, kind, tool, approver }: InboxFilters, limit: number, token: string | null): URLSearchParams {
  const query = new URLSearchParams({ limit: String(limit) });
  if (app !== "") query.set("app_name", app);
  if (kind !== "") query.set("kind", kind);
  if (tool !== "") query.set("tool", tool);
  if (approver !== "") query.set("approver", approver);
  if (token !== null) query.set("page_token", token);
  return query;
}

export function hasWaited(request: HumanRequest, { waited }: InboxFilters, now: number): boolean {
  return waited === "" || now - request.createdAt >= WAITED[waited];
}

export function isFiltered(filters: InboxFilters): boolean {
  return Object.keys(toSearch(filters)).length > 0;
}
