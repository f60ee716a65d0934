import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import type { Event, Run } from "greenroom-client";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Item, RunGroup, Timeline, ToolCall } from "./model";
import { EMPTY_LOG, type Input, reduce, timelineOf } from "./reduce";

type Frame = { readonly seq: number | null; readonly event: Event } | { readonly run: Run };

const FOLDER = join(import.meta.dirname, "recorded");
const RECORDED = new Map<string, readonly Input[]>(
  readdirSync(FOLDER).map((file) => [file.replace(".json", ""), read(file)]),
);

function read(file: string): readonly Input[] {
  const frames = JSON.parse(readFileSync(join(FOLDER, file), "utf8")) as readonly Frame[];
  return frames.map((frame) =>
    "run" in frame ? { kind: "run", run: frame.run } : { kind: "event", seq: frame.seq, event: frame.event },
  );
}

function recorded(name: string): readonly Input[] {
  const inputs = RECORDED.get(name);
  if (inputs === undefined) throw new Error(`nothing was recorded as ${name}`);
  return inputs;
}

const shown = (inputs: readonly Input[]): Timeline => timelineOf(reduce(EMPTY_LOG, inputs));
const stored = (inputs: readonly Input[]): readonly Input[] => inputs.filter((input) => input.kind === "run" || input.seq !== null);
const one = (timeline: Timeline, index = 0): RunGroup => timeline.runs.at(index) as RunGroup;
const kinds = (items: readonly Item[]): readonly string[] => items.map((item) => item.kind);

function allItems(items: readonly Item[]): readonly Item[] {
  return items.flatMap((item) => [item, ...(item.kind === "branches" ? item.branches.flatMap((branch) => allItems(branch.items)) : [])]);
}

function callsOf(timeline: Timeline): readonly ToolCall[] {
  return timeline.runs.flatMap((run) => allItems(run.items)).flatMap((item) => (item.kind === "calls" ? item.calls : []));
}

describe.each([...RECORDED.keys()])("%s", (name) => {
  const inputs = recorded(name);
  const whole = shown(stored(inputs));

  test("partial events leave nothing behind", () => {
    expect(shown(inputs)).toEqual(whole);
  });

  test("each event twice, one by one", () => {
    let log = EMPTY_LOG;
    for (const input of inputs) log = reduce(reduce(log, [input]), [input]);
    expect(timelineOf(log)).toEqual(whole);
  });

  test("cut at every place and resumed after the last stored event", () => {
    for (let cut = 0; cut <= inputs.length; cut++) {
      const before = inputs.slice(0, cut);
      const seen = Math.max(0, ...before.map((input) => (input.kind === "event" ? (input.seq ?? 0) : 0)));
      const resumed = inputs.findIndex((input) => input.kind === "event" && input.seq === seen) + 1;
      let log = reduce(EMPTY_LOG, before);
      timelineOf(log);
      for (const input of inputs.slice(resumed)) log = reduce(log, [input]);
      expect(timelineOf(log)).toEqual(whole);
    }
  });

  test("in any order, any number of times, in any batches", () => {
    fc.assert(
      fc.property(
        fc.shuffledSubarray([...inputs], { minLength: inputs.length }),
        fc.array(fc.nat(inputs.length - 1), { maxLength: 20 }),
        fc.integer({ min: 1, max: 7 }),
        (order, repeated, size) => {
          const all = [...order, ...repeated.flatMap((index) => inputs[index] ?? [])];
          let log = EMPTY_LOG;
          for (let at = 0; at < all.length; at += size) {
            log = reduce(log, all.slice(at, at + size));
            timelineOf(log);
          }
          expect(timelineOf(log)).toEqual(whole);
        },
      ),
      { numRuns: 25 },
    );
  });

  test("keys are unique and each item names events of the log", () => {
    const items = whole.runs.flatMap((run) => allItems(run.items));
    const keys = items.map((item) => item.key);
    expect(new Set(keys).size).toBe(keys.length);
    for (const item of items) for (const id of item.eventIds) expect(whole.byId.has(id)).toBe(true);
  });
});

