import { useVirtualizer } from "@tanstack/react-virtual";
import { ArrowDown } from "lucide-react";
import { type ReactNode, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { AgentName } from "../components/AgentName";
import { Cost } from "../components/Cost";
import { Status } from "../components/Status";
import { Duration, Moment, Time } from "../components/Time";
import { WakeUpText } from "../components/Waiting";
import type { Item, RunGroup, Timeline } from "../timeline/model";
import { useChat } from "./context";
import { ErrorItemView, ItemView } from "./ItemView";

type Row =
  | { readonly kind: "run"; readonly key: string; readonly run: RunGroup; readonly isNewest: boolean }
  | { readonly kind: "item"; readonly key: string; readonly item: Item; readonly showsAuthor: boolean; readonly isRewound: boolean }
  | { readonly kind: "failure"; readonly key: string; readonly run: RunGroup };

const NEAR_END_PX = 48;
const WITH_AUTHOR = new Set<Item["kind"]>(["text", "thought", "calls", "code"]);

/** Virtualised rows. Follows the end while the reader is there; else a button says that there is more. */
export function TimelineView(props: { timeline: Timeline; chosen: string | null; cursor: string | null; children: ReactNode }) {
  const { timeline, chosen, cursor, children } = props;
  const rows = useMemo(() => rowsOf(timeline), [timeline]);
  const scroller = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const lastTop = useRef(0);
  const [hasNew, setNew] = useState(false);
  const virtualizer = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: (index) => (rows[index]?.kind === "run" ? 36 : 64),
    getItemKey: (index) => rows[index]?.key ?? index,
    overscan: 8,
  });
  const total = virtualizer.getTotalSize();
  const newest = timeline.lastSeq;

  function toEnd() {
    const element = scroller.current;
    if (element !== null) element.scrollTop = element.scrollHeight;
    setNew(false);
  }

  useLayoutEffect(() => {
    if (isAtEnd.current) toEnd();
  }, [rows, total, children]);

  useEffect(() => {
    if (!isAtEnd.current && newest > 0) setNew(true);
  }, [newest]);

  function onScroll() {
    const element = scroller.current;
    if (element === null) return;
    const isNearEnd = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END_PX;
    // Images that are loaded move the end away; only a reader scrolls up.
    if (isNearEnd) isAtEnd.current = true;
    else if (element.scrollTop < lastTop.current) isAtEnd.current = false;
    lastTop.current = element.scrollTop;
    if (isAtEnd.current) setNew(false);
  }

  const target = cursor ?? chosen;
  useEffect(() => {
    if (target === null) return;
    const index = rows.findIndex((row) => row.kind === "item" && row.item.eventIds.includes(target));
    if (index < 0) return;
    isAtEnd.current = false;
    virtualizer.scrollToIndex(index, { align: "auto" });
    // Not on each change of the rows: the reader may have scrolled away since.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [target, rows.length > 0]);

  return (
    <div className="timeline-box">
      <div className="timeline" ref={scroller} onScroll={onScroll} role="log" aria-label="Timeline" tabIndex={0}>
        <div className="timeline-rows" style={{ height: total }}>
          {virtualizer.getVirtualItems().map((virtual) => {
            const row = rows[virtual.index];
            if (row === undefined) return null;
            return (
              <div
                key={virtual.key}
                ref={virtualizer.measureElement}
                data-index={virtual.index}
                className="timeline-row"
                style={{ transform: `translateY(${virtual.start}px)` }}
              >
                <RowView row={row} chosen={chosen} cursor={cursor} />
              </div>
            );
          })}
        </div>
        <div className="timeline-tail">{children}</div>
      </div>
      {hasNew && (
        <button
          type="button"
          className="button pill"
          onClick={() => {
            isAtEnd.current = true;
            toEnd();
          }}
        >
          <ArrowDown size={14} aria-hidden="true" />
          New events
        </button>
      )}
    </div>
  );
}

function RowView({ row, chosen, cursor }: { row: Row; chosen: string | null; cursor: string | null }) {
  if (row.kind === "run") return <RunHeader run={row.run} isNewest={row.isNewest} />;
  if (row.kind === "failure") {
    const last = row.run.items.at(-1)?.eventIds[0] ?? "";
    return <ErrorItemView code={row.run.error?.code ?? ""} message={row.run.error?.message ?? ""} eventId={last} />;
  }
  const ids = row.item.eventIds;
  const marks = `${row.isRewound ? " rewound" : ""}${chosen !== null && ids.includes(chosen) ? " chosen" : ""}${cursor !== null && ids.includes(cursor) ? " cursor" : ""}`;
  return (
    <div className={`item${marks}`} data-event={ids[0]}>
      {row.showsAuthor && <AgentName name={row.item.author} />}
      <ItemView item={row.item} />
    </div>
  );
}

/** isNewest: no later run has begun in the session. */
function RunHeader({ run, isNewest }: { run: RunGroup; isNewest: boolean }) {
  const { place, cancel, retry } = useChat();
  const [isRetrying, setRetrying] = useState(false);
  const isRetryable = (run.status === "failed" || run.status === "cancelled") && run.attempts > 0;
  const wakeUps = Object.entries(run.wakeUps);
  return (
    <header className="run-head">
      <Status status={run.status} />
      <Time at={run.startedAt} />
      {run.startAt === null && <Duration from={run.startedAt} to={run.endedAt} />}
      {run.tokens > 0 && <span>{run.tokens.toLocaleString()} tokens</span>}
      {run.tokens > 0 && <Cost app={place.app} runId={run.id} endedAt={run.endedAt} />}
      {run.models.length > 0 && <span className="run-model">{run.models.join(", ")}</span>}
      {run.isResumed && <span title={`${run.attempts} attempts`}>resumed</span>}
      {run.retries > 0 && <span>retried{run.retries > 1 && ` ${run.retries} times`}</span>}
      {run.isRewound && <span>rewound</span>}
      {isRetryable && (
        <button
          type="button"
          className="link"
          disabled={isRetrying}
          onClick={() => {
            setRetrying(true);
            void retry(run.id, !isNewest).finally(() => setRetrying(false));
          }}
        >
          {isNewest ? "Retry" : "Retry in a fork"}
        </button>
      )}
      {wakeUps.map(([callId, wakeUp]) => (
        <span key={callId}>
          <WakeUpText wakeUp={wakeUp} />
        </span>
      ))}
      {run.steeredInto !== null && <span>is read before the active run's next model call</span>}
      {run.startAt !== null && (
        <span>
          starts at <Moment at={run.startAt} />
        </span>
      )}
      {(wakeUps.length > 0 || run.steeredInto !== null || run.startAt !== null) && (
        <button type="button" className="link" onClick={() => void cancel(run.id)}>
          Cancel
        </button>
      )}
    </header>
  );
}

function rowsOf(timeline: Timeline): readonly Row[] {
  const rows: Row[] = [];
  const newest = timeline.runs.findLast((run) => !run.isPatch);
  for (const run of timeline.runs) {
    const { isRewound } = run;
    if (!run.isPatch) rows.push({ kind: "run", key: run.key, run, isNewest: run === newest && !isRewound });
    let author = "";
    for (const item of run.items) {
      const isShown = WITH_AUTHOR.has(item.kind) && item.author !== "user" && item.author !== author;
      if (WITH_AUTHOR.has(item.kind)) author = item.author;
      rows.push({ kind: "item", key: item.key, item, showsAuthor: isShown, isRewound });
    }
    if (run.error !== null && run.items.at(-1)?.kind !== "error") rows.push({ kind: "failure", key: `${run.key}:failure`, run });
  }
  return rows;
}
