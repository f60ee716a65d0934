import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { listApps } from "../api";
import { Empty } from "../components/Empty";

/** clear: null while nothing is filtered. */
export function FilterForm({ clear, children }: { clear: (() => void) | null; children: ReactNode }) {
  return (
    <form className="filters" aria-label="Filters" onSubmit={(event) => event.preventDefault()}>
      {children}
      {clear !== null && (
        <button type="button" className="button quiet" onClick={clear}>
          Clear
        </button>
      )}
    </form>
  );
}

type ChoiceProps<Value extends string> = {
  readonly label: string;
  /** The name of the choice that filters nothing, whose value is "". */
  readonly all: string;
  readonly value: Value | "";
  readonly values: readonly Value[];
  readonly nameOf: (value: Value) => string;
  readonly set: (value: Value | "") => void;
};

export function ChoiceFilter<Value extends string>({ label, all, value, values, nameOf, set }: ChoiceProps<Value>) {
  return (
    <select className="select" aria-label={label} value={value} onChange={(event) => set(event.target.value as Value | "")}>
      <option value="">{all}</option>
      {values.map((one) => (
        <option key={one} value={one}>
          {nameOf(one)}
        </option>
      ))}
    </select>
  );
}

export function AppFilter({ value, set }: { value: string; set: (app: string) => void }) {
  const apps = useQuery({ queryKey: ["apps"], queryFn: listApps });
  const names = apps.data?.map(({ name }) => name) ?? [];
  return <ChoiceFilter label="App" all="All apps" value={value} values={names} nameOf={(name) => name} set={set} />;
}

/** Takes the place of a list of which the filters leave nothing. what: "request". */
export function NothingMatches({ what, clear }: { what: string; clear: () => void }) {
  return (
    <Empty title={`No ${what} matches these filters`}>
      <p>
        <button type="button" className="button" onClick={clear}>
          Show all {what}s
        </button>
      </p>
    </Empty>
  );
}
