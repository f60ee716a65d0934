import { useEffect, useState } from "react";

/** j and k step through events, Enter opens, Esc closes, / focuses the composer. */
export function useKeys({ eventIds, chosen, open }: { eventIds: readonly string[]; chosen: string | null; open: (id: string | null) => void }) {
  const [cursor, setCursor] = useState<string | null>(null);
  useEffect(() => {
    function step(by: number) {
      const at = eventIds.indexOf(cursor ?? chosen ?? "");
      const next = at < 0 ? (by > 0 ? 0 : eventIds.length - 1) : Math.min(Math.max(at + by, 0), eventIds.length - 1);
      const id = eventIds[next];
      if (id === undefined) return;
      setCursor(id);
      if (chosen !== null) open(id);
    }
    function onKey(event: KeyboardEvent) {
      const target = event.target instanceof HTMLElement ? event.target : null;
      if (target?.closest("[role=dialog]") != null) return;
      const isTyping = target?.closest("input, textarea, select, [contenteditable=true]") ?? null;
      if (event.key === "Escape") {
        if (isTyping !== null) target?.blur();
        else if (chosen !== null) open(null);
        return;
      }
      if (isTyping !== null || event.metaKey || event.ctrlKey || event.altKey) return;
      if (event.key === "j") step(1);
      else if (event.key === "k") step(-1);
      else if (event.key === "Enter" && cursor !== null && target?.closest("button, a, summary") === null) open(cursor);
      else if (event.key === "/") document.getElementById("composer")?.focus();
      else return;
      event.preventDefault();
    }
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [eventIds, chosen, cursor, open]);
  return cursor;
}
