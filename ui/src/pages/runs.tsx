import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import type { Run } from "greenroom-client";
import { X } from "lucide-react";
import { type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { DEFAULT_USER, SERVER, call, client } from "../api";
import { Empty } from "../components/Empty";
import { ErrorLine } from "../components/ErrorLine";
import { Status } from "../components/Status";
import { Duration, Time } from "../components/Time";
import { Waiting } from "../components/Waiting";
import { useMedia } from "../media";
import { reload } from "../reload";
import { between } from "../statistics/format";
import { AppFilter, ChoiceFilter, FilterForm, NothingMatches } from "./FilterForm";
import { AGES, type Age, NO_FILTERS, type RunFilters, STATUSES, type Search, hasEnded, isFiltered, parseFilters, parseScore, toQuery, toSearch } from "./filters";
import { TextFilter } from "./TextFilter";
import { ChangedRuns } from "./ChangedRuns";
import { PAGE, useRuns } from "./useRuns";
import "./pages.css";

type RunPage = { readonly runs: readonly Run[]; readonly nextPageToken: string | null };

const ROW_PX = 32;
const NARROW_ROW_PX = 56;
const RATE_MS = 30_000; // failures leave the rate as they grow old
const ACTIVE: RunFilters = { ...NO_FILTERS, statuses: ["queued", "running", "waiting"] };
const NARROW = "(max-width: 719px)";
const NO_RUNS: readonly Run[] = [];

function fetchRuns(filters: RunFilters, token: string | null): Promise<RunPage> {
  return call<RunPage>("GET", `/runs?${toQuery(filters, PAGE, token, Date.now() / 1000)}`);
}

export function isActive(run: Run): boolean {
  return run.status === "queued" || run.status === "running" || run.status === "waiting";
}

/** Runs over all sessions, newest first, kept up to date. */
export function RunsPage() {
  const search = useSearch({ strict: false }) as Search;
  const filters = parseFilters(search);
  const navigate = useNavigate();
  const queries = useQueryClient();
  const key = JSON.stringify(toSearch(filters));
  const watched = useRuns(filters);
  const active = useRuns(ACTIVE, (changed) => {
    if (changed.some((run) => run.status === "failed")) void reload(queries, ["runs", "failed"]);
  });
  const failed = useQuery({
    queryKey: ["runs", "failed"],
    queryFn: () => fetchRuns({ ...NO_FILTERS, statuses: ["failed"], age: "15m" }, null),
    refetchInterval: RATE_MS,
  });
  const isOlderWanted = typeof watched.next === "string";
  const older = useInfiniteQuery({
    queryKey: ["runs", "older", key, watched.next],
    queryFn: ({ pageParam }) => fetchRuns(filters, pageParam),
    initialPageParam: watched.next ?? null,
    getNextPageParam: (page) => page.nextPageToken,
    enabled: false,
  });
  const runs = useMemo(() => {
    const known = new Set(watched.runs.map((run) => run.id));
    const others = older.data?.pages.flatMap((page) => page.runs.filter((run) => !known.has(run.id))) ?? [];
    return [...watched.runs, ...others].filter((run) => hasEnded(run, parseFilters(search)));
  }, [watched.runs, older.data, search]);
  const hasMore = older.data === undefined ? isOlderWanted : older.hasNextPage;
  const error = watched.error ?? older.error;

  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set());
  const chosen = runs.filter((run) => picked.has(run.id));
  const set = (change: Partial<RunFilters>) =>
    void navigate({ to: "/runs", search: toSearch({ ...filters, ...change }), replace: true });
  return (
    <main className="page page-runs">
      <h1 className="hidden">Runs</h1>
      <Summary active={active.runs} failed={failed.data?.runs ?? NO_RUNS} />
      <ChangedRuns active={active.runs} />
      <Filters filters={filters} set={set} />
      <Bulk chosen={chosen} clear={() => setPicked(new Set())} />
      {error !== null && <ErrorLine error={error} />}
      {watched.next === undefined && error === null && <p className="soft">Loading…</p>}
      {watched.next !== undefined &&
        (runs.length === 0 && !hasMore ? (
          <NoRuns filters={filters} clear={() => set(NO_FILTERS)} />
        ) : (
          <Table
            runs={runs}
            picked={picked}
            pick={setPicked}
            more={hasMore && !older.isFetching ? () => void (older.data === undefined ? older.refetch() : older.fetchNextPage()) : null}
          />
        ))}
    </main>
  );
}

/** Running, waiting and failed runs of all apps, without the filters. */
function Summary({ active, failed }: { active: readonly Run[]; failed: readonly Run[] }) {
  const of = (status: Run["status"]) => active.filter((run) => run.status === status).length;
  const since = Date.now() / 1000 - 300;
  const rate = failed.filter((run) => (run.endedAt ?? 0) >= since).length / 5;
  const plus = active.length >= PAGE ? "+" : "";
  return (
    <dl className="figures" aria-label="Now">
      <div>
        <dt>Queued</dt>
        <dd>{of("queued") + plus}</dd>
      </div>
      <div>
        <dt>Running</dt>
        <dd>{of("running") + plus}</dd>
      </div>
      <div>
        <dt>Waiting</dt>
        <dd>{of("waiting") + plus}</dd>
      </div>
      <div title="Of the last five minutes">
        <dt>Failures per minute</dt>
        <dd className={rate > 0 ? "bad" : undefined}>{rate.toFixed(1)}</dd>
      </div>
    </dl>
  );
}

