// Alignment of two runs for the page Compare: steps of the same kind side by side, with what differs between them.
import type { Event, JsonValue } from "greenroom-client";
import { type Difference, differences } from "../inspector/state";

/** A step of a run. key: what makes two steps the same kind of step; start: seconds after the run's first event. */
export type Step = {
  readonly key: string;
  readonly eventId: string;
  readonly author: string;
  readonly title: string;
  readonly value: JsonValue;
  readonly start: number;
  readonly seconds: number | null;
  readonly tokens: number;
};

/** Two aligned steps; one of them is null where only the other run has such a step. */
export type Pair = {
  readonly left: Step | null;
  readonly right: Step | null;
  readonly differences: readonly Difference[];
};

/** The steps of a run: texts, tool calls and their responses, transfers and state changes, in order. */
export function stepsOf(events: readonly Event[]): readonly Step[] {
  const complete = events.filter((event) => event.partial !== true);
  const first = complete[0]?.timestamp ?? 0;
  const calledAt = new Map<string, number>();
  const steps: Step[] = [];
  for (const event of complete) {
    const start = event.timestamp - first;
    let tokens = event.usageMetadata?.totalTokenCount ?? 0;
    const add = (kind: string, title: string, value: JsonValue, seconds: number | null = null) => {
      const key = `${event.author}\n${kind}`;
      steps.push({ key, eventId: event.id, author: event.author, title, value, start, seconds, tokens });
      tokens = 0;
    };
    const texts = (event.content?.parts ?? []).filter((part) => part.text !== undefined && part.thought !== true);
    const text = texts.map((part) => part.text).join("");
    if (text !== "") add("text", event.author === "user" ? "Message" : "Text", text);
    for (const { functionCall: call, functionResponse: response, inlineData: blob } of event.content?.parts ?? []) {
      if (call !== undefined) {
        if (call.id !== undefined) calledAt.set(call.id, event.timestamp);
        add(`call ${call.name}`, `Calls ${call.name}`, call.args ?? {});
      }
      if (response !== undefined) {
        const called = response.id === undefined ? undefined : calledAt.get(response.id);
        const seconds = called === undefined ? null : event.timestamp - called;
        add(`response ${response.name}`, `${response.name} returns`, response.response ?? {}, seconds);
      }
      if (blob !== undefined) add("file", "File", `${blob.displayName ?? ""} ${blob.mimeType ?? ""}`.trim());
    }
    const { transferToAgent: to, stateDelta: delta, artifactDelta: saved } = event.actions;
    if (to !== undefined) add(`transfer ${to}`, `Transfers to ${to}`, to);
    if (delta !== undefined && Object.keys(delta).length > 0) add("state", "Changes the state", delta);
    if (saved !== undefined && Object.keys(saved).length > 0) add("artifact", "Saves artifacts", Object.keys(saved));
    if (event.errorCode !== undefined) add("error", "Fails", { code: event.errorCode, message: event.errorMessage ?? "" });
  }
  return steps;
}

const MOST_CELLS = 4_000_000;

/** Pairs steps by the longest common subsequence of their keys; of equal keys, steps with equal values are preferred.

    Runs too long for the table (over 2,000 steps each) are paired by position after their common start. */
export function align(left: readonly Step[], right: readonly Step[]): readonly Pair[] {
  let common = 0;
  while (common < left.length && common < right.length && sameStep(left[common], right[common])) common++;
  const pairs = Array.from({ length: common }, (_, at) => pair(left[at] ?? null, right[at] ?? null));
  const [a, b] = [left.slice(common), right.slice(common)];
  if (a.length * b.length > MOST_CELLS) {
    for (let at = 0; at < Math.max(a.length, b.length); at++) {
      const [one, other] = [a[at] ?? null, b[at] ?? null];
      if (one !== null && other !== null && one.key !== other.key) pairs.push(pair(one, null), pair(null, other));
      else pairs.push(pair(one, other));
    }
    return pairs;
  }
  // score[i][j]: of aligning a[i..] with b[j..]; equal keys count 2, equal values 1 more.
  const width = b.length + 1;
  const score = new Int32Array((a.length + 1) * width);
  const at = (i: number, j: number) => score[i * width + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const matched = a[i]?.key === b[j]?.key ? at(i + 1, j + 1) + (sameStep(a[i], b[j]) ? 3 : 2) : -1;
      score[i * width + j] = Math.max(matched, at(i + 1, j), at(i, j + 1));
    }
  }
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    const [one, other] = [a[i] ?? null, b[j] ?? null];
    const isPair = one !== null && other !== null && one.key === other.key;
    if (isPair && at(i, j) === at(i + 1, j + 1) + (sameStep(one, other) ? 3 : 2)) {
      pairs.push(pair(one, other));
      i++;
      j++;
    } else if (one !== null && (other === null || at(i + 1, j) >= at(i, j + 1))) {
      pairs.push(pair(one, null));
      i++;
    } else {
      pairs.push(pair(null, other));
      j++;
    }
  }
  return pairs;
}

function sameStep(one: Step | undefined, other: Step | undefined): boolean {
  return one?.key === other?.key && JSON.stringify(one?.value) === JSON.stringify(other?.value);
}

function pair(left: Step | null, right: Step | null): Pair {
  return { left, right, differences: left === null || right === null ? [] : differences(left.value, right.value) };
}

/** A text's words as [kept, removed and added] pieces, by their longest common subsequence; for texts to 400 words. */
export type Piece = { readonly text: string; readonly kind: "same" | "removed" | "added" };

export function wordDifferences(before: string, after: string): readonly Piece[] {
  const [a, b] = [before.match(/\s+|\S+/g) ?? [], after.match(/\s+|\S+/g) ?? []];
  if (a.length > 800 || b.length > 800) {
    return [
      { text: before, kind: "removed" },
      { text: after, kind: "added" },
    ];
  }
  const width = b.length + 1;
  const score = new Int32Array((a.length + 1) * width);
  const at = (i: number, j: number) => score[i * width + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      score[i * width + j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const pieces: { text: string; kind: Piece["kind"] }[] = [];
  const add = (text: string, kind: Piece["kind"]) => {
    const last = pieces.at(-1);
    if (last?.kind === kind) last.text += text;
    else pieces.push({ text, kind });
  };
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    const [one, other] = [a[i], b[j]];
    if (one !== undefined && one === other) {
      add(one, "same");
      i++;
      j++;
    } else if (one !== undefined && (other === undefined || at(i + 1, j) >= at(i, j + 1))) {
      add(one, "removed");
      i++;
    } else if (other !== undefined) {
      add(other, "added");
      j++;
    }
  }
  return pieces;
}

/** Sums over a run. */
export function totals(steps: readonly Step[]): { readonly steps: number; readonly tokens: number; readonly seconds: number } {
  return {
    steps: steps.length,
    tokens: steps.reduce((sum, step) => sum + step.tokens, 0),
    seconds: steps.at(-1)?.start ?? 0,
  };
}

