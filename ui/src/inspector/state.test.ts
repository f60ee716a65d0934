import fc from "fast-check";
import type { Event, JsonObject, JsonValue } from "greenroom-client";
import { expect, test } from "vitest";
import type { LoggedEvent } from "../timeline/model";
import { REMOVED, differences, isSame, stateAt } from "./state";

function changes(...deltas: readonly JsonObject[]): readonly LoggedEvent[] {
  return deltas.map((stateDelta, at) => {
    const event: Event = { id: `e${at}`, invocationId: "r", author: "a", timestamp: at, actions: { stateDelta } };
    return { seq: at + 1, event };
  });
}

test("the state as of an event has the deltas up to it, and no removed keys", () => {
  const events = changes({ city: "Oslo" }, { city: "Bergen", n: 1 }, { city: REMOVED, lang: null });
  expect(stateAt({ lang: "en" }, events, 0)).toEqual({ lang: "en" });
  expect(stateAt({ lang: "en" }, events, 2)).toEqual({ lang: "en", city: "Bergen", n: 1 });
  expect(stateAt({ lang: "en" }, events, 3)).toEqual({ lang: null, n: 1 });
});

test("differences name the smallest values that differ", () => {
  const before = { same: [1, { a: 2 }], list: [1, 2], gone: true, kind: { a: 1 } };
  const after = { same: [1, { a: 2 }], list: [1, 3, 4], kind: [1], born: null };
  expect(differences(before, after)).toEqual([
    { path: ["list", "1"], before: 2, after: 3 },
    { path: ["list", "2"], before: undefined, after: 4 },
    { path: ["gone"], before: true, after: undefined },
    { path: ["kind"], before: { a: 1 }, after: [1] },
    { path: ["born"], before: undefined, after: null },
  ]);
});

test("values differ exactly when there are differences", () => {
  const value = fc.jsonValue() as fc.Arbitrary<JsonValue>;
  fc.assert(
    fc.property(value, value, (left, right) => {
      expect(differences(left, right).length === 0).toBe(isSame(left, right));
      expect(differences(left, structuredClone(left))).toEqual([]);
    }),
  );
});
