import fc from "fast-check";
import type { Run } from "greenroom-client";
import { expect, test } from "vitest";
import { AGES, type Age, NO_FILTERS, STATUSES, isFiltered, merge, parseFilters, toQuery, toSearch } from "./filters";

test("filters are the same after a way through the address", () => {
  const filters = fc.record({
    app: fc.string(),
    user: fc.string(),
    session: fc.string(),
    statuses: fc.subarray([...STATUSES], { maxLength: STATUSES.length - 1 }),
    age: fc.option(fc.constantFrom(...(Object.keys(AGES) as Age[]))),
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
  const query = toQuery({ app: "a", user: "u", session: "s", statuses: ["failed", "queued"], age: "1h" }, 50, "t", 5000.5);
  expect([...query]).toEqual([
    ["limit", "50"],
    ["app_name", "a"],
    ["user_id", "u"],
    ["session_id", "s"],
    ["status", "failed"],
    ["status", "queued"],
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