test("a text grows while it is streamed, under one key", () => {
  const inputs = recorded("text");
  let log = EMPTY_LOG;
  const seen = new Map<string, string[]>();
  for (const input of inputs) {
    log = reduce(log, [input]);
    for (const item of timelineOf(log).runs.flatMap((run) => run.items)) {
      if (item.kind !== "text" || item.isUser) continue;
      const texts = seen.get(item.key) ?? [];
      if (texts.at(-1) !== item.text) seen.set(item.key, [...texts, item.text]);
    }
  }
  expect(seen.size).toBe(3);
  for (const texts of seen.values()) {
    expect(texts.length).toBeGreaterThan(2);
    for (let index = 1; index < texts.length; index++) expect(texts[index]?.startsWith(texts[index - 1] ?? "?")).toBe(true);
  }
});

test("a late chunk of a stored message is dropped, and chunks out of order are put in order", () => {
  const inputs = recorded("text");
  const chunks = inputs.filter((input) => input.kind === "event" && input.seq === null && input.event.id === firstDraft(inputs));
  const item = one(shown([...chunks].reverse())).items[0];
  expect(item).toMatchObject({ kind: "text", isStreaming: true, text: "You said: hello" });
  expect(shown([...stored(inputs), ...chunks])).toEqual(shown(stored(inputs)));
});

function firstDraft(inputs: readonly Input[]): string {
  const first = inputs.find((input) => input.kind === "event" && input.seq === null);
  return first?.kind === "event" ? first.event.id : "";
}

test("a tool call is one card from call to response", () => {
  const timeline = shown(recorded("calls"));
  const [run] = timeline.runs;
  expect(kinds(run?.items ?? [])).toEqual(["text", "calls", "text"]);
  const calls = callsOf(timeline);
  expect(calls.slice(0, 3).map((call) => [call.name, call.state, call.response?.degrees])).toEqual([
    ["weather", "done", -3],
    ["weather", "done", 4],
    ["weather", "done", 11],
  ]);
  expect(calls[3]).toMatchObject({ name: "broken", state: "failed", error: expect.stringContaining("no such file") });
  const changes = timeline.runs.flatMap((group) => group.items).flatMap((item) => (item.kind === "state" ? item.changes : []));
  expect(changes).toEqual([
    { key: "city", before: undefined, after: "Oslo" },
    { key: "city", before: "Oslo", after: "Bergen" },
  ]);
  const artifacts = timeline.runs.flatMap((group) => group.items).filter((item) => item.kind === "artifact");
  expect(artifacts).toMatchObject([
    { name: "note.txt", version: 0 },
    { name: "note.txt", version: 1 },
  ]);
});

test("a call runs until its response comes, and is stopped when its run ends without one", () => {
  const inputs = recorded("calls");
  const at = inputs.findIndex((input) => input.kind === "event" && input.event.content?.parts?.some((part) => part.functionCall));
  const call = inputs[at];
  if (call?.kind !== "event") throw new Error("no call");
  const upTo = inputs.slice(0, at + 1);
  expect(callsOf(shown(upTo)).map((one) => one.state)).toEqual(["running", "running", "running"]);
  const run: Run = { id: call.event.invocationId, appName: "desk", userId: "user", sessionId: "calls", status: "cancelled", createdAt: 0, endedAt: call.event.timestamp + 1 };
  expect(callsOf(shown([...upTo, { kind: "run", run }])).map((one) => one.state)).toEqual(["stopped", "stopped", "stopped"]);
});

test("an approval waits, and shows its answer for ever after", () => {
  const inputs = recorded("approval");
  const asked = inputs.slice(0, inputs.findIndex((input) => input.kind === "run") + 1);
  const before = shown(asked);
  expect(one(before).status).toBe("waiting");
  const request = one(before).items.find((item) => item.kind === "request");
  expect(request).toMatchObject({ isOpen: true, answer: null, request: { type: "approval", tool: "delete_rows", args: { table: "orders", count: 12 } } });
  expect(callsOf(before)).toMatchObject([{ name: "delete_rows", state: "waiting" }]);
  const after = shown(inputs);
  expect(callsOf(after)).toMatchObject([{ name: "delete_rows", state: "done", response: { deleted: 12 } }]);
  expect(allItems(one(after).items).find((item) => item.kind === "request")).toMatchObject({ isOpen: false, answer: { by: ["user"], value: { confirmed: true } } });
});

