import { expect, test } from "vitest";
import { areEqual, choices, leading, servingShares, sum, withShare } from "./shares";

test("without shares the code in the folder serves", () => {
  expect(servingShares({})).toEqual({ source: 100 });
  expect(leading({})).toBe("source");
  expect(leading({ v1: 10, v3: 80, v2: 10 })).toBe("v3");
  expect(areEqual({}, { source: 100 })).toBe(true);
  expect(areEqual({ v1: 100, v2: 0 }, { v1: 100 })).toBe(false);
});

test("of two versions the other one gets the rest", () => {
  expect(withShare({ v1: 100 }, "v2", 10)).toEqual({ v1: 90, v2: 10 });
  expect(withShare({ v1: 90, v2: 10 }, "v1", 120)).toEqual({ v2: 0, v1: 100 });
  expect(withShare({ v1: 90, v2: 10 }, "v1", null)).toEqual({ v2: 100 });
});

test("of more versions only one changes", () => {
  const shares = withShare({ v1: 80, v2: 10, v3: 10 }, "v1", 50.4);
  expect(shares).toEqual({ v2: 10, v3: 10, v1: 50 });
  expect(sum(shares)).toBe(70);
  expect(withShare(shares, "v3", null)).toEqual({ v2: 10, v1: 50 });
  expect(withShare({ v1: 100 }, "v1", null)).toEqual({});
});

test("the newest versions and those that serve are chosen from", () => {
  expect(choices(["v4", "v3", "v2", "v1"], { v1: 100 }, 2)).toEqual(["v4", "v3", "v1", "source"]);
});
