// Records of the server's HTTP interface, in the names of its OpenAPI document.
export type JsonValue = null | boolean | number | string | readonly JsonValue[] | { readonly [key: string]: JsonValue };
export type JsonObject = { readonly [key: string]: JsonValue };

export type Blob = { readonly data?: string; readonly mimeType?: string; readonly displayName?: string };
export type FileData = { readonly fileUri?: string; readonly mimeType?: string; readonly displayName?: string };
export type FunctionCall = { readonly id?: string; readonly name: string; readonly args?: JsonObject };
export type FunctionResponse = { readonly id?: string; readonly name: string; readonly response?: JsonObject };
export type Part = {
  readonly text?: string;
  readonly thought?: boolean;
  readonly inlineData?: Blob;
  readonly fileData?: FileData;
  readonly functionCall?: FunctionCall;
  readonly functionResponse?: FunctionResponse;
  readonly executableCode?: { readonly code?: string; readonly language?: string };
  readonly codeExecutionResult?: { readonly output?: string; readonly outcome?: string };
};
export type Content = { readonly role?: string; readonly parts?: readonly Part[] };
export type ToolConfirmation = { readonly hint?: string; readonly confirmed?: boolean; readonly payload?: JsonValue };
export type EventActions = {
  readonly stateDelta?: JsonObject;
  readonly artifactDelta?: { readonly [name: string]: number };
  readonly requestedAuthConfigs?: JsonObject;
  readonly requestedToolConfirmations?: { readonly [call: string]: ToolConfirmation };
  readonly transferToAgent?: string;
  readonly transferReason?: string;
  readonly escalate?: boolean;
  readonly endOfAgent?: boolean;
  readonly agentState?: JsonObject;
  readonly compaction?: {
    readonly startTimestamp: number;
    readonly endTimestamp: number;
    readonly compactedContent: Content;
  };
  readonly rewindBeforeInvocationId?: string;
  readonly route?: JsonValue;
};
export type UsageMetadata = {
  readonly promptTokenCount?: number;
  readonly candidatesTokenCount?: number;
  readonly thoughtsTokenCount?: number;
  readonly totalTokenCount?: number;
};
export type Event = {
  readonly id: string;
  readonly invocationId: string;
  readonly author: string;
  readonly timestamp: number;
  readonly actions: EventActions;
  readonly content?: Content;
  readonly partial?: boolean;
  readonly errorCode?: string;
  readonly errorMessage?: string;
  readonly interrupted?: boolean;
  readonly branch?: string;
  readonly longRunningToolIds?: readonly string[];
  readonly nodeInfo?: { readonly path?: string };
  readonly output?: JsonValue;
  readonly isolationScope?: string;
  readonly usageMetadata?: UsageMetadata;
  readonly modelVersion?: string;
  readonly customMetadata?: JsonObject;
};
export type RunStatus = "queued" | "running" | "waiting" | "succeeded" | "failed" | "cancelled";
export type Run = {
  readonly id: string;
  readonly appName: string;
  readonly userId: string;
  readonly sessionId: string;
  readonly status: RunStatus;
  readonly createdAt: number;
  readonly startedAt?: number;
  readonly endedAt?: number;
  readonly attempts?: number;
  readonly error?: { readonly code: string; readonly message: string; readonly status?: number };
  readonly usage?: UsageMetadata;
  readonly afterSeq?: number;
};
export type Session = {
  readonly id: string;
  readonly appName: string;
  readonly userId: string;
  readonly state: JsonObject;
  readonly events: readonly Event[];
  readonly lastUpdateTime: number;
};
export type EventPage = { readonly events: readonly Event[]; readonly lastSeq: number };
export type AppInfo = {
  readonly name: string;
  readonly rootAgentName?: string;
  readonly description?: string;
  readonly error?: string;
};