test("an answer after another run belongs to the run that asked", () => {
  const timeline = shown(recorded("interleaved"));
  expect(timeline.runs.map((run) => run.id)).toEqual([timeline.runs[0]?.id, timeline.runs[1]?.id, timeline.runs[0]?.id]);
  expect(callsOf(timeline)).toMatchObject([{ name: "delete_rows", state: "done" }]);
});

test("a refused call has failed", () => {
  expect(callsOf(shown(recorded("refusal")))).toMatchObject([{ name: "delete_rows", state: "failed" }]);
});

test("a long-running call waits for a person's answer", () => {
  const inputs = recorded("long_running");
  const asked = inputs.slice(0, inputs.findIndex((input) => input.kind === "run") + 1);
  expect(callsOf(shown(asked))).toMatchObject([{ name: "order_report", state: "waiting", isLongRunning: true }]);
  expect(callsOf(shown(inputs))).toMatchObject([{ state: "done", response: { url: "reports/1" } }]);
});

test("a sleeping call says until when or for which signal, until it is answered", () => {
  const inputs = recorded("sleeping");
  const asked = shown(inputs.slice(0, inputs.findIndex((input) => input.kind === "run") + 1));
  const [call] = callsOf(asked);
  expect(call).toMatchObject({ state: "waiting", wakeUp: { signal: "paid" } });
  expect(one(asked).wakeUps).toEqual({ [call?.id ?? ""]: call?.wakeUp });
  const after = shown(inputs);
  expect(callsOf(after)).toMatchObject([{ state: "done", wakeUp: null }, { state: "waiting", wakeUp: { tool: "wait" } }]);
  expect(after.runs.map((run) => Object.keys(run.wakeUps).length)).toEqual([0, 1]);
});

test("a message to the active run waits until that run has read it", () => {
  const inputs = recorded("calls");
  const first = inputs[0];
  if (first?.kind !== "event") throw new Error("no event");
  const run: Run = {
    id: "later",
    appName: "desk",
    userId: "user",
    sessionId: "calls",
    status: "queued",
    createdAt: first.event.timestamp,
    steeredInto: first.event.invocationId,
  };
  const sent: readonly Input[] = [first, { kind: "run", run }];
  expect(shown(sent).runs.map(({ steeredInto }) => steeredInto)).toEqual([null, first.event.invocationId]);
  const read: Event = { ...first.event, id: "steering-later", timestamp: first.event.timestamp + 1 };
  const after = shown([...sent, { kind: "event", seq: 2, event: read }]);
  expect(after.runs.map((group) => group.items.map((item) => item.kind === "text" && item.isSteering))).toEqual([[false, true]]);
});

test("a rewind takes back the runs from the named one on, and is no run itself", () => {
  const inputs = recorded("text");
  const before = shown(inputs);
  const [first, second] = before.runs;
  if (first === undefined || second === undefined) throw new Error("no runs");
  const last = before.events.at(-1)?.event as Event;
  const rewind: Event = {
    id: "rewind",
    author: "user",
    invocationId: "e-rewind",
    timestamp: last.timestamp + 1,
    actions: { rewindBeforeInvocationId: second.id },
  };
  const after = shown([...inputs, { kind: "event", seq: before.lastSeq + 1, event: rewind }]);
  expect(after.runs.map((run) => [run.isRewound, run.isPatch])).toEqual([
    [false, false],
    [true, false],
    [true, false],
    [false, true],
  ]);
  expect(after.runs.at(-1)).toMatchObject({ status: "succeeded", items: [{ kind: "rewind", runId: second.id }] });
});

test("a workflow asks, is answered, and its nodes' outputs are shown", () => {
  const items = shown(recorded("workflow")).runs.flatMap((run) => allItems(run.items));
  expect(items.find((item) => item.kind === "request")).toMatchObject({ request: { type: "input", message: "How many guests at The Harbour?" }, answer: { by: ["user"] } });
  expect(items.filter((item) => item.kind === "output").map((item) => item.value)).toEqual(["The Harbour", { guests: 4 }]);
});

