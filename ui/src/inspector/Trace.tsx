import { useVirtualizer } from "@tanstack/react-virtual";
import { ChevronDown, ChevronRight, Maximize2, ZoomIn, ZoomOut } from "lucide-react";
import { type KeyboardEvent, type WheelEvent, useEffect, useMemo, useRef, useState } from "react";
import { Empty } from "../components/Empty";
import { ErrorLine } from "../components/ErrorLine";
import { JsonView } from "../components/JsonView";
import { duration } from "../components/Time";
import type { InspectorProps } from "./props";
import { useSpans } from "./queries";
import { type SpanRow, type TimeWindow, bar, layOut, pan, spansOfRun, wholeTime, zoom } from "./spans";

const ROW_PX = 26;

/** The spans of the event's run, or of the whole session, as a waterfall. A span of an event selects it. */
export function Trace({ place, timeline, chosen, choose }: InspectorProps) {
  const spans = useSpans(place, timeline.lastSeq);
  const [isWhole, setWhole] = useState(false);
  const { id, invocationId } = chosen.event;
  const shown = useMemo(
    () => (isWhole ? (spans.data ?? []) : spansOfRun(spans.data ?? [], id, invocationId)),
    [spans.data, isWhole, id, invocationId],
  );
  if (spans.isPending) return <p className="soft panel">Loading…</p>;
  if (spans.isError) return <ErrorLine error={spans.error} />;
  return (
    <div className="trace">
      <label className="trace-scope">
        <input type="checkbox" checked={isWhole} onChange={(event) => setWhole(event.target.checked)} /> All runs of the session
      </label>
      {shown.length === 0 ? (
        <Empty title="No trace of this run is stored">
          <p>The server keeps the newest traces. Those of a run appear when its first span has ended.</p>
        </Empty>
      ) : (
        <Waterfall
          key={`${isWhole}${invocationId}`}
          spans={shown}
          chosen={id}
          choose={(eventId) => timeline.byId.has(eventId) && choose(eventId)}
        />
      )}
    </div>
  );
}

type WaterfallProps = {
  readonly spans: Parameters<typeof layOut>[0];
  readonly chosen: string;
  readonly choose: (eventId: string) => void;
};

