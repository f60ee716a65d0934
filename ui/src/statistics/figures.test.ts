import type { Figures, Statistics } from "greenroom-client";
import { expect, test } from "vitest";
import { panelsOfAll, panelsOfGroups, panelsOfLoad } from "./figures";

const FIGURES: Figures = {
  runs: { succeeded: 5, failed: 3 },
  errors: { ModelError: 2, TimeoutError: 1 },
  firstText: { count: 8, p50: 0.5, p95: 1, p99: 2 },
  duration: { count: 8, p50: 1, p95: 3, p99: 9 },
  modelCalls: 9,
  toolCalls: 4,
  inputTokens: 100,
  cachedTokens: 40,
  outputTokens: 20,
  unpricedTokens: 7,
  cost: 0.25,
};

function statistics(groups: Statistics["groups"], more: Partial<Statistics> = {}): Statistics {
  return { start: 600, end: 780, step: 60, currency: "EUR", groups, ...more };
}

const ALL = statistics([{ total: FIGURES, points: [{ time: 660, ...FIGURES }] }]);

test("a step without figures has no runs, and no durations", () => {
  const panels = new Map(panelsOfAll(ALL, false).map((panel) => [panel.title, panel]));
  const valuesOf = (title: string) => Object.fromEntries(panels.get(title)?.series.map(({ name, values }) => [name, values]) ?? []);
  expect(valuesOf("Runs by status")).toEqual({ Succeeded: [0, 5, 0], Failed: [0, 3, 0], Cancelled: [0, 0, 0] });
  expect(valuesOf("Failed runs by error")).toEqual({ ModelError: [0, 2, 0], TimeoutError: [0, 1, 0] });
  expect(valuesOf("Time to the first text")).toEqual({ p50: [null, 0.5, null], p95: [null, 1, null], p99: [null, 2, null] });
  expect(valuesOf("Time to the end")).toEqual({ p50: [null, 1, null], p95: [null, 3, null], p99: [null, 9, null] });
  expect(valuesOf("Tokens")).toEqual({ Input: [0, 60, 0], "Cached input": [0, 40, 0], Output: [0, 20, 0] });
  expect(valuesOf("Cost")).toEqual({ Cost: [0, 0.25, 0] });
  expect(panels.get("Cost")?.note).toBe("Without 7 tokens whose price is unknown");
  expect(panels.get("Cost")?.format(0.25)).toBe("€0.25");
});

test("a series knows the runs behind it", () => {
  const [runs, errors] = panelsOfAll(ALL, false);
  expect(runs?.series.map((series) => series.runs)).toEqual([{ status: "succeeded" }, { status: "failed" }, { status: "cancelled" }]);
  expect(errors?.series.map((series) => series.runs)).toEqual([
    { status: "failed", error: "ModelError" },
    { status: "failed", error: "TimeoutError" },
  ]);
  const byUser = panelsOfGroups(statistics([{ key: "ann", total: FIGURES, points: [] }]), "user", "p95");
  expect(byUser[1]?.series[0]?.runs).toEqual({ user: "ann", status: "failed" });
  const byTool = panelsOfGroups(statistics([{ key: "weather", total: FIGURES, points: [] }]), "tool", "p95");
  expect(byTool[0]?.series[0]?.runs).toEqual({});
});

test("rare errors are summed", () => {
  const errors = Object.fromEntries(Array.from({ length: 9 }, (_, index) => [`Error${index}`, 9 - index]));
  const panel = panelsOfAll(statistics([{ total: { errors }, points: [{ time: 600, errors }] }]), false)[1];
  expect(panel?.series.map(({ name, total }) => [name, total])).toEqual([
    ["Error0", 9],
    ["Error1", 8],
    ["Error2", 7],
    ["Error3", 6],
    ["Error4", 5],
    ["4 others", 10],
  ]);
  expect(panel?.series.at(-1)?.values).toEqual([10, 0, 0]);
});

test("groups stand beside each other, with the sum of the others", () => {
  const [calls, failed, durations] = panelsOfGroups(
    statistics([{ key: "gpt", total: FIGURES, points: [{ time: 720, ...FIGURES }] }], { others: { total: FIGURES, points: [] }, otherGroups: 3 }),
    "model",
    "p99",
  );
  expect(calls?.series.map(({ name, total, values }) => [name, total, values])).toEqual([
    ["gpt", 13, [0, 0, 13]],
    ["3 others", 13, [0, 0, 0]],
  ]);
  expect(failed?.series.map(({ total }) => total)).toEqual([3, 3]);
  expect(durations?.title).toBe("Duration of calls, p99");
  expect(durations?.series[0]?.values).toEqual([null, null, 9]);
});

test("the load of an app has no replicas", () => {
  const level = { average: 1.5, maximum: 4 };
  const point = { time: 660, running: level, queued: level, openRequests: level };
  const panels = panelsOfLoad({ start: 600, end: 720, step: 60, points: [point] });
  expect(panels.map(({ title }) => title)).toEqual(["Running", "Queued", "Requests to people"]);
  expect(panels[0]?.series.map(({ values, total }) => [values, total])).toEqual([
    [[null, 1.5], 1.5],
    [[null, 4], 4],
  ]);
  expect(panelsOfLoad({ start: 600, end: 720, step: 60, points: [] })).toEqual([]);
});
