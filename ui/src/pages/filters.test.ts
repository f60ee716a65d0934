import fc from "fast-check";
import type { Run } from "greenroom-client";
import { expect, test } from "vitest";
import { AGES, type Age, NO_FILTERS, STATUSES, hasEnded, isFiltered, merge, parseFilters, parseScore, toQuery, toSearch } from "./filters";

test("filters are the same after a way through the address", () => {
  const filters = fc.record({
    app: fc.string(),
    user: fc.string(),
    session: fc.string(),
    statuses: fc.subarray([...STATUSES], { maxLength: STATUSES.length - 1 }),
    error: fc.string(),
    version: fc.string(),
    age: fc.option(fc.constantFrom(...(Object.keys(AGES) as Age[]))),
    ended: fc.option(fc.constant({ from: 1_000.5, to: 2_000 })),
    feedback: fc.constant(""),
    least: fc.constant(null),
    greatest: fc.constant(null),
  });
  fc.assert(
    fc.property(filters, (wanted) => {
      expect(parseFilters(toSearch(wanted))).toEqual(wanted);
    }),
  );
});

test("what an address says wrongly is ignored", () => {
  expect(parseFilters({ status: "failed,lost", age: "constructor" })).toEqual({ ...NO_FILTERS, statuses: ["failed"] });
  expect(isFiltered(parseFilters({ status: "lost" }))).toBe(false);
  expect(toSearch({ ...NO_FILTERS, statuses: STATUSES })).toEqual({});
});

test("the query has each filter in the server's name", () => {
  const query = toQuery({ ...NO_FILTERS, app: "a", user: "u", session: "s", statuses: ["failed", "queued"], version: "v1", age: "1h" }, 50, "t", 5000.5);
  expect([...query]).toEqual([
    ["limit", "50"],
    ["app_name", "a"],
    ["user_id", "u"],
    ["session_id", "s"],
    ["status", "failed"],
    ["status", "queued"],
    ["app_version", "v1"],
    ["created_from", "1400"],
    ["page_token", "t"],
  ]);
});

const run = (id: string, createdAt: number, status: Run["status"] = "running"): Run => ({
  id,
  createdAt,
  status,
  appName: "a",
  userId: "u",
  sessionId: "s",
});
const ids = (runs: readonly Run[]) => runs.map(({ id, status }) => `${id} ${status}`);

test("changed runs replace their earlier records, and new ones come first", () => {
  const before = [run("b", 2), run("a", 1)];
  const after = merge(before, [run("a", 1, "failed"), run("c", 3), run("d", 3, "queued"), run("c", 3, "succeeded")], NO_FILTERS);
  expect(ids(after)).toEqual(["d queued", "c succeeded", "b running", "a failed"]);
});

test("runs that no longer have a wanted status leave the list, and others do not enter it", () => {
  const before = [run("b", 2), run("a", 1)];
  const after = merge(before, [run("a", 1, "succeeded"), run("c", 3, "failed")], { ...NO_FILTERS, statuses: ["running"] });
  expect(ids(after)).toEqual(["b running"]);
});

test("runs outside the filtered time do not enter the list", () => {
  expect(merge([], [run("a", 1)], { ...NO_FILTERS, age: "15m" })).toEqual([]);
});

test("runs that ended in a time are found by when they were created at the latest, and at most a day before", () => {
  const filters = parseFilters({ from: "100000", to: "100300", error: "ModelError" });
  expect(filters.ended).toEqual({ from: 100_000, to: 100_300 });
  expect(parseFilters(toSearch(filters))).toEqual(filters);
  const query = toQuery(filters, 10, null, 200_000);
  expect(Object.fromEntries(query)).toEqual({ limit: "10", error_code: "ModelError", created_from: "13600", created_before: "100300" });
  const ended = (endedAt: number | undefined) => hasEnded({ ...run("a", 1), endedAt }, filters);
  expect([undefined, 99_999.9, 100_000, 100_299.9, 100_300].map(ended)).toEqual([false, false, true, true, false]);
  expect(parseFilters({ from: "3", to: "2" }).ended).toBeNull();
});

test("a run that fails with another error does not enter the list", () => {
  const filters = { ...NO_FILTERS, error: "ModelError" };
  const failed = (id: string, code: string) => ({ ...run(id, 1, "failed"), error: { code, message: "" } });
  expect(ids(merge([], [failed("a", "ModelError"), failed("b", "TimeoutError")], filters))).toEqual(["a failed"]);
});

test("feedback is of one app, and has a range of scores", () => {
  const filters = parseFilters({ app: "a", feedback: "helpful", least: "0.5", greatest: "x" });
  expect([filters.feedback, filters.least, filters.greatest]).toEqual(["helpful", 0.5, null]);
  expect(parseFilters(toSearch(filters))).toEqual(filters);
  const query = toQuery(filters, 10, null, 0);
  expect(Object.fromEntries(query)).toEqual({ limit: "10", app_name: "a", feedback: "helpful", min_score: "0.5" });
  expect(parseFilters({ feedback: "helpful", least: "1" })).toEqual(NO_FILTERS);
  expect([parseScore(0 as number), parseScore(""), parseScore(undefined), parseScore("-1e3")]).toEqual([0, null, null, -1000]);
  expect(toSearch({ ...filters, app: "" })).toEqual({});
  expect(ids(merge([], [run("a", 1)], filters))).toEqual([]);
  expect(ids(merge([run("a", 1)], [run("a", 1, "failed")], filters))).toEqual(["a failed"]);
});
