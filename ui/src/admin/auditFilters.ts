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

/** Actions to filter by; those of newer servers are added where an entry has one. */
export const ACTIONS: readonly Action[] = [
  "access.refused",
  "app.changed",
  "app.traffic.changed",
  "app.version.deleted",
  "app.version.published",
  "app.webhook.changed",
  "app.webhook.deleted",
  "artifact.changed",
  "artifact.deleted",
  "audit.read",
  "budget.changed",
  "budget.deleted",
  "credential.revoked",
  "data.read",
  "evaluation.changed",
  "guardrail.asked",
  "guardrail.blocked",
  "guardrail.redacted",
  "head.signed",
  "key.created",
  "key.revoked",
  "memory.changed",
  "memory.deleted",
  "request.answered",
  "request.delegated",
  "role.changed",
  "role.deleted",
  "run.cancelled",
  "run.continued",
  "run.retried",
  "run.signaled",
  "run.started",
  "run.webhook.changed",
  "run.webhook.deleted",
  "schedule.changed",
  "schedule.created",
  "schedule.deleted",
  "schedule.paused",
  "schedule.resumed",
  "schedule.started",
  "server.started",
  "server.stopped",
  "service_account.changed",
  "service_account.deleted",
  "session.changed",
  "session.created",
  "session.deleted",
  "session.expired",
  "session.forked",
  "session.rewound",
  "trail.broken",
  "trail.cut",
  "user.deleted",
  "user.exported",
  "webhook.redelivered",
  "webhook.tested",
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
