import type { CSSProperties } from "react";

const COLORS = 8;

/** The agent's colour, the same on every page: one of the theme's, chosen by a hash of the name. */
export function agentColor(name: string): string {
  let hash = 0x811c9dc5; // FNV-1a, then mixed, since short names differ in few bits
  for (const letter of name) hash = Math.imul(hash ^ (letter.codePointAt(0) ?? 0), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return `var(--agent-${((hash ^ (hash >>> 16)) >>> 0) % COLORS})`;
}

/** Up to two letters: of the words of the name, else its first two. */
export function initials(name: string): string {
  const words = name.split(/[^\p{L}\p{N}]+|(?<=\p{Ll})(?=\p{Lu})/u).filter((word) => word !== "");
  const letters = words.length > 1 ? words.slice(0, 2).map((word) => [...word][0]) : [...(words[0] ?? "?")].slice(0, 2);
  return letters.join("").toUpperCase();
}

export function AgentName({ name }: { name: string }) {
  return (
    <span className="agent" style={{ "--agent-color": agentColor(name) } as CSSProperties}>
      <span className="agent-mark" aria-hidden="true">
        {initials(name)}
      </span>
      <span className="agent-name" title={name}>
        {name}
      </span>
    </span>
  );
}
