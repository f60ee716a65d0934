// The items of a run's consecutive events.
import type { Event, FunctionCall, JsonObject, JsonValue, Part, RunStatus, WakeUp } from "greenroom-client";
import { REMOVED } from "../inspector/state";
import { isRequest, objectOf, requestOf, textOf } from "./requests";
import type { Answer, Branch, BranchesItem, CallsItem, CodeItem, Item, LoggedEvent, RequestItem, StateChange, ToolCall } from "./model";

/** The session's state as far as the log holds it. */
export type State = ReadonlyMap<string, JsonValue>;
export type Built = {
  readonly items: readonly Item[];
  readonly state: State;
  readonly models: readonly string[];
  readonly tokens: number;
};
export type Responses = ReadonlyMap<string, readonly LoggedEvent[]>;

const TRANSFER = "transfer_to_agent";
const ANSWERS = "greenroom_answers"; // in the metadata of the part with the answer
/** Begins the id of the event with a message that an active run has read; the id of the request's own run follows. */
export const STEERING = "steering-";
const RETRY = "greenroom:retry"; // in the metadata of the event with which a retry begins
const HIDDEN_STATE = "_"; // keys of frameworks and tools begin with it; the inspector shows them
const WAKE_UPS = "greenroom_wake_ups"; // in the metadata of the event with the calls

/** A list of items that grows, with the columns of each of its blocks of parallel branches. */
type Column = { readonly key: string; readonly items: Item[]; readonly blocks: Map<Item, Column[]> };

function newColumn(key: string): Column {
  return { key, items: [], blocks: new Map() };
}

class Builder {
  readonly root = newColumn("");
  readonly state: Map<string, JsonValue>;
  readonly models = new Set<string>();
  tokens = 0;
  /** The steps of agents that run as tools, by the id of their call. */
  private readonly steps = new Map<string, Column>();
  private readonly callsItems: { column: Column; at: number }[] = [];
  private readonly failed = new Map<string, number>();

  constructor(
    before: State,
    private readonly status: RunStatus,
    private readonly responses: Responses,
  ) {
    this.state = new Map(before);
  }

  add(event: Event): void {
    this.tokens += event.usageMetadata?.totalTokenCount ?? 0;
    if (event.modelVersion) this.models.add(event.modelVersion);
    const column = this.columnOf(event);
    const items = event.author === "user" ? userItems(event) : this.agentItems(event);
    for (const item of [...items, ...this.effects(event)]) {
      if (item.kind === "calls") {
        this.callsItems.push({ column, at: column.items.length });
        for (const call of item.calls) this.steps.set(call.id, newColumn(""));
      }
      column.items.push(item);
    }
  }

  build(): Built {
    for (const { column, at } of this.callsItems.reverse()) {
      const item = column.items[at];
      if (item?.kind !== "calls") continue;
      const calls = item.calls.map((call) => ({ ...call, steps: finished(this.steps.get(call.id) ?? newColumn("")) }));
      if (calls.some((call) => call.steps.length > 0)) column.items[at] = { ...item, calls };
    }
    return { items: finished(this.root), state: this.state, models: [...this.models], tokens: this.tokens };
  }

  private columnOf(event: Event): Column {
    const scope = event.isolationScope ?? "";  // of an agent that runs as a tool it ends with the call's id
    const inner = this.steps.get(scope.slice(scope.lastIndexOf("@") + 1));
    if (inner !== undefined) return inner;
    const branch = event.branch ?? "";
    let column = this.root;
    while (branch !== column.key) {
      const last = column.items.at(-1);
      let open = last === undefined ? undefined : column.blocks.get(last);
      if (open === undefined) {
        const item: BranchesItem = { ...base(event, `branches:${column.key}`), kind: "branches", branches: [] };
        column.items.push(item);
        column.blocks.set(item, (open = []));
      }
      let within = open.find(({ key }) => branch === key || branch.startsWith(`${key}.`));
      if (within === undefined) open.push((within = newColumn(branch)));
      column = within;
    }
    return column;
  }

  private agentItems(event: Event): Item[] {
    const items = messageItems(event, false);
    const calls = (event.content?.parts ?? []).flatMap((part) => (part.functionCall ? [part.functionCall] : []));
    const shown: ToolCall[] = [];
    for (const call of calls) {
      if (isRequest(event, call)) items.push(this.request(event, call));
      else if (!(call.name === TRANSFER && this.isTransferred(call))) shown.push(this.toolCall(event, call));
    }
    if (shown.length > 0) {
      const eventIds = [...new Set(shown.flatMap((call) => call.eventIds))];
      const item: CallsItem = { ...base(event, "calls"), kind: "calls", eventIds, calls: shown };
      items.push(item);
    }
    return items;
  }

  private isTransferred(call: FunctionCall): boolean {
    return (this.responses.get(call.id ?? "") ?? []).some(({ event }) => event.actions.transferToAgent);
  }