function Filters({ filters, set }: { filters: RunFilters; set: (change: Partial<RunFilters>) => void }) {
  return (
    <FilterForm clear={isFiltered(filters) ? () => set(NO_FILTERS) : null}>
      <div className="statuses" role="group" aria-label="Status">
        {STATUSES.map((status) => {
          const isOn = filters.statuses.includes(status);
          const next = isOn ? filters.statuses.filter((one) => one !== status) : [...filters.statuses, status];
          return (
            <button key={status} type="button" className="toggle" aria-pressed={isOn} onClick={() => set({ statuses: next })}>
              <Status status={status} />
            </button>
          );
        })}
      </div>
      <AppFilter value={filters.app} set={(app) => set({ app })} />
      <TextFilter key={`u${filters.user}`} label="User" value={filters.user} set={(user) => set({ user })} />
      <TextFilter key={`s${filters.session}`} label="Session" value={filters.session} set={(session) => set({ session })} />
      <ChoiceFilter
        label="Started"
        all="Any time"
        value={filters.age ?? ""}
        values={Object.keys(AGES) as Age[]}
        nameOf={(age) => `Last ${age}`}
        set={(age) => set({ age: age === "" ? null : age })}
      />
      {filters.app !== "" && (
        <TextFilter key={`f${filters.feedback}`} label="Feedback" value={filters.feedback} set={(feedback) => set({ feedback })} />
      )}
      {filters.feedback !== "" && (
        <>
          <ScoreFilter key={`l${filters.least}`} label="Least score" value={filters.least} set={(least) => set({ least })} />
          <ScoreFilter
            key={`g${filters.greatest}`}
            label="Greatest score"
            value={filters.greatest}
            set={(greatest) => set({ greatest })}
          />
        </>
      )}
      {filters.ended !== null && (
        <Chip clear={() => set({ ended: null })}>Ended {between(filters.ended.from, filters.ended.to)}</Chip>
      )}
      {filters.version !== "" && <Chip clear={() => set({ version: "" })}>{filters.version}</Chip>}
      {filters.error !== "" && <Chip clear={() => set({ error: "" })}>{filters.error}</Chip>}
    </FilterForm>
  );
}

function ScoreFilter(props: { label: string; value: number | null; set: (value: number | null) => void }) {
  const { label, value, set } = props;
  return <TextFilter label={label} value={value === null ? "" : String(value)} set={(text) => set(parseScore(text))} />;
}

/** A filter that other pages lead to. */
function Chip({ clear, children }: { clear: () => void; children: ReactNode }) {
  return (
    <button type="button" className="button" title="Remove this filter" onClick={clear}>
      {children}
      <X size={14} aria-hidden="true" />
    </button>
  );
}

/** Actions on the chosen runs; what failed is counted. */
function Bulk({ chosen, clear }: { chosen: readonly Run[]; clear: () => void }) {
  const queries = useQueryClient();
  const act = useMutation({
    mutationFn: async ({ runs, one }: { runs: readonly Run[]; one: (run: Run) => Promise<unknown> }) => {
      const results = await Promise.allSettled(runs.map(one));
      const errors = results.flatMap((result) => (result.status === "rejected" ? [result.reason as unknown] : []));
      const [first] = errors;
      if (first !== undefined) {
        const reason = first instanceof Error ? first.message : String(first);
        throw new Error(errors.length === 1 ? reason : `${errors.length} of ${runs.length} failed: ${reason}`);
      }
    },
    onSuccess: clear,
    onSettled: () => reload(queries, ["runs"]),
  });
  if (chosen.length === 0) return act.isError ? <ErrorLine error={act.error} /> : null;
  const cancellable = chosen.filter(isActive);
  const retryable = chosen.filter((run) => run.status === "failed" || run.status === "cancelled");
  const [left, right] = chosen;
  return (
    <div className="bulk" role="group" aria-label="Chosen runs">
      <span>{chosen.length} chosen</span>
      <button
        type="button"
        className="button danger"
        disabled={cancellable.length === 0 || act.isPending}
        onClick={() => act.mutate({ runs: cancellable, one: cancelRun })}
      >
        Cancel {cancellable.length}
      </button>
      <button
        type="button"
        className="button"
        disabled={retryable.length === 0 || act.isPending}
        onClick={() => act.mutate({ runs: retryable, one: (run) => client.retryRun(run.id) })}
      >
        Retry {retryable.length}
      </button>
      {chosen.length === 2 && left !== undefined && right !== undefined && (
        <Link className="button link" to="/compare" search={{ left: right.id, right: left.id }}>
          Compare
        </Link>
      )}
      <button type="button" className="button quiet" onClick={clear}>
        Choose none
      </button>
      {act.isError && <ErrorLine error={act.error} />}
    </div>
  );
}

