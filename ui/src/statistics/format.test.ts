import { expect, test } from "vitest";
import { change, count, money, share } from "./format";

test("amounts of money have the digits that say something", () => {
  const dollars = money("USD");
  expect([0, 12.5, 0.5, 0.0123, 0.00002].map(dollars)).toEqual(["$0.00", "$12.50", "$0.50", "$0.012", "$0.00002"]);
});

test("counts are short", () => {
  expect([0, 0.4321, 9_999, 12_345, 2_500_000].map(count)).toEqual(["0", "0.43", "9,999", "12.3K", "2.5M"]);
});

test("a change is a percentage of what was before, if there was something", () => {
  expect(change(100, 112)).toBe("+12 %");
  expect(change(100, 75)).toBe("−25 %");
  expect(change(100, 100)).toBe("±0 %");
  expect(change(4, 100)).toBe("× 25");
  expect(change(0, 5)).toBeNull();
  expect(change(null, 5)).toBeNull();
  expect(share(1, 8)).toBe("12.5 %");
  expect(share(0, 0)).toBe("–");
});