  private toolCall(event: Event, call: FunctionCall): ToolCall {
    const id = call.id ?? `${event.id}:${call.name}`;
    const isLongRunning = event.longRunningToolIds?.includes(id) ?? false;
    const found = (this.responses.get(id) ?? []).filter((logged) => logged.event.timestamp >= event.timestamp);
    const last = found.at(-1)?.event;
    const response = last?.content?.parts?.find((part) => part.functionResponse?.id === id)?.functionResponse?.response ?? null;
    const asks = last !== undefined && (id in (last.actions.requestedToolConfirmations ?? {}) || id in (last.actions.requestedAuthConfigs ?? {}));
    const isActive = this.status === "running" || this.status === "queued";
    const isAnswered = found.some((logged) => logged.event.author === "user");
    const error = asks || last === undefined ? null : errorIn(last, response);
    const attemptOf = `${event.author}\n${call.name}\n${JSON.stringify(call.args ?? {})}`;
    const attempt = 1 + (this.failed.get(attemptOf) ?? 0);
    if (error !== null) this.failed.set(attemptOf, attempt);
    let state: ToolCall["state"];
    if (error !== null) state = "failed";
    else if (asks || (isLongRunning && !isAnswered)) state = isActive || this.status === "waiting" ? "waiting" : "stopped";
    else if (last !== undefined) state = "done";
    else state = isActive ? "running" : this.status === "waiting" ? "waiting" : "stopped";
    return {
      id,
      name: call.name,
      args: call.args ?? {},
      state,
      response: asks ? null : response,
      error,
      isLongRunning,
      wakeUp: state === "waiting" ? wakeUpOf(event, id) : null,
      startedAt: event.timestamp,
      endedAt: state === "running" || state === "waiting" ? null : (last?.timestamp ?? null),
      attempt,
      eventIds: [event.id, ...found.map((logged) => logged.event.id)],
      steps: [],
    };
  }

  private request(event: Event, call: FunctionCall): RequestItem {
    const callId = call.id ?? "";
    const answer = (this.responses.get(callId) ?? []).find((logged) => logged.event.author === "user")?.event;
    const part = answer?.content?.parts?.find((one) => one.functionResponse?.id === callId);
    return {
      ...base(event, `request:${callId}`),
      eventIds: answer === undefined ? [event.id] : [event.id, answer.id],
      kind: "request",
      callId,
      request: requestOf(call),
      answer: answer === undefined ? null : answerIn(answer, part),
      isOpen: answer === undefined && (this.status === "waiting" || this.status === "running"),
    };
  }

  /** Side effects on the session, and what ended in an error. */
  private effects(event: Event): Item[] {
    const { actions } = event;
    const items: Item[] = [];
    const changes: StateChange[] = [];
    for (const [key, after] of Object.entries(actions.stateDelta ?? {})) {
      const before = this.state.get(key);
      if (after === REMOVED) this.state.delete(key);
      else this.state.set(key, after);
      if (!key.startsWith(HIDDEN_STATE)) changes.push({ key, before, after });
    }
    if (changes.length > 0) items.push({ ...base(event, "state"), kind: "state", changes });
    for (const [name, version] of Object.entries(actions.artifactDelta ?? {})) {
      items.push({ ...base(event, `artifact:${name}`), kind: "artifact", name, version });
    }
    if (actions.transferToAgent) {
      items.push({ ...base(event, "transfer"), kind: "transfer", to: actions.transferToAgent, reason: actions.transferReason ?? null });
    }
    if (actions.compaction) {
      const text = (actions.compaction.compactedContent.parts ?? []).map((part) => part.text ?? "").join("");
      items.push({ ...base(event, "compaction"), kind: "compaction", text });
    }
    if (event.customMetadata?.[RETRY] !== undefined) items.push({ ...base(event, "retry"), kind: "retry" });
    if (actions.rewindBeforeInvocationId) {
      items.push({ ...base(event, "rewind"), kind: "rewind", runId: actions.rewindBeforeInvocationId });
    }
    const isMessage = event.content?.parts?.some((part) => part.text) ?? false;
    if (event.output !== undefined && event.output !== null && !isMessage && event.nodeInfo?.path) {
      items.push({ ...base(event, "output"), kind: "output", node: nodeName(event.nodeInfo.path), value: event.output });
    }
    const isResponse = event.content?.parts?.some((part) => part.functionResponse) ?? false;
    if (event.errorCode && !isResponse) {
      items.push({ ...base(event, "error"), kind: "error", code: event.errorCode, message: event.errorMessage ?? "" });
    }
    return items;
  }
}

export function buildItems(events: readonly LoggedEvent[], before: State, status: RunStatus, responses: Responses): Built {
  const builder = new Builder(before, status, responses);
  for (const { event } of events) builder.add(event);
  return builder.build();
}

