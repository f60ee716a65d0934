import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import type { EvalCaseResult, EvalSet, EvalSetResult, Invocation } from "greenroom-client";
import { CircleCheck, CircleDashed, Play, Plus, Square, Trash2, TriangleAlert } from "lucide-react";
import { type FormEvent, useEffect, useRef, useState } from "react";
import { DEFAULT_USER, client, listApps, titleOf } from "../api";
import { Empty } from "../components/Empty";
import { ErrorLine } from "../components/ErrorLine";
import { Time } from "../components/Time";
import { chosenUser } from "../user";
import { reload } from "../reload";
import { wordDifferences } from "./align";
import * as evaluations from "./evaluations";
import { FAILED, PASSED, type Progress, type Wanted } from "./evaluations";
import type { Search } from "./filters";
import "./pages.css";
import "./evaluate.css";

const SHOWN_RESULTS = 20;
const DEFAULTS: readonly Wanted[] = [
  { metricName: "tool_trajectory_avg_score", threshold: 1 },
  { metricName: "response_match_score", threshold: 0.8 },
];

/** Evaluation sets of an app: their cases, runs with progress, results with what differs, and the pass rate over time. */
export function EvaluatePage() {
  const { app: wantedApp, set: wantedSet, result } = useSearch({ strict: false }) as Search;
  const navigate = useNavigate();
  const apps = useQuery({ queryKey: ["apps"], queryFn: listApps });
  const app = wantedApp ?? apps.data?.find((one) => one.error == null)?.name;
  const sets = useQuery({ queryKey: ["eval-sets", app], queryFn: () => evaluations.listSets(app ?? ""), enabled: app !== undefined });
  const set = wantedSet !== undefined && sets.data?.includes(wantedSet) ? wantedSet : sets.data?.[0];
  const go = (search: Search) => void navigate({ to: "/evaluate", search });
  return (
    <main className="page evaluate">
      <div className="row">
        <h1 className="spread">Evaluate</h1>
        {apps.data !== undefined && app !== undefined && (
          <select className="select" aria-label="App" value={app} onChange={(event) => go({ app: event.target.value })}>
            {apps.data.map(({ name }) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        )}
      </div>
      {sets.isError && <ErrorLine error={sets.error} />}
      {app !== undefined && sets.data !== undefined && (
        <>
          <div className="row eval-sets">
            {sets.data.map((name) => (
              <Link key={name} className="chip" to="/evaluate" search={{ app, set: name }} aria-current={name === set ? "page" : undefined}>
                {name}
              </Link>
            ))}
            <NewSet app={app} created={(name) => go({ app, set: name })} />
          </div>
          {set === undefined ? (
            <Empty title="No evaluation sets">
              <p>
                A set holds cases: messages with the tool calls and answers that are expected. Name one above, then add sessions that went
                well; or collect them with <code>greenroom eval collect</code>.
              </p>
            </Empty>
          ) : (
            <SetView key={`${app}/${set}`} app={app} set={set} result={result} open={(id) => go({ app, set, result: id })} left={() => go({ app })} />
          )}
        </>
      )}
    </main>
  );
}

function NewSet({ app, created }: { app: string; created: (name: string) => void }) {
  const queries = useQueryClient();
  const [name, setName] = useState("");
  const [error, setError] = useState<unknown>(null);
  async function create(event: FormEvent) {
    event.preventDefault();
    try {
      await evaluations.createSet(app, name);
      await reload(queries, ["eval-sets", app]);
      created(name);
      setName("");
      setError(null);
    } catch (failure) {
      setError(failure);
    }
  }
  return (
    <form className="row" onSubmit={(event) => void create(event)}>
      <input
        className="input"
        aria-label="Name of a new set"
        placeholder="new_set"
        pattern="[A-Za-z0-9_]+"
        title="Letters, digits and _"
        required
        value={name}
        onChange={(event) => setName(event.target.value)}
      />
      <button className="button" type="submit">
        <Plus size={14} aria-hidden="true" /> Create set
      </button>
      {error !== null && <ErrorLine error={error} />}
    </form>
  );
}

type SetProps = {
  readonly app: string;
  readonly set: string;
  readonly result: string | undefined;
  readonly open: (result: string) => void;
  readonly left: () => void;
};

function SetView({ app, set, result, open, left }: SetProps) {
  const queries = useQueryClient();
  const found = useQuery({ queryKey: ["eval-set", app, set], queryFn: () => evaluations.getSet(app, set) });
  const past = useQuery({ queryKey: ["eval-results", app, set], queryFn: () => evaluations.history(app, set, SHOWN_RESULTS) });
  const [error, setError] = useState<unknown>(null);
  const refresh = () => reload(queries, ["eval-set", app, set]);
  async function act(action: Promise<void>) {
    try {
      await action;
      setError(null);
    } catch (failure) {
      setError(failure);
    }
    await refresh();
  }
  async function remove() {
    if (!confirm(`Delete the set ${set} with its cases? Its results are kept.`)) return;
    await act(evaluations.deleteSet(app, set));
    await reload(queries, ["eval-sets", app]);
    left();
  }
  const shown = past.data?.find((one) => one.evalSetResultId === result) ?? past.data?.at(-1);
  return (
    <>
      {found.isError && <ErrorLine error={found.error} />}
      {past.isError && <ErrorLine error={past.error} />}
      {error !== null && <ErrorLine error={error} />}
      {found.data !== undefined && (
        <section className="eval-part" aria-label="Cases">
          <div className="row">
            <h2 className="spread">
              {set}: {cases(found.data)}
              {found.data.version != null && <span className="soft">, version {found.data.version}</span>}
            </h2>
            <AddSession app={app} add={(user, session) => act(evaluations.addSession(app, set, user, session))} />
            <button className="button quiet" type="button" aria-label="Delete set" title="Delete set" onClick={() => void remove()}>
              <Trash2 size={14} aria-hidden="true" />
            </button>
          </div>
          <CaseTable app={app} set={found.data} remove={(id) => void act(evaluations.deleteCase(app, set, id))} />
          {(found.data.eval_cases?.length ?? 0) > 0 && (
            <RunForm
              app={app}
              set={set}
              ended={(id) => void reload(queries, ["eval-results", app, set]).then(() => open(id))}
            />
          )}
        </section>
      )}
      {past.data !== undefined && past.data.length > 1 && <History results={past.data} shown={shown?.evalSetResultId} open={open} />}
      {shown !== undefined && <ResultView app={app} result={shown} />}
    </>
  );
}

function cases(set: EvalSet): string {
  const count = set.eval_cases?.length ?? 0;
  return count === 1 ? "1 case" : `${count} cases`;
}

function CaseTable({ app, set, remove }: { app: string; set: EvalSet; remove: (id: string) => void }) {
  if ((set.eval_cases?.length ?? 0) === 0) return <p className="soft">No cases yet: add a session that went well.</p>;
  return (
    <ul className="plain eval-cases">
      {set.eval_cases?.map((one) => {
        const turns = one.conversation ?? [];
        const first = turns[0] === undefined ? one.conversationScenario?.startingPrompt : evaluations.textOf(turns[0].userContent);
        return (
          <li key={one.evalId} className="row">
            <span className="mono cut">{one.evalId}</span>
            <span className="spread cut">{first}</span>
            {one.source != null && (
              <Link
                to="/apps/$app/sessions/$session"
                params={{ app, session: one.source.sessionId }}
                search={one.source.userId === DEFAULT_USER ? {} : { user: one.source.userId }}
                title={one.source.feedback?.map((given) => given.comment ?? `${given.name}: ${given.score}`).join("\n")}
              >
                Feedback
              </Link>
            )}
            <span className="soft">{turns.length === 0 ? "scenario" : turns.length === 1 ? "1 turn" : `${turns.length} turns`}</span>
            <button className="button quiet small" type="button" aria-label={`Delete ${one.evalId}`} onClick={() => remove(one.evalId)}>
              <Trash2 size={14} aria-hidden="true" />
            </button>
          </li>
        );
      })}
    </ul>
  );
}

function AddSession({ app, add }: { app: string; add: (user: string, session: string) => Promise<void> }) {
  const user = chosenUser();
  const found = useQuery({ queryKey: ["sessions to evaluate", app, user], queryFn: () => client.listSessions(app, user, { limit: 50 }) });
  return (
    <select
      className="select eval-add"
      aria-label="Add a session"
      value=""
      onChange={(event) => void add(user, event.target.value)}
      disabled={(found.data?.sessions.length ?? 0) === 0}
    >
      <option value="">Add a session…</option>
      {found.data?.sessions.map((session) => (
        <option key={session.id} value={session.id}>
          {titleOf(session)}
        </option>
      ))}
    </select>
  );
}

function RunForm({ app, set, ended }: { app: string; set: string; ended: (id: string) => void }) {
  const infos = useQuery({ queryKey: ["metrics", app], queryFn: () => evaluations.listMetrics(app) });
  const [wanted, setWanted] = useState<readonly Wanted[]>(DEFAULTS);
  const [progress, setProgress] = useState<readonly Progress[] | null>(null);
  const [error, setError] = useState<unknown>(null);
  const running = useRef<AbortController | null>(null);
  useEffect(() => () => running.current?.abort(), []);
  async function run() {
    const controller = new AbortController();
    running.current = controller;
    setProgress([]);
    setError(null);
    try {
      const id = await evaluations.run(app, set, wanted, (one) => setProgress((now) => [...(now ?? []), one]), controller.signal);
      ended(id);
    } catch (failure) {
      if (!controller.signal.aborted) setError(failure);
    } finally {
      setProgress(null);
    }
  }
  const last = progress?.at(-1);
  const rest = infos.data?.filter((info) => info.requiresThreshold !== false && !wanted.some((one) => one.metricName === info.metricName));
  return (
    <div className="row eval-run">
      {wanted.map((one, index) => (
        <label key={one.metricName} className="chip">
          {one.metricName}
          <input
            className="input eval-threshold"
            type="number"
            step="0.05"
            aria-label={`Least ${one.metricName}`}
            value={one.threshold}
            onChange={(event) => setWanted(wanted.with(index, { ...one, threshold: Number(event.target.value) }))}
          />
          <button
            className="button quiet small"
            type="button"
            aria-label={`Remove ${one.metricName}`}
            onClick={() => setWanted(wanted.filter((other) => other !== one))}
          >
            ×
          </button>
        </label>
      ))}
      <select
        className="select eval-add"
        aria-label="Add a metric"
        value=""
        onChange={(event) => setWanted([...wanted, { metricName: event.target.value, threshold: 0.8 }])}
      >
        <option value="">Add a metric…</option>
        {rest?.map(({ metricName, description }) => (
          <option key={metricName} value={metricName} title={description}>
            {metricName}
          </option>
        ))}
      </select>
      <span className="spread" />
      {progress === null ? (
        <button className="button primary" type="button" onClick={() => void run()}>
          <Play size={14} aria-hidden="true" /> Run
        </button>
      ) : (
        <>
          <progress aria-label="Progress" max={last?.total ?? 1} value={last?.finished ?? 0} />
          <span className="soft">{last === undefined ? "Starting" : `${last.finished} of ${last.total}`}</span>
          <button className="button" type="button" onClick={() => running.current?.abort()}>
            <Square size={14} aria-hidden="true" /> Stop
          </button>
        </>
      )}
      {error !== null && <ErrorLine error={error} />}
    </div>
  );
}

/** A bar for each result, as high as its pass rate. */
function History(props: { results: readonly EvalSetResult[]; shown: string | undefined; open: (id: string) => void }) {
  return (
    <section className="eval-part" aria-label="History">
      <h2>History</h2>
      <div className="eval-history">
        {props.results.map((one) => {
          const { passed, total } = evaluations.passed(one.evalCaseResults ?? []);
          const share = total === 0 ? 0 : passed / total;
          const at = new Date((one.creationTimestamp ?? 0) * 1000).toLocaleString();
          return (
            <button
              key={one.evalSetResultId}
              type="button"
              aria-label={`${passed} of ${total} passed, ${at}`}
              title={`${passed} of ${total} passed, ${at}`}
              aria-pressed={one.evalSetResultId === props.shown}
              onClick={() => props.open(one.evalSetResultId)}
            >
              <span style={{ height: `${Math.max(share * 100, 3)}%` }} />
            </button>
          );
        })}
      </div>
    </section>
  );
}

function ResultView({ app, result }: { app: string; result: EvalSetResult }) {
  const { passed, total } = evaluations.passed(result.evalCaseResults ?? []);
  return (
    <section className="eval-part" aria-label="Result">
      <h2>
        {passed} of {total} passed{" "}
        <span className="soft">
          {result.evalSetVersion != null && `version ${result.evalSetVersion}, `}
          <Time at={result.creationTimestamp ?? 0} isRelative />
        </span>
      </h2>
      {result.evalCaseResults?.map((one) => (
        <CaseResult key={`${one.evalId} ${one.sessionId}`} app={app} result={one} />
      ))}
    </section>
  );
}

const VERDICTS = {
  [PASSED]: { icon: CircleCheck, tone: "ok", name: "Passed" },
  [FAILED]: { icon: TriangleAlert, tone: "bad", name: "Failed" },
} as const;
const NO_VERDICT = { icon: CircleDashed, tone: "idle", name: "Not evaluated" } as const;

function CaseResult({ app, result }: { app: string; result: EvalCaseResult }) {
  const status = result.finalEvalStatus;
  const { icon: Icon, tone, name } = status === PASSED || status === FAILED ? VERDICTS[status] : NO_VERDICT;
  const scores = result.overallEvalMetricResults?.filter(({ threshold }) => threshold != null) ?? [];
  return (
    <details className="eval-result" open={status === FAILED}>
      <summary className="row">
        <span className={`status ${tone}`}>
          <Icon size={14} aria-hidden="true" />
          {name}
        </span>
        <b className="cut">{result.evalId}</b>
        <span className="spread" />
        {scores.map((one) => (
          <span key={one.metricName} className={one.evalStatus === FAILED ? "bad-score" : "soft"}>
            {one.metricName} {one.score == null ? "–" : one.score.toFixed(2)}
          </span>
        ))}
      </summary>
      {result.error != null && <p className="wrapped">{result.error}</p>}
      {result.evalMetricResultPerInvocation?.map((turn, index) => (
        <TurnView key={index} actual={turn.actualInvocation} expected={turn.expectedInvocation ?? null} />
      ))}
      {result.isOffline === true ? (
        <p className="soft">It ran with recorded results of tools, in a session that isn't kept.</p>
      ) : (
        <Link to="/apps/$app/sessions/$session" params={{ app, session: result.sessionId }} search={{ user: result.userId }}>
          Open its session
        </Link>
      )}
    </details>
  );
}

function TurnView({ actual, expected }: { actual: Invocation; expected: Invocation | null }) {
  return (
    <div className="eval-turn">
      <p className="wrapped soft">{evaluations.textOf(actual.userContent)}</p>
      <Beside title="Calls" actual={evaluations.callsOf(actual)} expected={expected && evaluations.callsOf(expected)} />
      <Beside title="Answer" actual={evaluations.textOf(actual.finalResponse)} expected={expected && evaluations.textOf(expected.finalResponse)} />
    </div>
  );
}

/** Expected and actual texts, with the words marked that differ. */
function Beside({ title, actual, expected }: { title: string; actual: string; expected: string | null }) {
  if (actual === "" && (expected === null || expected === "")) return null;
  if (expected === null || expected === actual) {
    return (
      <dl className="eval-beside">
        <dt>{title}</dt>
        <dd className="wrapped">{actual}</dd>
      </dl>
    );
  }
  return (
    <dl className="eval-beside">
      <dt>{title}, expected</dt>
      <dd className="wrapped words">
        <Marked before={actual} after={expected} />
      </dd>
      <dt>{title}</dt>
      <dd className="wrapped words">
        <Marked before={expected} after={actual} />
      </dd>
    </dl>
  );
}

function Marked({ before, after }: { before: string; after: string }) {
  if (after === "") return <span className="soft">none</span>;
  return wordDifferences(before, after).map(({ kind, text }, at) =>
    kind === "removed" ? null : kind === "added" ? <mark key={at}>{text}</mark> : <span key={at}>{text}</span>,
  );
}
