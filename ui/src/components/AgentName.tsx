import type { CSSProperties } from "react";

const COLORS = 8;

/** The agent's colour, the same on every page: one of the theme's, chosen by a hash of the name. */
export function agentColor(name: string): string {
  let hash = 0;
  for (const letter of name) hash = (hash * 31 + (letter.codePointAt(0) ?? 0)) >>> 0;
  return `var(--agent-${hash % COLORS})`;
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
