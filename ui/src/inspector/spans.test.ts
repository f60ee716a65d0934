import type { JsonObject } from "greenroom-client";
import { expect, test } from "vitest";
import { type SpanRecord, bar, layOut, pan, spansOfRun, wholeTime, zoom } from "./spans";

function span(id: string, parent: string | null, start: number, end: number, attributes: JsonObject = {}): SpanRecord {
  const [start_time, end_time] = [start * 1e6 + 5e9, end * 1e6 + 5e9];
  return { name: id, trace_id: "t", span_id: id, parent_span_id: parent, start_time, end_time, attributes, logs: [] };
}

const TRACE = [
  span("model", "agent", 1, 4, { "gcp.vertex.agent.event_id": "e-1" }),
  span("tool", "agent", 5, 9, { "error.type": "ValueError" }),
  span("agent", "run", 1, 10),
  span("run", null, 0, 10, { "gcp.vertex.agent.invocation_id": "r-1" }),
];

test("rows are a tree in the order of time", () => {
  const rows = layOut(TRACE);
  expect(rows.map((row) => [row.span.name, row.depth, row.start, row.end])).toEqual([
    ["run", 0, 0, 10],
    ["agent", 1, 1, 10],
    ["model", 2, 1, 4],
    ["tool", 2, 5, 9],
  ]);
  expect(rows.map((row) => row.eventId)).toEqual([null, null, "e-1", null]);
  expect(rows.map((row) => row.isError)).toEqual([false, false, false, true]);
});

test("a folded span hides what is below it", () => {
  expect(layOut(TRACE, new Set(["agent"])).map((row) => row.span.name)).toEqual(["run", "agent"]);
});

test("a span whose parent is missing is a root; a cycle is left out and ends", () => {
  expect(layOut([span("a", "gone", 0, 1)]).map((row) => row.depth)).toEqual([0]);
  expect(layOut([span("a", "b", 0, 1), span("b", "a", 0, 1)])).toEqual([]);
});

test("bars are cut at the edges of the shown time", () => {
  const [run, , , tool] = layOut(TRACE);
  if (run === undefined || tool === undefined) throw new Error("rows are missing");
  expect(bar(run, { from: 5, to: 10 })).toEqual({ left: 0, width: 1 });
  expect(bar(tool, { from: 0, to: 10 })).toEqual({ left: 0.5, width: 0.4 });
  expect(bar(tool, { from: 0, to: 4 })).toBeNull();
});

test("zoom keeps the point under the pointer and stays inside of the trace", () => {
  const whole = wholeTime(layOut(TRACE));
  expect(whole).toEqual({ from: 0, to: 10 });
  expect(zoom(whole, whole, 2, 0.5)).toEqual({ from: 2.5, to: 7.5 });
  expect(zoom(whole, whole, 2, 1)).toEqual({ from: 5, to: 10 });
  expect(zoom({ from: 5, to: 10 }, whole, 0.1, 0)).toEqual(whole);
  expect(pan({ from: 2, to: 4 }, whole, -5)).toEqual({ from: 0, to: 2 });
});

test("10,000 spans, also in one chain, are laid out without recursion", () => {
  const chain = Array.from({ length: 10_000 }, (_, at) => span(`s${at}`, at === 0 ? null : `s${at - 1}`, at, at + 1));
  const rows = layOut(chain);
  expect(rows).toHaveLength(10_000);
  expect(rows.at(-1)?.depth).toBe(9_999);
  expect(wholeTime(rows)).toEqual({ from: 0, to: 10_000 });
});

test("the spans of an event's run are those of its trace", () => {
  const other: SpanRecord = { ...span("other", null, 0, 1), trace_id: "u" };
  expect(spansOfRun([...TRACE, other], "none", "r-1")).toEqual(TRACE);
  expect(spansOfRun([...TRACE, other], "e-1", "none")).toEqual(TRACE);
  expect(spansOfRun(TRACE, "none", "none")).toEqual([]);
});