/** Rows of spans; only those in view are in the page. Ctrl+wheel or + and - zoom the time, arrow keys move in it. */
export function Waterfall({ spans, chosen, choose }: WaterfallProps) {
  const [folded, setFolded] = useState<ReadonlySet<string>>(new Set());
  const rows = useMemo(() => layOut(spans, folded), [spans, folded]);
  const whole = useMemo(() => wholeTime(layOut(spans)), [spans]);
  const [zoomed, setZoomed] = useState<TimeWindow | null>(null);
  const shown = zoomed ?? whole;
  const first = rows.find((row) => row.eventId === chosen);
  const [open, setOpen] = useState<string | null>(null);
  const openRow = rows.find((row) => row.span.span_id === open) ?? first;
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    overscan: 8,
  });
  const firstAt = first === undefined ? -1 : rows.indexOf(first);
  useEffect(() => {
    if (firstAt >= 0) virtual.scrollToIndex(firstAt, { align: "auto" });
    setOpen(null);
  }, [chosen, firstAt, virtual]);

  function zoomBy(factor: number, at = 0.5) {
    setZoomed(zoom(shown, whole, factor, at));
  }
  function onWheel(event: WheelEvent<HTMLDivElement>) {
    if (!event.ctrlKey && !event.metaKey && event.deltaX === 0) return;
    const axis = event.currentTarget.querySelector(".trace-axis")?.getBoundingClientRect();
    if (axis === undefined) return;
    if (event.ctrlKey || event.metaKey) {
      const at = Math.min(Math.max((event.clientX - axis.left) / axis.width, 0), 1);
      zoomBy(Math.exp(-event.deltaY / 200), at);
    } else if (zoomed !== null) {
      setZoomed(pan(shown, whole, event.deltaX / axis.width));
    }
  }
  function onKeyDown(event: KeyboardEvent<HTMLDivElement>) {
    const act = {
      "+": () => zoomBy(1.5),
      "=": () => zoomBy(1.5),
      "-": () => zoomBy(1 / 1.5),
      "0": () => setZoomed(null),
      ArrowLeft: () => setZoomed(pan(shown, whole, -0.2)),
      ArrowRight: () => setZoomed(pan(shown, whole, 0.2)),
    }[event.key];
    if (act === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }
  function toggle(id: string) {
    const next = new Set(folded);
    if (!next.delete(id)) next.add(id);
    setFolded(next);
  }

  return (
    <>
      <div className="row trace-tools" onKeyDown={onKeyDown}>
        <span className="soft spread">
          {rows.length} spans · {duration((whole.to - whole.from) / 1000)}
        </span>
        <button type="button" className="button quiet small" onClick={() => zoomBy(2)} title="Zoom in (+)">
          <ZoomIn size={16} aria-hidden="true" />
          <span className="hidden">Zoom in</span>
        </button>
        <button type="button" className="button quiet small" onClick={() => zoomBy(0.5)} disabled={zoomed === null} title="Zoom out (-)">
          <ZoomOut size={16} aria-hidden="true" />
          <span className="hidden">Zoom out</span>
        </button>
        <button type="button" className="button quiet small" onClick={() => setZoomed(null)} disabled={zoomed === null} title="Whole time (0)">
          <Maximize2 size={16} aria-hidden="true" />
          <span className="hidden">Show the whole time</span>
        </button>
      </div>
      <div className="waterfall" onWheel={onWheel} onKeyDown={onKeyDown}>
        <div className="trace-row trace-header" aria-hidden="true">
          <span />
          <span className="trace-axis">
            <span>{duration(shown.from / 1000)}</span>
            <span>{duration((shown.from + shown.to) / 2000)}</span>
            <span>{duration(shown.to / 1000)}</span>
          </span>
        </div>
        <div className="waterfall-rows" ref={scroller}>
          <ul style={{ height: virtual.getTotalSize() }}>
            {virtual.getVirtualItems().map((item) => {
              const row = rows[item.index];
              if (row === undefined) return null;
              return (
                <Row
                  key={row.span.span_id}
                  row={row}
                  top={item.start}
                  shown={shown}
                  isChosen={row === openRow}
                  isFolded={folded.has(row.span.span_id)}
                  toggle={() => toggle(row.span.span_id)}
                  pick={() => {
                    setOpen(row.span.span_id);
                    if (row.eventId !== null && row.eventId !== chosen) choose(row.eventId);
                  }}
                />
              );
            })}
          </ul>
        </div>
      </div>
      {openRow !== undefined && (
        <section className="panel trace-details" aria-label="Chosen span">
          <h3>
            {openRow.span.name} <span className="soft">{duration((openRow.end - openRow.start) / 1000)}</span>
          </h3>
          <JsonView value={openRow.span.attributes} />
        </section>
      )}
    </>
  );
}

function Row(props: {
  row: SpanRow;
  top: number;
  shown: TimeWindow;
  isChosen: boolean;
  isFolded: boolean;
  toggle: () => void;
  pick: () => void;
}) {
  const { row, top, shown, isChosen, isFolded, toggle, pick } = props;
  const place = bar(row, shown);
  const Fold = isFolded ? ChevronRight : ChevronDown;
  const took = duration((row.end - row.start) / 1000);
  return (
    <li className={isChosen ? "trace-row chosen" : "trace-row"} style={{ transform: `translateY(${top}px)` }}>
      <span className="trace-name" style={{ paddingLeft: Math.min(row.depth, 12) * 12 }}>
        {row.children > 0 ? (
          <button type="button" className="trace-fold" onClick={toggle} aria-expanded={!isFolded}>
            <Fold size={14} aria-hidden="true" />
            <span className="hidden">Spans below {row.span.name}</span>
          </button>
        ) : (
          <span className="trace-fold" />
        )}
        <button type="button" className="trace-pick" onClick={pick} aria-current={isChosen} title={row.span.name}>
          {row.span.name}
          <span className="hidden">, {took}</span>
          {row.isError && <span className="hidden">, failed</span>}
        </button>
      </span>
      <button type="button" className="trace-track" onClick={pick} tabIndex={-1} aria-hidden="true" title={`${row.span.name}: ${took}`}>
        {place !== null && (
          <span
            className={`trace-bar ${kind(row)}`}
            style={{ left: `${place.left * 100}%`, width: `${place.width * 100}%` }}
          />
        )}
        <span className="trace-time">{took}</span>
      </button>
    </li>
  );
}

function kind(row: SpanRow): string {
  if (row.isError) return "failed";
  if (row.span.name.startsWith("call_llm") || row.span.name.startsWith("generate_content")) return "model";
  return row.span.name.startsWith("execute_tool") ? "tool" : "other";
}
