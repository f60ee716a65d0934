// Records of the server's HTTP interface. Written by ui/client/generate.py; don't edit.

export type JsonValue = null | boolean | number | string | readonly JsonValue[] | JsonObject;
export type JsonObject = { readonly [key: string]: JsonValue };

export type AddToMemoryRequest = {
  readonly sessionId: string;
};

/** `sub_agents` is snake_case on the wire, as ADK writes it. */
export type AgentInfo = {
  readonly name: string;
  readonly description?: string;
  readonly instruction?: string;
  readonly tools?: readonly Tool[];
  readonly sub_agents?: readonly string[];
};

/** Body of `/run` and `/run_sse`. app_name: empty where the server is to take its default app. */
export type AgentRunRequest = {
  readonly newMessage?: Content;
  readonly streaming?: boolean;
  readonly stateDelta?: JsonObject;
  readonly functionCallEventId?: string;
  readonly invocationId?: string;
  readonly customMetadata?: JsonObject;
  readonly serviceTier?: string;
  readonly maxLlmCalls?: number;
  readonly multitaskStrategy?: "enqueue" | "interrupt" | "reject";
  readonly onDisconnect?: "cancel" | "continue";
  readonly deadlineSeconds?: number;
  readonly clientTools?: readonly FunctionDeclaration[];
  /** May be left out where the server has a default app. */
  readonly appName?: string;
  readonly userId: string;
  readonly sessionId: string;
};

/**
 * An app; `error` is set, and `root_agent_name` empty, when it can't be loaded.
 *
 * missing: a sentence for each package, key and file that models of the app lack on this machine, with what mends it.
 */
export type AppInfo = {
  readonly name: string;
  readonly rootAgentName?: string;
  readonly description?: string;
  readonly language?: string;
  readonly isComputerUse?: boolean;
  readonly agents?: { readonly [key: string]: AgentInfo };
  readonly error?: string;
  readonly missing?: readonly string[];
};

/** version: from 0, one more with each save. create_time: Unix seconds. */
export type ArtifactVersion = {
  readonly version: number;
  readonly canonicalUri: string;
  readonly customMetadata?: JsonObject;
  readonly createTime: number;
  readonly mimeType?: string;
};

export type AuthCredentialTypes = "apiKey" | "http" | "oauth2" | "openIdConnect" | "serviceAccount";

/** Inline bytes. `data` is base64 in JSON. */
export type Blob = {
  readonly data?: string;
  readonly mimeType?: string;
  readonly displayName?: string;
};

/**
 * The authenticated caller of a request. user_id: the subject of its key or token, which may differ from the
 * session's user; key_id: None for a token of an identity provider.
 */
export type Caller = {
  readonly userId: string;
  readonly keyId?: string;
  readonly scopes?: readonly string[];
};

/** `outcome`: OUTCOME_OK, OUTCOME_FAILED, OUTCOME_DEADLINE_EXCEEDED or OUTCOME_UNSPECIFIED. */
export type CodeExecutionResult = {
  readonly outcome?: string;
  readonly output?: string;
  readonly id?: string;
};

/** `role` is "user" or "model"; function responses travel as "user". */
export type Content = {
  readonly role?: string;
  readonly parts?: readonly Part[];
};

/** events: those of an exported session, stored in order, all or none. options: must be empty. */
export type CreateSessionRequest = {
  readonly sessionId?: string;
  readonly state?: JsonObject;
  readonly events?: readonly Event[];
  readonly options?: JsonObject;
};

/**
 * A complete event is stored and immutable; a partial one is only streamed.
 *
 * timestamp: Unix seconds. error_code: a finish reason, or the class name of an error. long_running_tool_ids: those
 * calls of this event whose answer comes in a later message.
 */
