import { type KeyboardEvent, useEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useIsDark, useMedia } from "../media";
import type { Panel, Series } from "./figures";
import { interval } from "./format";
import { HEIGHT, NO_MOUSE, dataOf, optionsOf, seriesAt } from "./plotting";
import type { Period } from "./range";

export type PlotProps = {
  readonly panel: Panel;
  readonly period: Period;
  readonly zoom: (from: number, to: number) => void;
  /** Shows the runs behind the step that starts at a time: of a series, or of all. */
  readonly open: (time: number, series: Series | null) => void;
};

/**
 * Values over time, with a legend that shows those under the cursor. Dragging zooms, a click opens what is behind a
 * step; with the keyboard, the arrow keys move the cursor and Enter opens.
 */
export function Plot(props: PlotProps) {
  const { panel, period, open } = props;
  const { title, times, series, isStacked, format, hasRuns } = panel;
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const isDark = useIsDark();
  const hasNoMouse = useMedia(NO_MOUSE);
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const [cursor, setCursor] = useState<number | null>(null);

  const drawn = useMemo(() => series.map((one) => ({ ...one, isHidden: hidden.has(one.name) })), [series, hidden]);
  const data = useMemo(() => dataOf(times, period.step, drawn, isStacked), [times, period.step, drawn, isStacked]);
  const current = useRef({ ...props, data, drawn });
  current.current = { ...props, data, drawn };

  // A plot is made anew when it looks different, and gets new values otherwise.
  const look = JSON.stringify([isStacked, isDark, period.step, drawn.map(({ name, color, dash, isHidden }) => [name, color, dash, isHidden])]);
  useEffect(() => {
    const element = holder.current;
    if (element === null) return undefined;
    const made = new uPlot(optionsOf(element, current, setCursor), current.current.data, element);
    plot.current = made;
    made.over.addEventListener("click", () => {
      const { panel: clicked, drawn: all, open: openRuns } = current.current;
      const time = clicked.times[made.cursor.idx ?? -1];
      if (time !== undefined && clicked.hasRuns && !matchMedia(NO_MOUSE).matches) openRuns(time, seriesAt(made, all, clicked.isStacked));
    });
    const observer = new ResizeObserver(() => {
      const width = element.clientWidth;
      if (width !== made.width) made.setSize({ width, height: HEIGHT }); // which draws all again
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [look]);
  useEffect(() => {
    if (plot.current !== null && plot.current.data !== data) plot.current.setData(data);
  }, [data]);

  function toggle(name: string) {
    const next = new Set(hidden);
    if (!next.delete(name)) next.add(name);
    setHidden(next);
  }
  function moveTo(index: number) {
    const x = data[0][index];
    if (x !== undefined) plot.current?.setCursor({ left: plot.current.valToPos(x, "x"), top: 0 });
  }
  function onKeyDown(event: KeyboardEvent) {
    const last = times.length - 1;
    const at = cursor ?? last + 1;
    const next = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - 10, PageDown: at + 10, Home: 0, End: last }[event.key];
    if (next !== undefined) {
      event.preventDefault();
      moveTo(Math.min(Math.max(next, 0), last));
    } else if (event.key === "Enter" && time !== undefined && hasRuns) {
      open(time, null);
    }
  }

  const time = cursor === null ? undefined : times[cursor];
  const shownTime = time === undefined ? "Whole range" : interval(time, period.step);
  const values = series.map((one) => `${one.name} ${valueText(one, cursor, format)}`).join(", ");
  return (
    <div className="plot">
      <p className="plot-time soft">
        {shownTime}
        {time !== undefined && hasRuns && hasNoMouse && (
          <button type="button" className="plot-open" onClick={() => open(time, null)}>
            Open runs
          </button>
        )}
      </p>
      <ul className="plot-legend">
        {series.map((one, index) => (
          <li
            key={one.name}
            onMouseEnter={() => plot.current?.setSeries(series.length - index, { focus: true })}
            onMouseLeave={() => plot.current?.setSeries(null, { focus: true })}
          >
            <button type="button" aria-pressed={!hidden.has(one.name)} title={`Show or hide ${one.name}`} onClick={() => toggle(one.name)}>
              <Mark series={one} />
              <span className="cut">{one.name}</span>
            </button>{" "}
            <span className="plot-value">{valueText(one, cursor, format)}</span>
          </li>
        ))}
      </ul>
      <div
        ref={holder}
        className={hasRuns ? "plot-canvas opens" : "plot-canvas"}
        role="slider"
        tabIndex={0}
        aria-label={`Time in ${title}`}
        aria-valuemin={period.start}
        aria-valuemax={period.end}
        aria-valuenow={time ?? period.end}
        aria-valuetext={`${shownTime}: ${values}`}
        onKeyDown={onKeyDown}
        onBlur={() => plot.current?.setCursor({ left: -10, top: -10 })}
      />
    </div>
  );
}

function Mark({ series: { color, dash } }: { series: Series }) {
  return (
    <svg width="16" height="10" aria-hidden="true">
      <line x1="0" x2="16" y1="5" y2="5" strokeWidth="3" strokeDasharray={dash?.join(" ")} style={{ stroke: `var(${color})` }} />
    </svg>
  );
}

function valueText(series: Series, cursor: number | null, format: (value: number) => string): string {
  const value = cursor === null ? series.total : (series.values[cursor] ?? null);
  return value === null ? "–" : format(value);
}