test("parallel agents are columns, while they run and afterwards", () => {
  const inputs = recorded("parallel");
  const item = one(shown(inputs)).items.find((found) => found.kind === "branches");
  if (item?.kind !== "branches") throw new Error("no branches");
  expect(item.branches.map((branch) => branch.name).sort()).toEqual(["east", "north", "south", "west"]);
  for (const branch of item.branches) expect(kinds(branch.items)).toEqual(["calls", "text"]);
});

test("a transfer is one item in place of its call", () => {
  const [run] = shown(recorded("transfer")).runs;
  expect(kinds(run?.items ?? [])).toEqual(["text", "transfer", "text"]);
  expect(run?.items[1]).toMatchObject({ to: "billing" });
});

test("an agent that runs as a tool has its steps inside the call", () => {
  expect(callsOf(shown(recorded("agent_tool")))).toMatchObject([{ name: "expert", state: "done", steps: [{ kind: "text", text: "Forty-two." }] }]);
});

test("a failed run says why", () => {
  const timeline = shown(recorded("failure"));
  expect(timeline.runs.map((run) => run.status)).toEqual(["succeeded", "failed", "failed"]);
  expect(timeline.runs[1]?.error?.message).toContain("overloaded");
});

test("a new title is no run", () => {
  const timeline = shown(recorded("title"));
  expect(timeline.runs.map((run) => [run.isPatch, kinds(run.items)])).toEqual([
    [false, ["text", "text"]],
    [true, []],
  ]);
});

test("5,000 events are taken in quickly, and one more makes only its own run again", () => {
  const template = stored(recorded("calls")).flatMap((input) => (input.kind === "event" ? [input.event] : []));
  const inputs: Input[] = Array.from({ length: 5_000 }, (_, index) => {
    const event = template[index % template.length] as Event;
    const round = Math.floor(index / template.length);
    const parts = event.content?.parts?.map((part) => JSON.parse(JSON.stringify(part).replaceAll('"c-', `"${round}-c-`)) as typeof part);
    return { kind: "event", seq: index + 1, event: { ...event, id: `e${index}`, invocationId: `${event.invocationId}${round}`, content: { ...event.content, parts } } };
  });
  const last = inputs.findLastIndex((input, index) => runOf(input) === runOf(inputs[index - 1]));
  const log = reduce(EMPTY_LOG, inputs.slice(0, last));
  const before = timelineOf(log);
  const after = timelineOf(reduce(log, inputs.slice(last, last + 1)));
  expect(after.events.length).toBe(last + 1);
  const changed = after.runs.flatMap((run, index) => (run.items === before.runs[index]?.items ? [] : [index]));
  expect(changed).toEqual([after.runs.length - 1]);
});

test("output of a running tool grows piece by piece, and goes when the call has its response", () => {
  const inputs = recorded("calls");
  const isAnswer = (input: Input) => input.kind === "event" && input.event.content?.parts?.some((part) => part.functionResponse) === true;
  const at = inputs.findIndex(isAnswer);
  const answer = inputs[at];
  if (answer?.kind !== "event") throw new Error("no response was recorded");
  const callId = answer.event.content?.parts?.find((part) => part.functionResponse)?.functionResponse?.id ?? "";
  const piece = (id: string, text: string, before: number): Input => ({
    kind: "event",
    seq: null,
    event: { ...answer.event, id, timestamp: answer.event.timestamp - before, content: {}, customMetadata: { toolOutput: { functionCallId: callId, stdout: text } } },
  });
  const pieces = [piece("one", "1\n", 0.2), piece("two", "2\n", 0.1), piece("one", "1\n", 0.2)];
  const running = reduce(EMPTY_LOG, [...inputs.slice(0, at), ...pieces]);
  expect(timelineOf(running).outputs.get(callId)?.text).toBe("1\n2\n");
  const ended = reduce(running, [answer]);
  expect(timelineOf(ended).outputs.size).toBe(0);
  expect(reduce(ended, pieces).outputs.size).toBe(0);
});

function runOf(input: Input | undefined): string {
  return input?.kind === "event" ? input.event.invocationId : "";
}