export type Event = {
  readonly content?: Content;
  readonly partial?: boolean;
  readonly turnComplete?: boolean;
  readonly interrupted?: boolean;
  readonly errorCode?: string;
  readonly errorMessage?: string;
  readonly finishReason?: string;
  readonly usageMetadata?: GenerateContentResponseUsageMetadata;
  readonly modelVersion?: string;
  readonly groundingMetadata?: JsonObject;
  readonly citationMetadata?: JsonObject;
  readonly avgLogprobs?: number;
  readonly logprobsResult?: JsonObject;
  readonly customMetadata?: JsonObject;
  readonly inputTranscription?: Transcription;
  readonly outputTranscription?: Transcription;
  readonly liveSessionResumptionUpdate?: JsonObject;
  readonly liveSessionId?: string;
  readonly goAway?: JsonObject;
  readonly voiceActivity?: JsonObject;
  readonly turnCompleteReason?: string;
  readonly interactionId?: string;
  readonly interactionStatus?: string;
  readonly environmentId?: string;
  readonly cacheMetadata?: JsonObject;
  readonly id: string;
  readonly invocationId: string;
  readonly author: string;
  readonly timestamp: number;
  readonly actions: EventActions;
  readonly branch?: string;
  readonly longRunningToolIds?: readonly string[];
  readonly nodeInfo?: NodeInfo;
  readonly output?: JsonValue;
  readonly isolationScope?: string;
};

/**
 * Side effects of an event. In `state_delta` a null removes the key.
 *
 * deleted_artifact_ids, end_invocation: ADK for Java's; its client for Python refuses them, so they are written only
 * when they are set.
 */
export type EventActions = {
  readonly stateDelta?: JsonObject;
  readonly artifactDelta?: { readonly [key: string]: number };
  readonly requestedAuthConfigs?: JsonObject;
  readonly requestedToolConfirmations?: { readonly [key: string]: ToolConfirmation };
  readonly skipSummarization?: boolean;
  readonly transferToAgent?: string;
  readonly transferReason?: string;
  readonly escalate?: boolean;
  readonly endOfAgent?: boolean;
  readonly agentState?: JsonObject;
  readonly compaction?: EventCompaction;
  readonly rewindBeforeInvocationId?: string;
  readonly route?: JsonValue;
  readonly renderUiWidgets?: readonly JsonObject[];
  readonly setModelResponse?: JsonValue;
  readonly deletedArtifactIds?: readonly string[];
  readonly endInvocation?: boolean;
};

/** A summary that replaces all events between the two times (Unix seconds, both included). */
export type EventCompaction = {
  readonly startTimestamp: number;
  readonly endTimestamp: number;
  readonly compactedContent: Content;
};

/** A page of a session's log. `lastSeq`: sequence number of its last event, the `after` of the next page. */
export type EventPage = {
  readonly events: readonly Event[];
  readonly lastSeq: number;
};

export type ExecutableCode = {
  readonly code?: string;
  readonly language?: string;
  readonly id?: string;
};

export type FileData = {
  readonly fileUri?: string;
  readonly mimeType?: string;
  readonly displayName?: string;
};

export type FinalizeIdentityRequest = {
  readonly connectorName?: string;
  readonly userId?: string;
  readonly userIdValidationState?: string;
  readonly consentNonce?: string;
};

/**
 * seq: the last event that the fork has, by its sequence number (0: none), or event_id; by default the last one of
 * the log. session_id: of the fork; generated by default.
 */
export type ForkSessionRequest = {
  readonly seq?: number;
  readonly eventId?: string;
  readonly sessionId?: string;
};

export type FunctionCall = {
  readonly id?: string;
  readonly name: string;
  readonly args?: JsonObject;
  readonly partialArgs?: readonly PartialArg[];
  readonly willContinue?: boolean;
};

/** Parameters are given either as a Gemini `Schema` or as plain JSON Schema, not both; neither means none. */
export type FunctionDeclaration = {
  readonly name?: string;
  readonly description?: string;
  readonly parameters?: Schema;
  readonly parametersJsonSchema?: JsonObject;
  readonly response?: Schema;
  readonly responseJsonSchema?: JsonObject;
  readonly behavior?: string;
};

