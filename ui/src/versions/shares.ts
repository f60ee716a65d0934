// The shares of an app's sessions by version, while they are edited.

/** Percentages by the name of a version. A version that isn't in them serves no session. */
export type Shares = Readonly<Record<string, number>>;

export const SOURCE = "source";

/** The shares that count: without any, the code in the folder serves all sessions. */
export function servingShares(shares: Shares): Shares {
  return Object.keys(shares).length === 0 ? { [SOURCE]: 100 } : shares;
}

/** The version with the greatest share. */
export function leading(shares: Shares): string {
  const entries = Object.entries(servingShares(shares));
  return entries.reduce((most, one) => (one[1] > most[1] ? one : most))[0];
}

/** The shares with another one for a version; null takes it out. Of two versions, the other one gets the rest. */
export function withShare(shares: Shares, name: string, share: number | null): Shares {
  const { [name]: _, ...others } = shares;
  const rest = Object.keys(others);
  if (share === null) return rest.length === 1 && rest[0] !== undefined ? { [rest[0]]: 100 } : others;
  const wanted = Math.min(Math.max(Math.round(share), 0), 100);
  if (rest.length === 1 && rest[0] !== undefined) return { [rest[0]]: 100 - wanted, [name]: wanted };
  return { ...others, [name]: wanted };
}

export function sum(shares: Shares): number {
  return Object.values(shares).reduce((total, share) => total + share, 0);
}

/** Whether both give every version the same. */
export function areEqual(one: Shares, other: Shares): boolean {
  const [first, second] = [servingShares(one), servingShares(other)];
  const names = new Set([...Object.keys(first), ...Object.keys(second)]);
  return [...names].every((name) => first[name] === second[name]);
}

/** The versions to choose shares for: those that serve, the newest ones, and the code in the folder. names: newest first. */
export function choices(names: readonly string[], shares: Shares, most = 5): readonly string[] {
  return [...names.filter((name, index) => index < most || name in shares), SOURCE];
}
