// The order of the command palette's choices.

/** kind: what it is, in one word. isFound: a server's search found it, so it matches whatever its name is. stays: the
    palette stays open. */
export type Choice = {
  readonly id: string;
  readonly kind: "Page" | "Action" | "App" | "Session" | "Run" | "Event";
  readonly name: string;
  readonly hint?: string;
  readonly isFound?: boolean;
  readonly stays?: boolean;
  readonly act: () => unknown;
};

const MOST = 60;
const MOST_WITHOUT_QUERY = 8;

/** Choices with every word of the query in kind, name or hint, the best first: names that start with it, then names
    that contain it. Without a query: all in their order, of sessions, runs and events a few. */
export function ranked(query: string, choices: readonly Choice[]): readonly Choice[] {
  const words = query.toLowerCase().split(/\s+/).filter((word) => word !== "");
  if (words.length === 0) {
    const seen = new Map<string, number>();
    return choices.filter(({ kind }) => {
      const count = (seen.get(kind) ?? 0) + 1;
      seen.set(kind, count);
      return kind === "Page" || kind === "Action" || count <= MOST_WITHOUT_QUERY;
    });
  }
  const whole = words.join(" ");
  const scored = choices.flatMap((choice) => {
    const name = choice.name.toLowerCase();
    const all = `${choice.kind} ${name} ${choice.hint ?? ""}`.toLowerCase();
    if (choice.isFound !== true && !words.every((word) => all.includes(word))) return [];
    const score = name.startsWith(whole) ? 3 : name.includes(` ${whole}`) ? 2 : name.includes(whole) ? 1 : 0;
    return [{ choice, score }];
  });
  return scored
    .toSorted((one, other) => other.score - one.score)
    .slice(0, MOST)
    .map(({ choice }) => choice);
}