/** `response` is always an object: a tool's other results are wrapped as `{"result": value}`. */
export type FunctionResponse = {
  readonly id?: string;
  readonly name: string;
  readonly response?: JsonObject;
  readonly parts?: readonly FunctionResponsePart[];
  readonly scheduling?: string;
  readonly willContinue?: boolean;
};

export type FunctionResponsePart = {
  readonly inlineData?: Blob;
  readonly fileData?: FileData;
  readonly mediaProcessing?: JsonValue;
};

export type GenerateContentResponseUsageMetadata = {
  readonly promptTokenCount?: number;
  readonly candidatesTokenCount?: number;
  readonly totalTokenCount?: number;
  readonly thoughtsTokenCount?: number;
  readonly cachedContentTokenCount?: number;
  readonly toolUsePromptTokenCount?: number;
  readonly promptTokensDetails?: readonly ModalityTokenCount[];
  readonly candidatesTokensDetails?: readonly ModalityTokenCount[];
  readonly cacheTokensDetails?: readonly ModalityTokenCount[];
  readonly toolUsePromptTokensDetails?: readonly ModalityTokenCount[];
  readonly trafficType?: string;
};

/** A stored credential without its secrets. expires_at: Unix seconds. */
export type GrantedLogin = {
  readonly credentialKey: string;
  readonly authType: AuthCredentialTypes;
  readonly expiresAt?: number;
};

/** dotSrc: DOT text; omitted for an unknown event. */
export type GraphResponse = {
  readonly dotSrc?: string;
};

export type ListAppsResponse = {
  readonly apps: readonly AppInfo[];
};

/** Runs, newest first. next_page_token is None on the last page. */
export type ListRunsResponse = {
  readonly runs?: readonly Run[];
  readonly nextPageToken?: string;
};

/** Sums in the order of the groups. currency: of all costs. next_page_token is None on the last page. */
export type ListUsageResponse = {
  readonly currency?: string;
  readonly usage?: readonly UsageSum[];
  readonly nextPageToken?: string;
};

export type LogoConfig = {
  readonly logo_text?: string;
  readonly logo_image_url?: string;
};

export type ModalityTokenCount = {
  readonly modality?: string;
  readonly tokenCount?: number;
};

/**
 * Where in a workflow an event is from. path: `wf@1/node@2`; of apps without workflow it is empty.
 *
 * output_for: paths of the nodes whose output it is. message_as_output: the output is the content's text.
 */
export type NodeInfo = {
  readonly path?: string;
  readonly outputFor?: readonly string[];
  readonly messageAsOutput?: boolean;
};

export type Part = {
  readonly text?: string;
  readonly inlineData?: Blob;
  readonly fileData?: FileData;
  readonly functionCall?: FunctionCall;
  readonly functionResponse?: FunctionResponse;
  readonly executableCode?: ExecutableCode;
  readonly codeExecutionResult?: CodeExecutionResult;
  readonly toolCall?: ToolCall;
  readonly toolResponse?: ToolResponse;
  readonly audioTranscription?: Transcription;
  readonly thought?: boolean;
  readonly thoughtSignature?: string;
  readonly videoMetadata?: VideoMetadata;
  readonly mediaResolution?: PartMediaResolution;
  readonly partMetadata?: JsonObject;
  readonly mediaProcessing?: JsonValue;
  readonly speechMetadata?: JsonObject;
};

export type PartMediaResolution = {
  readonly level?: string;
  readonly numTokens?: number;
};

/** A piece of a function call's arguments that is still being streamed; `json_path` says where it belongs. */
export type PartialArg = {
  readonly jsonPath?: string;
  readonly stringValue?: string;
  readonly numberValue?: number;
  readonly boolValue?: boolean;
  readonly nullValue?: string;
  readonly willContinue?: boolean;
};

