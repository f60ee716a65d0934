import fc from "fast-check";
import type { Event } from "greenroom-client";
import { expect, test } from "vitest";
import { type Step, align, stepsOf, totals, wordDifferences } from "./align";

function step(key: string, value: string): Step {
  return { key, eventId: `${key}${value}`, author: "a", title: key, value, start: 0, seconds: null, tokens: 1 };
}

function shown(left: readonly Step[], right: readonly Step[]): readonly (readonly [unknown, unknown])[] {
  return align(left, right).map((pair) => [pair.left?.value ?? null, pair.right?.value ?? null]);
}

test("steps of the same kind stand side by side, others alone", () => {
  const left = [step("message", "hi"), step("call a", "1"), step("text", "x")];
  const right = [step("message", "hi"), step("call b", "2"), step("call a", "3"), step("text", "y")];
  expect(shown(left, right)).toEqual([
    ["hi", "hi"],
    [null, "2"],
    ["1", "3"],
    ["x", "y"],
  ]);
});

test("of several steps of one kind, the equal ones are aligned", () => {
  const left = [step("m", "0"), step("call", "b")];
  const right = [step("m", "1"), step("call", "a"), step("call", "b")];
  expect(shown(left, right)).toEqual([
    ["0", "1"],
    [null, "a"],
    ["b", "b"],
  ]);
});

test("each step is shown once and in order, equal runs without a difference", () => {
  const steps = fc.array(fc.tuple(fc.constantFrom("a", "b", "c"), fc.constantFrom("1", "2")), { maxLength: 12 });
  fc.assert(
    fc.property(steps, steps, (one, other) => {
      const [left, right] = [one, other].map((all) => all.map(([key, value]) => step(key, value))) as [Step[], Step[]];
      const pairs = align(left, right);
      expect(pairs.flatMap((pair) => pair.left ?? [])).toEqual(left);
      expect(pairs.flatMap((pair) => pair.right ?? [])).toEqual(right);
      for (const pair of pairs) if (pair.left && pair.right) expect(pair.left.key).toBe(pair.right.key);
      expect(align(left, left).every((pair) => pair.left === pair.right && pair.differences.length === 0)).toBe(true);
    }),
  );
});

test("runs of many steps are aligned in bounded time", () => {
  const long = Array.from({ length: 5_000 }, (_, at) => step("text", String(at)));
  expect(align(long, long)).toHaveLength(5_000);
  expect(align(long, long.toReversed())).toHaveLength(5_000);
});

test("the steps of a run have its calls with their times, and its tokens once", () => {
  const base = { invocationId: "r", author: "a", actions: {} };
  const events: readonly Event[] = [
    { ...base, id: "1", author: "user", timestamp: 10, content: { parts: [{ text: "hi" }] } },
    { ...base, id: "p", timestamp: 11, partial: true, content: { parts: [{ text: "wo" }] } },
    {
      ...base,
      id: "2",
      timestamp: 11,
      usageMetadata: { totalTokenCount: 7 },
      content: { parts: [{ text: "wait" }, { functionCall: { id: "c", name: "look", args: { x: 1 } } }] },
    },
    {
      ...base,
      id: "3",
      timestamp: 13,
      actions: { stateDelta: { city: "Oslo" } },
      content: { parts: [{ functionResponse: { id: "c", name: "look", response: { ok: true } } }] },
    },
  ];
  const steps = stepsOf(events);
  expect(steps.map((one) => [one.title, one.value, one.start, one.seconds, one.tokens])).toEqual([
    ["Message", "hi", 0, null, 0],
    ["Text", "wait", 1, null, 7],
    ["Calls look", { x: 1 }, 1, null, 0],
    ["look returns", { ok: true }, 3, 2, 0],
    ["Changes the state", { city: "Oslo" }, 3, null, 0],
  ]);
  expect(totals(steps)).toEqual({ steps: 5, tokens: 7, seconds: 3 });
});

test("texts are compared word by word", () => {
  expect(wordDifferences("It rains in Oslo.", "It rains in Bergen.")).toEqual([
    { text: "It rains in ", kind: "same" },
    { text: "Oslo.", kind: "removed" },
    { text: "Bergen.", kind: "added" },
  ]);
  fc.assert(
    fc.property(fc.lorem({ maxCount: 9 }), fc.lorem({ maxCount: 9 }), (before, after) => {
      const pieces = wordDifferences(before, after);
      const text = (without: string) => pieces.map((piece) => (piece.kind === without ? "" : piece.text)).join("");
      expect([text("added"), text("removed")]).toEqual([before, after]);
    }),
  );
});
