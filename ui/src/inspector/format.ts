import type { Event, JsonValue, Part } from "greenroom-client";

const NUMBER = new Intl.NumberFormat("en");

export function count(number: number): string {
  return NUMBER.format(number);
}

/** "830 B", "1.2 kB", "3.4 MB". */
export function size(bytes: number): string {
  if (bytes < 1_000) return `${bytes} B`;
  return bytes < 1_000_000 ? `${(bytes / 1_000).toFixed(1)} kB` : `${(bytes / 1_000_000).toFixed(1)} MB`;
}

/** A record as the JSON it was sent as. */
export function asJson(record: Event | Part): JsonValue {
  return record as unknown as JsonValue;
}

/** A value in one line, cut after `most` characters. */
export function brief(value: JsonValue | undefined, most = 80): string {
  const text = value === undefined ? "–" : (JSON.stringify(value) ?? "–");
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
