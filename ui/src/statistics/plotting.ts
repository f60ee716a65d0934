// A plot of uPlot: its data and its settings.
import uPlot from "uplot";
import type { Panel, Series } from "./figures";
import { axisTimes } from "./format";
import type { Period } from "./range";

export const HEIGHT = 160;
const AXIS_WIDTH = 58;
const DAY = 86_400;
/** There, a touch moves the cursor, which stays; a button opens what is behind it. */
export const NO_MOUSE = "(hover: none)";
/** A click at most this far from a line opens what is behind it, in pixels. */
const NEAR = 24;
/** Distances of the labels of days. */
const DAYS = [1, 2, 7, 14, 30, 60, 90, 180].map((days) => days * DAY);
/** Distances of the labels of counts. */
const WHOLE = Array.from({ length: 13 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();
/** The cursors of all plots of the page stand at the same time. */
const SYNC = "statistics";

export type Drawn = Series & { readonly isHidden: boolean };

type Current = {
  readonly panel: Panel;
  readonly period: Period;
  readonly drawn: readonly Drawn[];
  readonly zoom: (from: number, to: number) => void;
};

/**
 * Points stand in the middle of their steps. Stacked values are sums of their own and all values below them. The first
 * series comes last, so that it is drawn over the others: a bar covers the lower part of those that contain it.
 */
export function dataOf(times: readonly number[], step: number, series: readonly Drawn[], isStacked: boolean): uPlot.AlignedData {
  const sums = new Array<number>(times.length).fill(0);
  const columns = series.map(({ values, isHidden }) => {
    if (!isStacked || isHidden) return [...values];
    return values.map((value, index) => {
      sums[index] = (sums[index] ?? 0) + (value ?? 0);
      return sums[index];
    });
  });
  return [times.map((time) => time + step / 2), ...columns.reverse()];
}

/** The layer of bars under the cursor, or the line near it. */
export function seriesAt(plot: uPlot, series: readonly Drawn[], isStacked: boolean): Series | null {
  const { idx, top } = plot.cursor;
  if (idx == null || top === undefined) return null;
  const shown = series.map((one, index) => ({ one, value: plot.data[series.length - index]?.[idx] })).filter(({ one }) => !one.isHidden);
  if (isStacked) {
    const wanted = plot.posToVal(top, "y");
    return shown.find(({ value }) => value != null && value >= wanted)?.one ?? null;
  }
  const distances = shown.flatMap(({ one, value }) => (value == null ? [] : [{ one, distance: Math.abs(plot.valToPos(value, "y") - top) }]));
  const nearest = distances.sort((left, right) => left.distance - right.distance)[0];
  return nearest !== undefined && nearest.distance <= NEAR ? nearest.one : null;
}

/** The settings of a plot, which reads what changes without a new plot from `current`. */
export function optionsOf(
  element: HTMLElement,
  current: { readonly current: Current },
  setCursor: (index: number | null) => void,
): uPlot.Options {
  const style = getComputedStyle(element);
  const colorOf = (variable: string) => style.getPropertyValue(variable).trim();
  const { drawn, panel, period } = current.current;
  const { isStacked, isCount } = panel;
  const lines = { stroke: colorOf("--line"), width: 1 };
  const axis: uPlot.Axis = { font: `12px ${style.fontFamily}`, stroke: colorOf("--soft"), grid: lines, ticks: { ...lines, size: 4 }, gap: 4 };
  const bars = uPlot.paths.bars?.({ size: [0.8, 60], align: 0 });

  return {
    width: element.clientWidth,
    height: HEIGHT,
    padding: [8, 32, 0, 0],
    legend: { show: false },
    focus: { alpha: 0.2 },
    cursor: {
      y: false,
      points: { show: !isStacked, size: 7 },
      drag: { x: true, y: false, setScale: false, dist: 5 },
      sync: {
        key: SYNC,
        scales: ["x", null],
        filters: { pub: () => true, sub: (type) => type !== "mousedown" && type !== "mouseup" },
      },
    },
    scales: {
      x: { time: true, range: () => [current.current.period.start, current.current.period.end] },
      y: { range: (_plot, _min, max) => [0, max > 0 ? max * 1.08 : 1] },
    },
    axes: [
      {
        ...axis,
        space: 72,
        ...(period.step === DAY ? { incrs: DAYS } : {}),
        size: (_plot, labels) => ((labels ?? []).some((label) => label.includes("\n")) ? 38 : 24),
        values: (_plot, splits, _axis, _space, step) => axisTimes(splits, step),
      },
      {
        ...axis,
        space: 32,
        size: AXIS_WIDTH,
        ...(isCount ? { incrs: WHOLE } : {}),
        values: (_plot, splits) => splits.map((value) => current.current.panel.format(value)),
      },
    ],
    series: [
      {},
      ...drawn.toReversed().map(({ color, dash, isHidden }) => ({
        show: !isHidden,
        stroke: colorOf(color),
        width: isStacked ? 0 : 2,
        ...(dash === undefined ? {} : { dash: [...dash] }),
        ...(isStacked ? { fill: colorOf(color), paths: bars, points: { show: false } } : { points: { size: 4 } }),
      })),
    ],
    hooks: {
      setCursor: [
        ({ cursor: { idx } }) => {
          if (idx != null || !matchMedia(NO_MOUSE).matches) setCursor(idx ?? null);
        },
      ],
      setSelect: [
        (plot) => {
          const { left, width } = plot.select;
          if (width === 0) return;
          current.current.zoom(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
    },
  };
}
