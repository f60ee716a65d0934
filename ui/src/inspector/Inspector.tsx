import { ChevronDown, ChevronUp, Copy, X } from "lucide-react";
import { DropdownMenu } from "radix-ui";
import { Suspense, lazy, useState } from "react";
import { SERVER } from "../api";
import { AgentName } from "../components/AgentName";
import { JsonView } from "../components/JsonView";
import { Tabs } from "../components/Tabs";
import { Time } from "../components/Time";
import { Artifacts } from "./Artifacts";
import { asJson } from "./format";
import { Reply, Request } from "./Exchange";
import "./inspector.css";
import { Overview } from "./Overview";
import type { InspectorProps } from "./props";
import { curl, evalCase, pytestSnippet } from "./snippets";
import { State } from "./State";
import { Trace } from "./Trace";

const Graph = lazy(() => import("./Graph"));

const TABS = ["Overview", "Request", "Reply", "State", "Artifacts", "Trace", "Graph", "JSON"].map((name) => ({
  id: name.toLowerCase(),
  name,
}));

/** Details of the chosen event. Loaded when an event is first opened. */
export default function Inspector(props: InspectorProps) {
  const { timeline, chosen, setTab, choose, close } = props;
  const tab = TABS.some((one) => one.id === props.tab) ? props.tab : "overview";
  const at = timeline.byId.get(chosen.event.id) ?? 0;
  const step = (by: number) => {
    const next = timeline.events[at + by];
    if (next !== undefined) choose(next.event.id);
  };
  return (
    <aside className="inspector" aria-label="Inspector">
      <header className="inspector-head">
        <AgentName name={chosen.event.author} />
        <span className="soft inspector-at">
          #{chosen.seq} · <Time at={chosen.event.timestamp} />
        </span>
        <span className="spread" />
        <button type="button" className="button quiet small" disabled={at === 0} onClick={() => step(-1)} title="Previous event (k)">
          <ChevronUp size={16} aria-hidden="true" />
          <span className="hidden">Previous event</span>
        </button>
        <button
          type="button"
          className="button quiet small"
          disabled={at >= timeline.events.length - 1}
          onClick={() => step(1)}
          title="Next event (j)"
        >
          <ChevronDown size={16} aria-hidden="true" />
          <span className="hidden">Next event</span>
        </button>
        <CopyMenu {...props} />
        <button type="button" className="button quiet small" onClick={close} title="Close (Esc)">
          <X size={16} aria-hidden="true" />
          <span className="hidden">Close the inspector</span>
        </button>
      </header>
      <Tabs label="About this event" tabs={TABS} chosen={tab} choose={setTab}>
        <Panel {...props} tab={tab} />
      </Tabs>
    </aside>
  );
}

function Panel(props: InspectorProps) {
  switch (props.tab) {
    case "request":
      return <Request {...props} />;
    case "reply":
      return <Reply {...props} />;
    case "state":
      return <State key={props.chosen.event.id} {...props} />;
    case "artifacts":
      return <Artifacts {...props} />;
    case "trace":
      return <Trace {...props} />;
    case "graph":
      return (
        <Suspense fallback={<p className="soft">Loading the graph…</p>}>
          <Graph place={props.place} eventId={props.chosen.event.id} />
        </Suspense>
      );
    case "json":
      return <JsonView value={asJson(props.chosen.event)} />;
    default:
      return <Overview {...props} />;
  }
}

/** Copies what it is given; says so for a moment. */
function CopyMenu({ place, timeline, chosen }: InspectorProps) {
  const [said, say] = useState("");
  async function copy(name: string, content: string) {
    try {
      await navigator.clipboard.writeText(content);
      say(`${name} copied`);
    } catch {
      say("The browser refused access to the clipboard");
    }
    setTimeout(() => say(""), 2_000);
  }
  const { event } = chosen;
  const choices = [
    { name: "JSON", content: () => JSON.stringify(event, null, 2) },
    { name: "curl command", content: () => curl(place, timeline.events, event, SERVER) },
    { name: "pytest test", content: () => pytestSnippet(place, timeline.events, event, SERVER) },
    { name: "evaluation case", content: () => JSON.stringify(evalCase(place, timeline.events, event), null, 2) },
    { name: "Link", content: () => location.href },
  ];
  return (
    <>
      <DropdownMenu.Root>
        <DropdownMenu.Trigger className="button quiet small" title="Copy as…">
          <Copy size={16} aria-hidden="true" />
          <span className="hidden">Copy as…</span>
        </DropdownMenu.Trigger>
        <DropdownMenu.Portal>
          <DropdownMenu.Content className="menu" align="end" sideOffset={4} collisionPadding={8}>
            {choices.map(({ name, content }) => (
              <DropdownMenu.Item key={name} className="menu-item" onSelect={() => void copy(name, content())}>
                Copy {name === "Link" ? "link" : `as ${name}`}
              </DropdownMenu.Item>
            ))}
          </DropdownMenu.Content>
        </DropdownMenu.Portal>
      </DropdownMenu.Root>
      <span role="status" className={said === "" ? "hidden" : "inspector-said"}>
        {said}
      </span>
    </>
  );
}
