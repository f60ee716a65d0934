import { type UseQueryResult, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import type { Event, EventPage, Run } from "greenroom-client";
import { useId, useMemo, useState } from "react";
import { DEFAULT_USER, call } from "../api";
import { AgentName } from "../components/AgentName";
import { costOf, dollars } from "../components/Cost";
import { Empty } from "../components/Empty";
import { ErrorLine } from "../components/ErrorLine";
import { JsonView } from "../components/JsonView";
import { Status } from "../components/Status";
import { ago, duration } from "../components/Time";
import { count } from "../inspector/format";
import { Changes } from "../inspector/State";
import "../inspector/inspector.css";
import { type Pair, type Step, align, stepsOf, totals, wordDifferences } from "./align";
import type { Search } from "./filters";
import "./pages.css";

type Compared = { readonly run: Run; readonly steps: readonly Step[]; readonly cost: number | null };
type Side = "left" | "right";

const PAGE = 1000;
const SLOWER = 1.25;
const MIN_SECONDS = 0.05;

async function fetchRun(id: string): Promise<Compared> {
  const path = `/runs/${encodeURIComponent(id)}`;
  const run = await call<Run>("GET", path);
  const events: Event[] = [];
  for (let after = 0; ; ) {
    const page = await call<EventPage>("GET", `${path}/events?limit=${PAGE}&after=${after}`);
    events.push(...page.events);
    if (page.events.length < PAGE || page.lastSeq <= after) break;
    after = page.lastSeq;
  }
  return { run, steps: stepsOf(events), cost: await costOf(run.appName, run.id) };
}

function useRun(id: string | undefined): UseQueryResult<Compared> {
  return useQuery({ queryKey: ["compared", id], queryFn: () => fetchRun(id ?? ""), enabled: id !== undefined });
}

/** Two runs step by step, with differing arguments, texts, times and costs marked. */
export function ComparePage() {
  const { left, right } = useSearch({ strict: false }) as Search;
  const [one, other] = [useRun(left), useRun(right)];
  const [isBrief, setBrief] = useState(false);
  const pairs = useMemo(
    () => (one.data === undefined || other.data === undefined ? null : align(one.data.steps, other.data.steps)),
    [one.data, other.data],
  );
  const differing = pairs?.filter(isDifferent) ?? [];
  return (
    <main className="page compare">
      <h1>Compare two runs</h1>
      <div className="compare-pickers">
        <Picker side="left" id={left} other={right} />
        <Picker side="right" id={right} other={left} />
      </div>
      {one.isError && <ErrorLine error={one.error} />}
      {other.isError && <ErrorLine error={other.error} />}
      {pairs === null ? (
        (left === undefined || right === undefined) && (
          <Empty title="Choose two runs">
            <p>
              Their steps are aligned, and what differs is marked: arguments, texts, state, times, tokens and costs. A fork beside its
              origin shows what a change of the code or of a message did.
            </p>
          </Empty>
        )
      ) : (
        <>
          <div className="row">
            <span className="spread">
              {differing.length === 0 ? "The runs did the same." : `${differing.length} of ${pairs.length} steps differ.`}
            </span>
            <label>
              <input type="checkbox" checked={isBrief} onChange={(event) => setBrief(event.target.checked)} /> Only differences
            </label>
          </div>
          <div className="compare-grid">
            {one.data !== undefined && other.data !== undefined && (
              <>
                <Head side={one.data} other={other.data} />
                <Head side={other.data} other={one.data} />
              </>
            )}
            {(isBrief ? differing : pairs).map((pair) => (
              <PairRow key={`${pair.left?.eventId}${pair.left?.key}|${pair.right?.eventId}${pair.right?.key}`} pair={pair} />
            ))}
          </div>
        </>
      )}
    </main>
  );
}

function isDifferent(pair: Pair): boolean {
  return pair.left === null || pair.right === null || pair.differences.length > 0;
}

function Picker({ side, id, other }: { side: Side; id: string | undefined; other: string | undefined }) {
  const runs = useQuery({
    queryKey: ["runs", "newest to compare"],
    queryFn: async () => (await call<{ runs: readonly Run[] }>("GET", "/runs?limit=100")).runs,
  });
  const navigate = useNavigate();
  const list = useId();
  const [draft, setDraft] = useState(id ?? "");
  const [before, setBefore] = useState(id);
  if (before !== id) {
    setBefore(id);
    setDraft(id ?? "");
  }
  function choose(wanted: string) {
    setDraft(wanted);
    if (wanted === id || !(wanted === "" || wanted.length > 8)) return;
    const next = { left: side === "left" ? wanted : other, right: side === "right" ? wanted : other };
    void navigate({ to: "/compare", search: Object.fromEntries(Object.entries(next).filter(([, value]) => value)) });
  }
  return (
    <label className="picker">
      <span className="soft">{side === "left" ? "Left run" : "Right run"}</span>
      <input
        className="input mono"
        list={list}
        placeholder="Run id, or choose one"
        value={draft}
        onChange={(event) => {
          const wanted = event.target.value;
          setDraft(wanted);
          if (runs.data?.some((run) => run.id === wanted)) choose(wanted);
        }}
        onBlur={() => choose(draft.trim())}
        onKeyDown={(event) => event.key === "Enter" && choose(draft.trim())}
      />
      <datalist id={list}>
        {runs.data?.map((run) => (
          <option key={run.id} value={run.id}>{`${run.appName} · ${run.sessionId} · ${run.status} · ${ago(run.createdAt)}`}</option>
        ))}
      </datalist>
    </label>
  );
}

function Head({ side, other }: { side: Compared; other: Compared }) {
  const { run, steps, cost } = side;
  const [sum, rest] = [totals(steps), totals(other.steps)];
  return (
    <header className="compare-head">
      <div className="row">
        <Status status={run.status} />
        <Link
          className="cut"
          to="/apps/$app/sessions/$session"
          params={{ app: run.appName, session: run.sessionId }}
          search={run.userId === DEFAULT_USER ? {} : { user: run.userId }}
        >
          {run.appName} / {run.sessionId}
        </Link>
      </div>
      <div className="soft">
        <Figure text={`${sum.steps} steps`} isMarked={sum.steps !== rest.steps} />
        {" · "}
        <Figure text={duration(sum.seconds)} isMarked={isSlower(sum.seconds, rest.seconds)} />
        {" · "}
        <Figure text={`${count(sum.tokens)} tokens`} isMarked={sum.tokens > rest.tokens} />
        {cost !== null && cost > 0 && (
          <>
            {" · "}
            <Figure text={dollars(cost)} isMarked={other.cost !== null && cost > other.cost} />
          </>
        )}
      </div>
    </header>
  );
}

function Figure({ text, isMarked }: { text: string; isMarked: boolean }) {
  return isMarked ? <mark>{text}</mark> : <span>{text}</span>;
}

function isSlower(seconds: number | null, other: number | null): boolean {
  return seconds !== null && other !== null && seconds > other * SLOWER && seconds - other > MIN_SECONDS;
}

function PairRow({ pair }: { pair: Pair }) {
  const { left, right } = pair;
  return (
    <div className={isDifferent(pair) ? "compare-pair differs" : "compare-pair"} role="group" aria-label={(left ?? right)?.title ?? ""}>
      <StepView step={left} other={right} />
      <StepView step={right} other={left} />
      {pair.differences.length > 0 && !(typeof left?.value === "string" && typeof right?.value === "string") && (
        <div className="compare-changes">
          <Changes changes={pair.differences} none="" />
        </div>
      )}
    </div>
  );
}

function StepView({ step, other }: { step: Step | null; other: Step | null }) {
  if (step === null) return <div className="step missing soft">No such step</div>;
  return (
    <div className={other === null ? "step alone" : "step"}>
      <div className="row step-head">
        <AgentName name={step.author} />
        <span className="cut">{step.title}</span>
        <span className="spread" />
        {step.tokens > 0 && <Figure text={`${count(step.tokens)} tokens`} isMarked={other !== null && step.tokens > other.tokens} />}
        {step.seconds !== null && <Figure text={duration(step.seconds)} isMarked={isSlower(step.seconds, other?.seconds ?? null)} />}
      </div>
      {typeof step.value === "string" ? (
        <TextView text={step.value} other={typeof other?.value === "string" ? other.value : null} />
      ) : (
        <JsonView value={step.value} />
      )}
    </div>
  );
}

/** A text with the words marked that the other one does not have. */
function TextView({ text, other }: { text: string; other: string | null }) {
  if (other === null || other === text) return <p className="wrapped">{text}</p>;
  return (
    <p className="wrapped words">
      {wordDifferences(other, text).map((piece, at) => {
        if (piece.kind === "removed") return null;
        return piece.kind === "added" ? <mark key={at}>{piece.text}</mark> : <span key={at}>{piece.text}</span>;
      })}
    </p>
  );
}