/** One of them is required. title: empty to remove it. */
export type PatchSessionRequest = {
  readonly stateDelta?: JsonObject;
  readonly title?: string;
};

/** A problem document (RFC 9457). `code` is the name of the error, to match on; `errors` lists faults. */
export type Problem = {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly code?: string;
  readonly errors?: readonly ProblemCause[];
};

/** One fault in a request. `loc` is the path to it. */
export type ProblemCause = {
  readonly type: string;
  readonly loc: readonly (string | number)[];
  readonly msg: string;
};

/**
 * The record of a run. `id` is also the invocation id of its events. Times are Unix seconds.
 *
 * after_seq: the session's last sequence number before the run's first event; message_after_seq: before the message
 * of `request`, which may be a later one. attempts: how often a process started or resumed the run; stalled: how many
 * of the last attempts made no progress; progress: the number of its stored events at the last attempt. request: for
 * starting it again; None of a live run, which can't be. idempotency_key: as the caller sent it; request_digest: of
 * the body with that key. asked: the digests of its pending approval and credential requests, by request id.
 * traceparent: of the trace that the request belongs to (W3C). caller: None without authentication. app_version: of
 * the app's code in the last attempt.
 */
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
  readonly stalled?: number;
  readonly progress?: number;
  readonly error?: RunError;
  readonly usage?: GenerateContentResponseUsageMetadata;
  readonly afterSeq?: number;
  readonly messageAfterSeq?: number;
  readonly request?: AgentRunRequest;
  readonly idempotencyKey?: string;
  readonly requestDigest?: string;
  readonly traceparent?: string;
  readonly caller?: Caller;
  readonly isLive?: boolean;
  readonly appVersion?: string;
  readonly asked?: { readonly [key: string]: string };
};

/** code: the class name of what was raised, and its HTTP status; or what a model reported, without a status. */
export type RunError = {
  readonly code: string;
  readonly message: string;
  readonly status?: number;
};

export type RunStatus = "cancelled" | "failed" | "queued" | "running" | "succeeded" | "waiting";

/** backend_url: empty for the origin that the page came from. */
export type RuntimeConfig = {
  readonly backendUrl?: string;
  readonly telemetry?: boolean;
};

/** artifact: a part with `inlineData`, `text` or `fileData`. */
export type SaveArtifactRequest = {
  readonly filename: string;
  readonly artifact: Part;
  readonly customMetadata?: JsonObject;
};

/** The Gemini API's subset of OpenAPI schemas; type names are upper case. */
export type Schema = {
  readonly type?: string;
  readonly title?: string;
  readonly description?: string;
  readonly format?: string;
  readonly nullable?: boolean;
  readonly default?: JsonValue;
  readonly example?: JsonValue;
  readonly enum?: readonly string[];
  readonly anyOf?: readonly Schema[];
  readonly items?: Schema;
  readonly properties?: { readonly [key: string]: Schema };
  readonly required?: readonly string[];
  readonly propertyOrdering?: readonly string[];
  readonly additionalProperties?: JsonValue;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minProperties?: number;
  readonly maxProperties?: number;
  readonly pattern?: string;
  readonly ref?: string;
  readonly defs?: JsonValue;
};

/**
 * A copy of a session: the maps and lists belong to the holder, the events are shared and immutable.
 *
 * state: merged view, with `app:` and `user:` keys under their prefixes. events: any iterable is taken.
 * last_update_time: Unix seconds, the timestamp of the last stored event.
 */
export type Session = {
  readonly id: string;
  readonly appName: string;
  readonly userId: string;
  readonly state: JsonObject;
  readonly events: readonly Event[];
  readonly lastUpdateTime: number;
};

/**
 * A request to run in a session.
 *
 * new_message None runs on the stored history. function_call_event_id is sent by ADK's UI and has no effect.
 * invocation_id: the run to continue. max_llm_calls: lowers the limit of the app or the server. deadline_seconds: the
 * run is failed after this time. client_tools: functions that the client executes; a call stays open until a message
 * brings its function response.
 */
