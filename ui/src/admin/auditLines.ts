// The lines of an exported audit trail, as `greenroom audit export` writes them and `greenroom audit verify` reads them.
import type { AuditEntry } from "greenroom-client";

/** RFC 8785: keys sorted, no spaces. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const fields = Object.entries(value).filter(([, field]) => field != null);
  fields.sort(([left], [right]) => (left < right ? -1 : 1));
  return `{${fields.map(([key, field]) => `${JSON.stringify(key)}:${canonical(field)}`).join(",")}}`;
}

/** One line per entry, by chain and sequence number. */
export function linesOf(entries: readonly AuditEntry[]): string {
  const place = (entry: AuditEntry) => [entry.chain ?? 0, entry.sequence ?? 0] as const;
  const sorted = [...entries].sort((left, right) => {
    const [chain, sequence] = place(left);
    const [otherChain, otherSequence] = place(right);
    return chain - otherChain || sequence - otherSequence;
  });
  return sorted.map((entry) => `${canonical(entry)}\n`).join("");
}
