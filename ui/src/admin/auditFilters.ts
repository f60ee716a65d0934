// The filters of the page of the audit trail, as they stand in its address and in the request to the server.
import type { AuditEntry, AuditQuery } from "greenroom-client";
import { AGES, type Age, type Search } from "../pages/filters";

export type Action = AuditEntry["action"];

export type AuditFilters = {
  readonly action: string;
  readonly outcome: AuditEntry["outcome"] | "";
  readonly subject: string;
  readonly app: string;
  readonly session: string;
  readonly age: Age | "";
};

export const NO_FILTERS: AuditFilters = { action: "", outcome: "", subject: "", app: "", session: "", age: "" };

/** Actions that are offered to filter by, with those of the entries that are shown. */
export const ACTIONS: readonly Action[] = [
  "access.refused",
  "app.changed",
  "audit.read",
  "data.read",
  "guardrail.asked",
  "guardrail.blocked",
  "guardrail.redacted",
  "head.signed",
  "key.created",
  "key.revoked",
  "request.answered",
  "request.delegated",
  "run.cancelled",
  "run.continued",
  "run.retried",
  "run.started",
  "server.started",
  "server.stopped",
  "session.changed",
  "session.created",
  "session.deleted",
  "trail.broken",
  "trail.cut",
  "user.deleted",
];

/** Unknown outcomes and times in an address are ignored. */
export function parseFilters(search: Search): AuditFilters {
  const { action = "", outcome = "", subject = "", app = "", session = "", age = "" } = search;
  return {
    action,
    outcome: outcome === "success" || outcome === "refused" ? outcome : "",
    subject,
    app,
    session,
    age: Object.hasOwn(AGES, age) ? (age as Age) : "",
  };
}

/** The address of filters; what filters nothing is left out. */
export function toSearch(filters: AuditFilters): Search {
  return Object.fromEntries(Object.entries(filters).filter(([, value]) => value !== ""));
}

/** now: Unix seconds. */
export function toQuery({ action, outcome, subject, app, session, age }: AuditFilters, now: number): AuditQuery {
  return {
    ...(action === "" ? {} : { action: [action as Action] }),
    ...(outcome === "" ? {} : { outcome }),
    ...(subject === "" ? {} : { subject }),
    ...(app === "" ? {} : { app_name: app }),
    ...(session === "" ? {} : { session_id: session }),
    ...(age === "" ? {} : { time_from: Math.floor(now - AGES[age]) }),
  };
}