export type SessionRunRequest = {
  readonly newMessage?: Content;
  readonly streaming?: boolean;
  readonly stateDelta?: JsonObject;
  readonly functionCallEventId?: string;
  readonly invocationId?: string;
  readonly customMetadata?: JsonObject;
  readonly serviceTier?: string;
  readonly maxLlmCalls?: number;
  readonly multitaskStrategy?: "enqueue" | "interrupt" | "reject";
  readonly onDisconnect?: "cancel" | "continue";
  readonly deadlineSeconds?: number;
  readonly clientTools?: readonly FunctionDeclaration[];
};

/** key: an API key or a token; an empty one signs out. */
export type SignInRequest = {
  readonly key: string;
};

/**
 * Snake case, as ADK's UI reads it. Ids are hex text, times nanoseconds since the epoch; parent_span_id None for
 * the root. No attribute is null. logs: filled in when the span is shown, never null.
 */
export type SpanRecord = {
  readonly name: string;
  readonly trace_id: string;
  readonly span_id: string;
  readonly parent_span_id: string | null;
  readonly start_time: number;
  readonly end_time: number;
  readonly attributes: { readonly [key: string]: string | number | boolean | readonly string[] };
  readonly logs?: readonly JsonObject[];
};

/** The consent to usage reports. The server sends none. */
export type TelemetryConsent = {
  readonly telemetry: boolean;
};

/** An entry of a request's tool list: function declarations, or one built-in of the model's service. */
export type Tool = {
  readonly functionDeclarations?: readonly FunctionDeclaration[];
  readonly googleSearch?: JsonObject;
  readonly googleSearchRetrieval?: JsonObject;
  readonly googleMaps?: JsonObject;
  readonly enterpriseWebSearch?: JsonObject;
  readonly urlContext?: JsonObject;
  readonly codeExecution?: JsonObject;
  readonly retrieval?: JsonObject;
  readonly computerUse?: JsonObject;
  readonly fileSearch?: JsonObject;
  readonly parallelAiSearch?: JsonObject;
  readonly exaAiSearch?: JsonObject;
};

/** A call of a tool that the model's service runs by itself. */
export type ToolCall = {
  readonly id?: string;
  readonly toolType?: string;
  readonly args?: JsonObject;
};

export type ToolConfirmation = {
  readonly hint?: string;
  readonly confirmed?: boolean;
  readonly payload?: JsonValue;
};

export type ToolResponse = {
  readonly id?: string;
  readonly toolType?: string;
  readonly response?: JsonObject;
};

export type Transcription = {
  readonly text?: string;
  readonly finished?: boolean;
  readonly languageCode?: string;
  readonly speakerLabel?: string;
  readonly words?: readonly JsonObject[];
  readonly startOffset?: string;
  readonly endOffset?: string;
};

/**
 * The usage of an app, or of one user, session, run, model and day of it, as grouped; the others are None.
 *
 * model: as the provider reported it. day: 2026-01-31 (UTC). total_token_count: with the estimated ones, of calls
 * whose usage the model did not report; only apps with a budget estimate them. unpriced_token_count: those of models
 * without a known price. cost: None if there are any.
 */
export type UsageSum = {
  readonly userId?: string;
  readonly sessionId?: string;
  readonly runId?: string;
  readonly model?: string;
  readonly day?: string;
  readonly calls?: number;
  readonly promptTokenCount?: number;
  readonly cachedContentTokenCount?: number;
  readonly toolUsePromptTokenCount?: number;
  readonly candidatesTokenCount?: number;
  readonly thoughtsTokenCount?: number;
  readonly totalTokenCount?: number;
  readonly estimatedTokenCount?: number;
  readonly unpricedTokenCount?: number;
  readonly cost?: number;
};

export type VideoMetadata = {
  readonly startOffset?: string;
  readonly endOffset?: string;
  readonly fps?: number;
};
