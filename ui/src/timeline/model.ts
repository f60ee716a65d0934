// What the chat page and the inspector show of a session. `reduce.ts` makes it of events; nothing here is ever changed.
import type { Event, JsonObject, JsonValue, Part, Run, RunStatus, WakeUp } from "greenroom-client";

/** A stored event with its sequence number in the session's log, from 1. */
export type LoggedEvent = { readonly seq: number; readonly event: Event };

/** What a running tool has printed. runId: of the call's run. at: Unix seconds of the newest piece. */
export type ToolOutput = { readonly text: string; readonly runId: string; readonly at: number };

/** A session's view model. events: the whole log in order, internal ones included. byId: position in `events`. outputs: what
    running tools have printed, by call id. */
export type Timeline = {
  readonly runs: readonly RunGroup[];
  readonly events: readonly LoggedEvent[];
  readonly byId: ReadonlyMap<string, number>;
  readonly lastSeq: number;
  readonly outputs: ReadonlyMap<string, ToolOutput>;
};

/** One run, or (isPatch) one change from outside of runs: of the state, or a rewind. Times are Unix seconds.

    key: of this group; a run that was continued after others has several groups. endedAt: null while active. attempts: 0
    for an imported run, which has no record. isRewound: a later rewind took it back. wakeUps: what continues it while it
    waits, by id of the call. startAt: of a run that starts later. steeredInto: the active run that is to read its message. */
export type RunGroup = {
  readonly key: string;
  readonly id: string;
  readonly isPatch: boolean;
  readonly status: RunStatus;
  readonly startedAt: number;
  readonly endedAt: number | null;
  readonly attempts: number;
  readonly isResumed: boolean;
  readonly retries: number;
  readonly isRewound: boolean;
  readonly models: readonly string[];
  readonly tokens: number;
  readonly error: Run["error"] | null;
  readonly steeredInto: string | null;
  readonly startAt: number | null;
  readonly wakeUps: { readonly [callId: string]: WakeUp };
  readonly items: readonly Item[];
};

/** key: stable while the item grows. eventIds: of the events it is made of, the first one first. at: Unix seconds. */
type Base = {
  readonly key: string;
  readonly eventIds: readonly string[];
  readonly author: string;
  readonly at: number;
};

/** isSteering: a user's message that its run has read while it worked. */
export type TextItem = Base & {
  readonly kind: "text";
  readonly isUser: boolean;
  readonly isSteering: boolean;
  readonly text: string;
  readonly files: readonly Part[];
  readonly isStreaming: boolean;
  readonly isCutOff: boolean;
};
export type ThoughtItem = Base & { readonly kind: "thought"; readonly text: string; readonly isStreaming: boolean };

/** A tool call from call to response. waiting: for a person's answer. attempt: from 1; more after failed calls with
    the same arguments. wakeUp: the time and signal that it waits for. steps: of an agent that runs as this tool. */
export type ToolCall = {
  readonly id: string;
  readonly name: string;
  readonly args: JsonObject;
  readonly state: "running" | "waiting" | "done" | "failed" | "stopped";
  readonly response: JsonObject | null;
  readonly error: string | null;
  readonly isLongRunning: boolean;
  readonly wakeUp: WakeUp | null;
  readonly startedAt: number;
  readonly endedAt: number | null;
  readonly attempt: number;
  readonly eventIds: readonly string[];
  readonly steps: readonly Item[];
};
/** The calls of one reply of a model, which run side by side. */
export type CallsItem = Base & { readonly kind: "calls"; readonly calls: readonly ToolCall[] };

export type Branch = { readonly key: string; readonly name: string; readonly items: readonly Item[] };
export type BranchesItem = Base & { readonly kind: "branches"; readonly branches: readonly Branch[] };

export type TransferItem = Base & { readonly kind: "transfer"; readonly to: string; readonly reason: string | null };
export type StateChange = {
  readonly key: string;
  /** undefined: not set before, or not known. */
  readonly before: JsonValue | undefined;
  /** null: removed. */
  readonly after: JsonValue;
};
export type StateItem = Base & { readonly kind: "state"; readonly changes: readonly StateChange[] };
export type ArtifactItem = Base & { readonly kind: "artifact"; readonly name: string; readonly version: number };

/** Request to a person. callId: of the request, which the answer names. */
export type RequestItem = Base & {
  readonly kind: "request";
  readonly callId: string;
  readonly request:
    | { readonly type: "approval"; readonly tool: string; readonly args: JsonObject; readonly hint: string; readonly policy: JsonObject | null }
    | { readonly type: "login"; readonly config: JsonObject }
    | { readonly type: "input"; readonly message: string; readonly payload: JsonValue; readonly schema: JsonValue };
  readonly answer: Answer | null;
  /** False when the run ended in another way than waiting, so that no answer is expected any more. */
  readonly isOpen: boolean;
};
/** by: users, or the author of the event. comment: their words. */
export type Answer = {
  readonly eventId: string;
  readonly by: readonly string[];
  readonly at: number;
  readonly value: JsonObject;
  readonly comment: string;
};

export type CodeItem = Base & {
  readonly kind: "code";
  readonly code: string | null;
  readonly language: string;
  readonly output: string | null;
};
export type OutputItem = Base & { readonly kind: "output"; readonly node: string; readonly value: JsonValue };
export type ErrorItem = Base & { readonly kind: "error"; readonly code: string; readonly message: string };
export type CompactionItem = Base & { readonly kind: "compaction"; readonly text: string };
/** The beginning of a retry. */
export type RetryItem = Base & { readonly kind: "retry" };
export type RewindItem = Base & { readonly kind: "rewind"; readonly runId: string };

export type Item =
  | TextItem
  | ThoughtItem
  | CallsItem
  | BranchesItem
  | TransferItem
  | StateItem
  | ArtifactItem
  | RequestItem
  | CodeItem
  | OutputItem
  | ErrorItem
  | CompactionItem
  | RetryItem
  | RewindItem;