function base(event: Event, name: string) {
  return { key: `${event.id}:${name}`, eventIds: [event.id], author: event.author, at: event.timestamp } as const;
}

function userItems(event: Event): Item[] {
  const isAnswer = event.content?.parts?.some((part) => part.functionResponse) ?? false;
  return isAnswer ? messageItems(event, false).filter((item) => item.kind !== "text" || item.text !== "") : messageItems(event, false);
}

/** Visible content of an event: of a live conversation the words, not the sound. */
export function partsOf(event: Event): readonly Part[] {
  const said = event.outputTranscription?.text || event.inputTranscription?.text;
  const parts = (event.content?.parts ?? []).filter((part) => !part.inlineData?.mimeType?.startsWith("audio/pcm"));
  return said ? [...parts, { text: said }] : parts;
}

/** Texts, thoughts, files and code of a message. The same keys while it is streamed and when it is stored. */
export function messageItems(event: Event, isStreaming: boolean): Item[] {
  const items: Item[] = [];
  const isCutOff = event.interrupted === true && !event.errorCode;
  let texts = 0;
  let codes = 0;
  for (const part of partsOf(event)) {
    const last = items.at(-1);
    if (part.executableCode || part.codeExecutionResult) addCode(items, event, part, codes++);
    else if (isFile(part)) {
      if (last?.kind === "text") items[items.length - 1] = { ...last, files: [...last.files, part] };
      else items.push({ ...text(event, texts++, "", isStreaming, isCutOff), files: [part] });
    } else if (!part.text) continue;
    else if (part.thought) {
      if (last?.kind === "thought") items[items.length - 1] = { ...last, text: last.text + part.text };
      else items.push({ ...base(event, `thought${texts++}`), kind: "thought", text: part.text, isStreaming });
    } else if (last?.kind === "text") items[items.length - 1] = { ...last, text: last.text + part.text };
    else items.push(text(event, texts++, part.text, isStreaming, isCutOff));
  }
  return items;
}

function text(event: Event, index: number, content: string, isStreaming: boolean, isCutOff: boolean) {
  const isUser = event.author === "user";
  const isSteering = isUser && event.id.startsWith(STEERING);
  return { ...base(event, `text${index}`), kind: "text", isUser, isSteering, text: content, files: [] as readonly Part[], isStreaming, isCutOff } as const;
}

function addCode(items: Item[], event: Event, part: Part, index: number): void {
  const last = items.at(-1);
  const output = part.codeExecutionResult?.output ?? null;
  if (last?.kind === "code" && last.output === null && part.codeExecutionResult) {
    items[items.length - 1] = { ...last, output: output ?? "" };
    return;
  }
  const language = (part.executableCode?.language ?? "").toLowerCase();
  const item: CodeItem = { ...base(event, `code${index}`), kind: "code", code: part.executableCode?.code ?? null, language, output };
  items.push(item);
}

export function isFile(part: Part): boolean {
  return Boolean(part.inlineData) || Boolean(part.fileData);
}

function errorIn(event: Event, response: JsonObject | null): string | null {
  const error = response?.error;
  if (error !== undefined && error !== null && error !== false) return typeof error === "string" ? error : JSON.stringify(error);
  return event.errorCode ? (event.errorMessage ?? event.errorCode) : null;
}

function answerIn(event: Event, part: Part | undefined): Answer {
  const stored = part?.partMetadata?.[ANSWERS];
  const given = Array.isArray(stored) ? (stored as readonly JsonValue[]).map(objectOf) : [];
  const users = given.flatMap(({ userId }) => textOf(userId) || []);
  return {
    eventId: event.id,
    by: users.length > 0 ? users : [event.author],
    at: event.timestamp,
    value: part?.functionResponse?.response ?? {},
    comment: given.flatMap(({ comment }) => textOf(comment) || []).join("; "),
  };
}

function wakeUpOf(event: Event, callId: string): WakeUp | null {
  const stored = objectOf(event.customMetadata?.[WAKE_UPS])[callId];
  return stored === undefined ? null : (objectOf(stored) as unknown as WakeUp);
}

/** `wf@1/node@2` is the second run of `node`. */
function nodeName(path: string): string {
  return (path.split("/").at(-1) ?? path).replace(/@1$/, "");
}

/** Fills in the columns of each block; a block of one branch is no block. */
function finished(column: Column): readonly Item[] {
  if (column.blocks.size === 0) return column.items;
  return column.items.flatMap((item) => {
    const columns = column.blocks.get(item);
    if (columns === undefined || item.kind !== "branches") return [item];
    if (columns.length === 1 && columns[0] !== undefined) return finished(columns[0]);
    const branches: Branch[] = columns.map((one) => ({ key: one.key, name: one.key.split(".").at(-1) ?? one.key, items: finished(one) }));
    return [{ ...item, branches }];
  });
}
