import { useEffect, useState } from "react";

const RELATIVE = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const SHORT_CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const FULL = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const UNITS = [
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
] as const;

/** at: Unix seconds. isRelative: "5 min. ago" instead of the time of day. */
export function Time({ at, isRelative = false }: { at: number; isRelative?: boolean }) {
  const date = new Date(at * 1000);
  return (
    <time dateTime={date.toISOString()} title={FULL.format(date)}>
      {isRelative ? ago(at) : CLOCK.format(date)}
    </time>
  );
}

/** at: Unix seconds. The time of day, with its day and month unless that is today. */
export function Moment({ at }: { at: number }) {
  const date = new Date(at * 1000);
  const now = new Date();
  const isToday = date.toDateString() === now.toDateString();
  const day = date.getFullYear() === now.getFullYear() ? DAY : FULL;
  return (
    <time dateTime={date.toISOString()} title={FULL.format(date)}>
      {(isToday ? SHORT_CLOCK : day).format(date)}
    </time>
  );
}

export function ago(at: number): string {
  const seconds = Date.now() / 1000 - at;
  for (const [unit, length] of UNITS) if (seconds >= length) return RELATIVE.format(-Math.round(seconds / length), unit);
  return "just now";
}

/** "340 ms", "4.2 s", "3 min 20 s", "2 h 5 min". */
export function duration(seconds: number): string {
  if (seconds < 1) return `${Math.max(Math.round(seconds * 1000), 0)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** The time from `from` to `to`, Unix seconds; a running clock while `to` is null. */
export function Duration({ from, to }: { from: number; to: number | null }) {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    if (to !== null) return undefined;
    const timer = setInterval(() => setNow(Date.now() / 1000), 100);
    return () => clearInterval(timer);
  }, [to]);
  return <span className="duration">{duration(Math.max((to ?? now) - from, 0))}</span>;
}
