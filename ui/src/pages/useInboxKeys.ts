import { useEffect } from "react";

type InboxKeys = {
  readonly ids: readonly string[];
  readonly chosen: string | undefined;
  readonly choose: (id: string | undefined) => void;
  readonly open: () => void;
};

const ANSWERS: Readonly<Record<string, string>> = { y: "allow", a: "allow", n: "refuse", r: "refuse" };

/** j and k choose a request, y or a allows it, n or r refuses it, Enter opens its session, Esc closes it. */
export function useInboxKeys({ ids, chosen, choose, open }: InboxKeys): void {
  useEffect(() => {
    function step(by: number) {
      const at = ids.indexOf(chosen ?? "");
      const next = at < 0 ? 0 : Math.min(Math.max(at + by, 0), ids.length - 1);
      choose(ids[next]);
    }
    function onKey(event: KeyboardEvent) {
      const target = event.target instanceof HTMLElement ? event.target : null;
      if (target?.closest("[role=dialog], input, textarea, select") != null) return;
      if (event.metaKey || event.ctrlKey || event.altKey || ids.length === 0) return;
      const answer = ANSWERS[event.key];
      if (event.key === "j") step(1);
      else if (event.key === "k") step(-1);
      else if (chosen === undefined) return;
      else if (event.key === "Escape") choose(undefined);
      else if (event.key === "Enter" && target?.closest("button, a, summary") == null) open();
      // A key that is held down answers one request only.
      else if (answer !== undefined && !event.repeat) document.querySelector<HTMLButtonElement>(`.inbox-detail [data-answer=${answer}]`)?.click();
      else return;
      event.preventDefault();
    }
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [ids, chosen, choose, open]);
}
