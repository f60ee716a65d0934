import fc from "fast-check";
import { expect, test } from "vitest";
import { AGES, type Age, NO_FILTERS, STATUSES, isFiltered, parseFilters, toQuery, toSearch } from "./filters";

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
