import type { JsonObject } from "greenroom-client";
import { useState } from "react";
import { Empty } from "../components/Empty";
import { ErrorLine } from "../components/ErrorLine";
import { JsonView } from "../components/JsonView";
import { brief } from "./format";
import type { InspectorProps } from "./props";
import { useInitialState } from "./queries";
import { type Difference, differences, stateAt } from "./state";

/** The state after an event, what the event changed, and what differs from the state after any other event. */
export function State({ place, timeline, chosen, choose }: InspectorProps) {
  const initial = useInitialState(place);
  const here = (timeline.byId.get(chosen.event.id) ?? 0) + 1;
  const [at, setAt] = useState(here);
  const [base, setBase] = useState<number | null>(null);
  if (initial.isPending) return <p className="soft panel">Loading…</p>;
  if (initial.isError) return <ErrorLine error={initial.error} />;
  const last = timeline.events.length;
  const compared = base ?? at - 1;
  const after = stateAt(initial.data, timeline.events, at);
  const changes = at === 0 && base === null ? [] : differences(stateAt(initial.data, timeline.events, compared), after);
  return (
    <div className="panel">
      <div className="scrubbers">
        <Scrubber label="State after" value={at} last={last} change={setAt} describe={(value) => describe(timeline, value)} />
        {base !== null && (
          <Scrubber label="Compared with" value={base} last={last} change={setBase} describe={(value) => describe(timeline, value)} />
        )}
        <div className="row">
          <label>
            <input type="checkbox" checked={base !== null} onChange={(event) => setBase(event.target.checked ? Math.max(at - 1, 0) : null)} />{" "}
            Compare with any event
          </label>
          <span className="spread" />
          {at > 0 && at !== here && (
            <button type="button" className="button small" onClick={() => choose(timeline.events[at - 1]?.event.id ?? chosen.event.id)}>
              Select event #{timeline.events[at - 1]?.seq}
            </button>
          )}
        </div>
      </div>
      <section>
        <h3>{base === null ? "Changed by this event" : "Differences"}</h3>
        <Changes changes={changes} none={base === null ? "This event changes no state." : "The two states are equal."} />
      </section>
      <section>
        <h3>State</h3>
        {Object.keys(after).length === 0 ? (
          <Empty title="The state is empty here">
            <p>
              Tools write to it with <code>tool_context.state["city"] = "Oslo"</code>, agents with their <code>output_key</code>.
            </p>
          </Empty>
        ) : (
          <Tree state={after} changed={new Set(changes.map((change) => change.path[0] ?? ""))} />
        )}
      </section>
    </div>
  );
}

function describe(timeline: InspectorProps["timeline"], position: number): string {
  const one = timeline.events[position - 1];
  return one === undefined ? "the session's creation" : `#${one.seq} ${one.event.author}`;
}

function Scrubber(props: {
  label: string;
  value: number;
  last: number;
  change: (value: number) => void;
  describe: (value: number) => string;
}) {
  const { label, value, last, change, describe } = props;
  return (
    <label className="scrubber">
      <span className="scrubber-label">
        <span className="soft">{label}</span> <span className="mono">{describe(value)}</span>
      </span>
      <input
        type="range"
        min={0}
        max={last}
        value={value}
        aria-valuetext={describe(value)}
        onChange={(event) => change(event.target.valueAsNumber)}
      />
    </label>
  );
}

/** Differences, one a line: where, before and after. */
export function Changes({ changes, none }: { changes: readonly Difference[]; none: string }) {
  if (changes.length === 0) return <p className="soft">{none}</p>;
  return (
    <ul className="changes">
      {changes.slice(0, 200).map(({ path, before, after }) => (
        <li key={path.join("\n")}>
          {path.length > 0 && <span className="change-path">{path.join(".")}</span>}{" "}
          {before !== undefined && (
            <del title="before">
              <span className="hidden">before </span>
              {brief(before, 400)}
            </del>
          )}{" "}
          {after !== undefined && (
            <ins title="after">
              <span className="hidden">after </span>
              {brief(after, 400)}
            </ins>
          )}
        </li>
      ))}
      {changes.length > 200 && <li className="soft">… {changes.length - 200} more</li>}
    </ul>
  );
}

function Tree({ state, changed }: { state: JsonObject; changed: ReadonlySet<string> }) {
  return (
    <ul className="tree">
      {Object.keys(state)
        .toSorted()
        .map((key) => (
          <li key={key} className={changed.has(key) ? "changed" : undefined}>
            {changed.has(key) && <span className="tree-mark">changed</span>}
            <JsonView name={key} value={state[key] ?? null} />
          </li>
        ))}
    </ul>
  );
}
