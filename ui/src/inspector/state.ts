// State of a session as of an event, and the differences between two states.
import type { JsonObject, JsonValue } from "greenroom-client";
import type { LoggedEvent } from "../timeline/model";

/** In a delta, in place of a value: the key is removed. */
export const REMOVED = "__ADK_SENTINEL_REMOVED__";

/** The state after each of the first `count` events. */
export function stateAt(initial: JsonObject, events: readonly LoggedEvent[], count: number): JsonObject {
  const state: Record<string, JsonValue> = { ...initial };
  for (const { event } of events.slice(0, count)) {
    for (const [key, value] of Object.entries(event.actions.stateDelta ?? {})) {
      if (value === REMOVED) delete state[key];
      else state[key] = value;
    }
  }
  return state;
}

/** One difference. path: keys and positions from the root. before, after: undefined where the value is missing. */
export type Difference = {
  readonly path: readonly string[];
  readonly before: JsonValue | undefined;
  readonly after: JsonValue | undefined;
};

const MOST_DEPTH = 32;

/** The smallest values that differ, in the order of keys; a value that changed its type counts as a whole. */
export function differences(before: JsonValue | undefined, after: JsonValue | undefined): readonly Difference[] {
  const found: Difference[] = [];
  collect([], before, after, found);
  return found;
}

function collect(path: readonly string[], before: JsonValue | undefined, after: JsonValue | undefined, found: Difference[]) {
  if (isSame(before, after)) return;
  if (path.length < MOST_DEPTH && isContainer(before) && isContainer(after) && Array.isArray(before) === Array.isArray(after)) {
    const [left, right] = [before as Record<string, JsonValue>, after as Record<string, JsonValue>];
    for (const key of new Set([...Object.keys(left), ...Object.keys(right)])) {
      collect([...path, key], left[key], right[key], found);
    }
    return;
  }
  found.push({ path, before, after });
}

function isContainer(value: JsonValue | undefined): value is JsonObject | readonly JsonValue[] {
  return typeof value === "object" && value !== null;
}

export function isSame(left: JsonValue | undefined, right: JsonValue | undefined): boolean {
  if (left === right) return true;
  if (!isContainer(left) || !isContainer(right) || Array.isArray(left) !== Array.isArray(right)) return false;
  const [one, other] = [left as Record<string, JsonValue>, right as Record<string, JsonValue>];
  const keys = Object.keys(one);
  return keys.length === Object.keys(other).length && keys.every((key) => key in other && isSame(one[key], other[key]));
}
