// Schedules as the page shows and edits them.
import type { Schedule, SessionRunRequest } from "greenroom-client";

export const MISSED = { skip: "No run", once: "One run for all of them", all: "One run for each" } as const;
export const OVERLAPS = {
  skip: "Skip this time",
  enqueue: "Wait for it, in the same session",
  cancel: "Cancel it",
  allow: "Run beside it, in a new session",
} as const;
export type Missed = keyof typeof MISSED;
export type Overlap = keyof typeof OVERLAPS;

export const UNITS = { seconds: 1, minutes: 60, hours: 3_600, days: 86_400 } as const;
export type Unit = keyof typeof UNITS;

/** The fields of the form, as texts. Times are those of `datetime-local`, in the zone of the browser. */
export type Draft = {
  readonly kind: "cron" | "interval" | "once";
  readonly cron: string;
  readonly timeZone: string;
  readonly count: string;
  readonly unit: Unit;
  readonly at: string;
  readonly message: string;
  readonly userId: string;
  readonly sessionId: string;
  readonly startAt: string;
  readonly endAt: string;
  readonly jitter: string;
  readonly missed: Missed;
  readonly overlap: Overlap | "";
};

export const LOCAL_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

export function emptyDraft(userId: string): Draft {
  return {
    kind: "cron",
    cron: "0 9 * * MON-FRI",
    timeZone: LOCAL_ZONE,
    count: "1",
    unit: "hours",
    at: "",
    message: "",
    userId,
    sessionId: "",
    startAt: "",
    endAt: "",
    jitter: "0",
    missed: "once",
    overlap: "",
  };
}

export function draftOf(schedule: Schedule): Draft {
  const [count, unit] = countOf(schedule.everySeconds ?? 3_600);
  const kind = schedule.at != null ? "once" : schedule.everySeconds != null ? "interval" : "cron";
  return {
    kind,
    cron: schedule.cron ?? "",
    timeZone: kind === "cron" ? (schedule.timeZone ?? "UTC") : LOCAL_ZONE,
    count: String(count),
    unit,
    at: inputOf(schedule.at),
    message: messageOf(schedule),
    userId: schedule.userId,
    sessionId: schedule.sessionId ?? "",
    startAt: inputOf(schedule.startAt),
    endAt: inputOf(schedule.endAt),
    jitter: String(schedule.jitterSeconds ?? 0),
    missed: schedule.missed ?? "once",
    overlap: schedule.overlap ?? "",
  };
}

/** before: the schedule that is changed, or undefined for a new one; what the form doesn't show is kept. */
export function scheduleOf(draft: Draft, before: Schedule | undefined): Schedule {
  const [startAt, endAt] = [secondsOf(draft.startAt), secondsOf(draft.endAt)];
  return {
    ...(before?.id === undefined ? {} : { id: before.id }),
    userId: draft.userId,
    ...timesOf(draft),
    ...(startAt === null ? {} : { startAt }),
    ...(endAt === null ? {} : { endAt }),
    ...(Number(draft.jitter) > 0 ? { jitterSeconds: Number(draft.jitter) } : {}),
    missed: draft.missed,
    ...(draft.overlap === "" ? {} : { overlap: draft.overlap }),
    ...(draft.sessionId === "" ? {} : { sessionId: draft.sessionId }),
    request: withMessage(before?.request ?? {}, draft.message),
  };
}

/** Whether its times can be asked for: no field that they need is being written. */
export function isComplete({ userId, cron, timeZone, everySeconds, at }: Schedule): boolean {
  if (userId === "") return false;
  if (cron != null) return cron.split(/\s+/).length === 5 && timeZone !== "";
  return everySeconds != null ? everySeconds >= 1 : (at ?? 0) > 0;
}

function timesOf(draft: Draft): Partial<Schedule> {
  if (draft.kind === "cron") return { cron: draft.cron.trim(), timeZone: draft.timeZone };
  if (draft.kind === "interval") return { everySeconds: Number(draft.count) * UNITS[draft.unit] };
  return { at: secondsOf(draft.at) ?? 0 };
}

/** The text of the message. */
export function messageOf(schedule: Schedule): string {
  return (schedule.request?.newMessage?.parts ?? []).map((part) => part.text ?? "").join("");
}

/** The request with another text in its message, whose files are kept. */
function withMessage(request: SessionRunRequest, text: string): SessionRunRequest {
  const { newMessage, ...rest } = request;
  const files = (newMessage?.parts ?? []).filter((part) => part.text === undefined);
  if (text === "" && files.length === 0) return rest;
  return { ...rest, newMessage: { role: "user", parts: [...files, ...(text === "" ? [] : [{ text }])] } };
}

/** The greatest unit in which it is a whole number. */
export function countOf(seconds: number): readonly [number, Unit] {
  const units = Object.keys(UNITS) as Unit[];
  const unit = units.findLast((one) => seconds % UNITS[one] === 0) ?? "seconds";
  return [seconds / UNITS[unit], unit];
}

/** "30 9 * * MON-FRI", "every 2 hours" or "once". */
export function timingOf({ cron, everySeconds }: Schedule): string {
  if (cron != null) return cron;
  if (everySeconds == null) return "once";
  const [count, unit] = countOf(everySeconds);
  return count === 1 ? `every ${unit.slice(0, -1)}` : `every ${count} ${unit}`;
}

/** A time in a zone, with the zone's short name: "Mon, Nov 30, 9:30 AM GMT+1". */
export function inZone(at: number, timeZone: string): string {
  const year = new Date(at * 1000).getFullYear() === new Date().getFullYear() ? {} : ({ year: "numeric" } as const);
  const options = { ...year, weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZoneName: "short" } as const;
  return new Intl.DateTimeFormat(undefined, { ...options, timeZone }).format(at * 1000);
}

/** The value of an input of type `datetime-local`. */
function inputOf(at: number | null | undefined): string {
  if (at === null || at === undefined) return "";
  const date = new Date(at * 1000);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

function secondsOf(input: string): number | null {
  return input === "" ? null : new Date(input).getTime() / 1000;
}
