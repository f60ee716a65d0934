// Times and numbers as the page of statistics writes them.
import { duration } from "../components/Time";

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DATE = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const WEEKDAY = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short" });
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const DAY_SECONDS = 86_400;

/** "Thu, Nov 26, 02:00 PM – 02:15 PM". start, end: Unix seconds. */
export function between(start: number, end: number): string {
  const from = new Date(start * 1000);
  const to = new Date(end * 1000);
  const endDay = from.toDateString() === to.toDateString() ? "" : `${WEEKDAY.format(to)}, `;
  return `${WEEKDAY.format(from)}, ${CLOCK.format(from)} – ${endDay}${CLOCK.format(to)}`;
}

/** The time of a step. */
export function interval(start: number, step: number): string {
  return between(start, start + step);
}

/** Labels of a time axis: the time of day, and below it the date where it changes. */
export function axisTimes(splits: readonly number[], step: number): string[] {
  let day = "";
  return splits.map((split) => {
    const date = new Date(split * 1000);
    if (step >= DAY_SECONDS) return DATE.format(date);
    const isNew = date.toDateString() !== day;
    day = date.toDateString();
    return isNew ? `${CLOCK.format(date)}\n${DATE.format(date)}` : CLOCK.format(date);
  });
}

/** "12", "4.2K", "1.3M". */
export function count(value: number): string {
  return value < 10_000 ? value.toLocaleString("en", { maximumFractionDigits: 2 }) : COMPACT.format(value);
}

/** Seconds: "340 ms", "4.2 s", "3 min 20 s". */
export function seconds(value: number): string {
  return value === 0 ? "0" : duration(value);
}

/** An amount of money with as many digits as say something. */
export function money(currency: string): (value: number) => string {
  const formats = new Map<number, Intl.NumberFormat>();
  return (value) => {
    const digits = value === 0 || value >= 1 ? 2 : Math.min(Math.ceil(-Math.log10(value)) + 1, 6);
    let format = formats.get(digits);
    if (format === undefined) {
      format = new Intl.NumberFormat("en", { style: "currency", currency, minimumFractionDigits: Math.min(digits, 2), maximumFractionDigits: digits });
      formats.set(digits, format);
    }
    return format.format(value);
  };
}

/** The change from one value to another: "+12 %", "−3 %", "× 25"; null where it says nothing. */
export function change(before: number | null, after: number | null): string | null {
  if (before === null || after === null || before === 0) return null;
  if (after / before >= 10) return `× ${count(Math.round(after / before))}`;
  const percent = Math.round((after / before - 1) * 100);
  if (percent === 0) return "±0 %";
  return `${percent > 0 ? "+" : "−"}${Math.abs(percent)} %`;
}

/** "3.2 %" of a whole. */
export function share(part: number, whole: number): string {
  return whole === 0 ? "–" : `${((part / whole) * 100).toLocaleString("en", { maximumFractionDigits: 1 })} %`;
}
