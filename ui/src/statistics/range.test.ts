import { expect, test } from "vitest";
import { fixedRange, isOpen, lastRange, moved, parseRange, rangeSearch, widened } from "./range";

const NOW = 1_767_225_700; // 100 s after a full hour
const HOUR = 3_600;
const DAY = 86_400;

test("a range that ends now has whole steps and contains now", () => {
  for (const [span, step, points] of [["hour", 60, 60], ["day", 300, 288], ["week", HOUR, 168], ["month", DAY, 30]] as const) {
    const range = lastRange(span, NOW);
    expect([range.step, (range.end - range.start) / range.step]).toEqual([step, points]);
    expect(range.end % step).toBe(0);
    expect(range.end).toBeGreaterThan(NOW);
    expect(range.end - NOW).toBeLessThanOrEqual(step);
    expect(isOpen(range, NOW)).toBe(true);
  }
});

test("the address of a range says which it is", () => {
  for (const range of [lastRange("day", NOW), lastRange("month", NOW), fixedRange(NOW - DAY, NOW - HOUR, NOW)]) {
    expect(parseRange(rangeSearch(range), NOW)).toEqual(range);
  }
  expect(rangeSearch(lastRange("day", NOW))).toEqual({});
});

test("an address without a valid range shows the last day", () => {
  const day = lastRange("day", NOW);
  const searches = [{ range: "year" }, { range: "toString" }, { start: "x", end: "9" }, { start: "9", end: "1" }, { start: String(NOW + 1), end: String(NOW + 2) }];
  for (const search of searches) expect(parseRange(search, NOW)).toEqual(day);
});

test("a fixed range is widened to whole steps", () => {
  expect(fixedRange(1_000_030, 1_000_690, 1_000_900)).toEqual({ span: null, start: 1_000_020, end: 1_000_740, step: 60 });
  expect(fixedRange(1_000_030, 1_000_031, 1_000_900)).toEqual({ span: null, start: 1_000_020, end: 1_000_380, step: 60 });
  const long = fixedRange(0, NOW, NOW);
  expect(long.step).toBe(DAY);
  expect(long.end - long.start).toBe(366 * DAY);
});

test("a range of which only figures of hours are kept has whole hours", () => {
  const range = fixedRange(NOW - 20 * DAY, NOW - 20 * DAY + 600, NOW);
  expect([range.step, range.end - range.start]).toEqual([HOUR, HOUR]);
});

test("no fixed range reaches into the future", () => {
  const range = fixedRange(NOW - HOUR, NOW + DAY, NOW);
  expect(range.end - range.step).toBeLessThanOrEqual(NOW);
  expect(range.start).toBeLessThan(range.end);
  const late = fixedRange(NOW - 1, NOW + 30 * DAY, NOW);
  expect(late.start).toBeLessThan(late.end);
});

test("a range moves by its length, and no further than now", () => {
  const range = fixedRange(NOW - 10 * HOUR, NOW - 8 * HOUR, NOW);
  const earlier = moved(range, -1, NOW);
  expect(earlier.end).toBe(range.start);
  expect(earlier.end - earlier.start).toBe(range.end - range.start);
  expect(moved(earlier, 1, NOW)).toEqual(range);
  expect(isOpen(moved(lastRange("day", NOW), 1, NOW), NOW)).toBe(true);
});

test("a widened range contains the one before", () => {
  for (const range of [fixedRange(NOW - 10 * HOUR, NOW - 8 * HOUR, NOW), lastRange("hour", NOW), lastRange("week", NOW)]) {
    const wide = widened(range, NOW);
    expect(wide.start).toBeLessThan(range.start);
    expect(wide.end).toBeGreaterThanOrEqual(range.end - range.step);
  }
});
