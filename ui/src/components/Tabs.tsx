import { type KeyboardEvent, type ReactNode, useEffect, useId } from "react";

export type Tab = { readonly id: string; readonly name: string };

/** Tabs with the chosen one's panel below; arrow keys move between them. */
export function Tabs(props: {
  label: string;
  tabs: readonly Tab[];
  chosen: string;
  choose: (id: string) => void;
  children: ReactNode;
}) {
  const { label, tabs, chosen, choose, children } = props;
  const base = useId();
  useEffect(() => {
    document.getElementById(`${base}-${chosen}`)?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [base, chosen]);
  function onKeyDown(event: KeyboardEvent<HTMLDivElement>) {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    const at = tabs.findIndex((tab) => tab.id === chosen);
    const next = tabs[(at + step + tabs.length) % tabs.length];
    if (next === undefined) return;
    choose(next.id);
    document.getElementById(`${base}-${next.id}`)?.focus();
  }
  return (
    <>
      <div className="tabs" role="tablist" aria-label={label} onKeyDown={onKeyDown}>
        {tabs.map((tab) => (
          <button
            key={tab.id}
            id={`${base}-${tab.id}`}
            type="button"
            role="tab"
            className="tab"
            aria-selected={tab.id === chosen}
            aria-controls={`${base}-panel`}
            tabIndex={tab.id === chosen ? 0 : -1}
            onClick={() => choose(tab.id)}
          >
            {tab.name}
          </button>
        ))}
      </div>
      <div className="tab-panel" id={`${base}-panel`} role="tabpanel" aria-labelledby={`${base}-${chosen}`} tabIndex={0}>
        {children}
      </div>
    </>
  );
}