function cancelRun(run: Run): Promise<unknown> {
  return call("POST", `/runs/${encodeURIComponent(run.id)}/cancel`);
}

function NoRuns({ filters, clear }: { filters: RunFilters; clear: () => void }) {
  if (isFiltered(filters)) return <NothingMatches what="run" clear={clear} />;
  return (
    <Empty title="No runs yet">
      <p>Each message to an agent starts a run. Runs of all clients are listed, ended ones too.</p>
      <p>
        Send one in the <Link to="/">chat</Link>, or with curl:
      </p>
      <pre className="wrapped example">{`curl -N ${SERVER}/run_sse -H 'content-type: application/json' \\
  -d '{"appName": "my_app", "userId": "user", "sessionId": "s-1",
       "newMessage": {"role": "user", "parts": [{"text": "Hello"}]}}'`}</pre>
    </Empty>
  );
}

type TableProps = {
  readonly runs: readonly Run[];
  readonly picked: ReadonlySet<string>;
  readonly pick: (ids: ReadonlySet<string>) => void;
  /** Loads the next page; null while there is none. */
  readonly more: (() => void) | null;
};

const COLUMNS = ["Status", "App", "User", "Session", "Started", "Duration", "Attempts", "Tokens", "Details"];

function Table({ runs, picked, pick, more }: TableProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const isNarrow = useMedia(NARROW);
  const virtual = useVirtualizer({
    count: runs.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => (isNarrow ? NARROW_ROW_PX : ROW_PX),
    overscan: 12,
  });
  useEffect(() => {
    virtual.measure();
  }, [isNarrow, virtual]);
  const rows = virtual.getVirtualItems();
  const last = rows.at(-1)?.index ?? 0;
  useEffect(() => {
    if (more !== null && last >= runs.length - 50) more();
  }, [more, last, runs.length]);
  const isAll = picked.size >= runs.length;
  function toggle(id: string) {
    const next = new Set(picked);
    if (!next.delete(id)) next.add(id);
    pick(next);
  }
  return (
    <div className="runs" role="table" aria-label="Runs" aria-rowcount={more === null ? runs.length + 1 : -1}>
      <div role="rowgroup">
        <div className="run-row runs-head" role="row">
          <span role="columnheader">
            <input
              type="checkbox"
              aria-label="Choose all runs"
              checked={isAll}
              onChange={() => pick(isAll ? new Set() : new Set(runs.map((run) => run.id)))}
            />
          </span>
          {COLUMNS.map((name) => (
            <span key={name} role="columnheader" className={`run-${name.toLowerCase()}`}>
              {name}
            </span>
          ))}
        </div>
      </div>
      <div className="runs-rows" role="rowgroup" ref={scroller} tabIndex={0} aria-label="Rows">
        <div role="presentation" style={{ height: virtual.getTotalSize(), position: "relative" }}>
          {rows.map((item) => {
            const run = runs[item.index];
            if (run === undefined) return null;
            return (
              <RunRow
                key={run.id}
                run={run}
                index={item.index}
                top={item.start}
                isPicked={picked.has(run.id)}
                toggle={() => toggle(run.id)}
              />
            );
          })}
        </div>
      </div>
    </div>
  );
}

function RunRow(props: { run: Run; index: number; top: number; isPicked: boolean; toggle: () => void }) {
  const { run, index, top, isPicked, toggle } = props;
  const from = run.startedAt ?? run.createdAt;
  return (
    <div
      className={isPicked ? "run-row picked" : "run-row"}
      role="row"
      aria-rowindex={index + 2}
      aria-selected={isPicked}
      style={{ transform: `translateY(${top}px)` }}
    >
      <span role="cell">
        <input type="checkbox" aria-label={`Choose run ${run.id}`} checked={isPicked} onChange={toggle} />
      </span>
      <span role="cell" className="run-status">
        <Status status={run.status} />
      </span>
      <span role="cell" className="run-app cut" title={run.appName}>
        {run.appName}
      </span>
      <span role="cell" className="run-user cut" title={run.userId}>
        {run.userId}
      </span>
      <span role="cell" className="run-session cut">
        <Link
          to="/apps/$app/sessions/$session"
          params={{ app: run.appName, session: run.sessionId }}
          search={run.userId === DEFAULT_USER ? {} : { user: run.userId }}
          title={run.sessionId}
        >
          {run.sessionId}
        </Link>
      </span>
      <span role="cell" className="run-started">
        <Time at={run.createdAt} isRelative />
      </span>
      <span role="cell" className="run-duration">
        {run.status === "queued" ? "–" : <Duration from={from} to={run.status === "running" ? null : (run.endedAt ?? from)} />}
      </span>
      <span role="cell" className="run-attempts">
        {run.attempts ?? 0}
      </span>
      <span role="cell" className="run-tokens">
        {run.usage?.totalTokenCount?.toLocaleString("en") ?? "–"}
      </span>
      <span role="cell" className="run-details cut" title={run.error?.message}>
        {run.error != null && (
          <>
            <code>{run.error.code}</code> {run.error.message}
          </>
        )}
        <Waiting run={run} />
      </span>
    </div>
  );
}
