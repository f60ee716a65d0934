// Records of the server's HTTP interface. Written by ui/client/generate.py; don't edit.

export type JsonValue = null | boolean | number | string | readonly JsonValue[] | JsonObject;
export type JsonObject = { readonly [key: string]: JsonValue };

/** The cases that were made of answers. */
export type AddCasesResponse = {
  /** The set. */
  readonly evalSetId: string;
  /** The version of the set with these cases. */
  readonly evalSetVersion: number | null;
  /** The new cases. */
  readonly added?: readonly CaseOfAnswer[];
  /** Answers that have a case in the set already, or of which none can be made. */
  readonly skipped?: readonly CaseOfAnswer[];
  /** `page_token` of the next request; None on the last page. */
  readonly nextPageToken?: string;
};

/** A filter for feedback whose answers become cases; missing fields filter nothing. */
export type AddFeedbackRequest = {
  /** Only feedback on sessions of this user. */
  readonly userId?: string;
  /** Only feedback of this name. */
  readonly name?: string;
  /** Only feedback with this label. */
  readonly label?: string;
  /** Only feedback of the session's `user`, or of a `service`. */
  readonly source?: "service" | "user";
  /** Only scores from this one on; true is 1, and false is 0. */
  readonly minScore?: number;
  /** Only scores up to this one. */
  readonly maxScore?: number;
  /** Only feedback given at or after these Unix seconds. */
  readonly createdFrom?: number;
  /** Only feedback given before these Unix seconds. */
  readonly createdBefore?: number;
  /** Maximum number of feedback that is looked at. The newest is taken. */
  readonly limit?: number;
  /** The `nextPageToken` of the previous page. */
  readonly pageToken?: string;
};

/** A session that becomes a case. */
export type AddSessionToEvalSetRequest = {
  /** The id of the new case. */
  readonly evalId: string;
  /** The session's id. */
  readonly sessionId: string;
  /** The session's user. */
  readonly userId: string;
};

/** The session that is added to memory. */
export type AddToMemoryRequest = {
  /** The session whose events are added. */
  readonly sessionId: string;
};

/** An agent that is in one version only, or differs. */
export type AgentChange = {
  /** The agent's name. */
  readonly name: string;
  /** The kind of the difference. */
  readonly change: "added" | "changed" | "removed";
  /** Fields with other values, but tools: instruction, model, settings, sub-agents. */
  readonly fields: readonly FieldChange[];
  /** Tools that differ. */
  readonly tools: readonly ToolChange[];
};

/** An agent of an app, as it was when a version was published. */
export type AgentDescription = {
  /** The agent's name. */
  readonly name: string;
  /** The name of its class. */
  readonly kind: string;
  /** A description of the agent. */
  readonly description?: string;
  /** The instruction for its model; of a computed one, the name of the function. */
  readonly instruction?: string;
  /** The instruction for all agents of the tree. */
  readonly globalInstruction?: string;
  /** The name of its model; none for agents without one. */
  readonly model?: string;
  /** Other settings that differ from their defaults: those of the model calls, schemas, names of callbacks. */
  readonly settings?: JsonObject;
  /** The declarations of its tools. */
  readonly tools?: readonly FunctionDeclaration[];
  /** Names of the agents below it, in their order. */
  readonly subAgents?: readonly string[];
};

/** Instructions and tools of an agent. */
export type AgentDetails = {
  /** The agent's name. */
  readonly name: string;
  /** The instructions for the agent's model. */
  readonly instructions?: string;
  /** The tools that the agent's model was offered. */
  readonly toolDeclarations?: readonly Tool[];
};

/** The files of an app that can be edited. */
export type AgentFileList = {
  /** The YAML files of the app, relative to its folder. */
  readonly names: readonly string[];
};

/** `sub_agents` is snake_case on the wire, as ADK writes it. */
export type AgentInfo = {
  /** The agent's name. */
  readonly name: string;
  /** A description of the agent. */
  readonly description?: string;
  /** The agent's instruction for the model. */
  readonly instruction?: string;
  /** The tools that the agent offers its model. */
  readonly tools?: readonly Tool[];
  /** Names of the agents it can delegate to. */
  readonly sub_agents?: readonly string[];
};

/** Body of `/run` and `/run_sse`. */
export type AgentRunRequest = {
  /** The user's message or function responses; None runs on the stored history. */
  readonly newMessage?: Content;
  /** Whether partial events are sent. */
  readonly streaming?: boolean;
  /** Changes of the session's state, stored with the message. */
  readonly stateDelta?: JsonObject;
  /** Sent by ADK's UI, without effect. */
  readonly functionCallEventId?: string;
  /** The run to continue. */
  readonly invocationId?: string;
  /** Stored with the user's event. */
  readonly customMetadata?: JsonObject;
  /** The service tier requested from the model's provider. */
  readonly serviceTier?: string;
  /** Lowers the limit of the app or the server. */
  readonly maxLlmCalls?: number;
  /** Policy for a session that already has an active run. */
  readonly multitaskStrategy?: "enqueue" | "interrupt" | "reject" | "steer";
  /** Runs of a higher priority start first where the server limits the runs that it executes at a time; by default that of the app. */
  readonly priority?: number;
  /** Whether the run continues or is cancelled when the client disconnects. */
  readonly onDisconnect?: "cancel" | "continue";
  /** The run is failed after this time, which counts from its start. */
  readonly deadlineSeconds?: number;
  /** Unix seconds at which the run starts; at once if they have passed. */
  readonly startAt?: number;
  /** Seconds after which the run starts, in place of `startAt`. */
  readonly delaySeconds?: number;
  /** Functions that the client executes; a call stays open until a message brings its function response. */
  readonly clientTools?: readonly FunctionDeclaration[];
  /** Receivers of the run's states, besides those of the app. */
  readonly webhooks?: readonly Webhook[];
  /** Empty if the server is to take its default app. */
  readonly appName?: string;
  /** The owner of the session. */
  readonly userId: string;
  /** The session to run in. */
  readonly sessionId: string;
};

/** The request after an answer. */
export type AnswerRequestResponse = {
  /** With the answer. */
  readonly request: HumanRequest;
  /** The run, which continues if the answer decided the request; None for callers who may not see it. */
  readonly run?: Run;
};

/** The record of a key. The key itself is not stored. */
export type ApiKeyInfo = {
  /** The public part of the key. */
  readonly id: string;
  /** A description. */
  readonly name?: string;
  /** The user that the key acts for. */
  readonly userId: string;
  /** The service account that the key belongs to, which has its permissions. */
  readonly serviceAccount?: string;
  /** Its scopes, without those of its roles. */
  readonly scopes?: readonly string[];
  /** Names of its roles. */
  readonly roles?: readonly string[];
  /** The only apps that the key may access; None: all. */
  readonly apps?: readonly string[];
  /** Unix seconds, as the other times. */
  readonly createdAt: number;
  /** None: never. */
  readonly expiresAt?: number;
  /** None for a key that isn't revoked. */
  readonly revokedAt?: number;
  /** Up to a minute old; None for a key that was never used. */
  readonly lastUsedAt?: number;
};

/** Instructions and tools of an app's agents. */
export type AppDetails = {
  /** The details of each agent, by its name. */
  readonly agentDetails?: { readonly [key: string]: AgentDetails };
};

/** An app of the server. */
export type AppInfo = {
  /** The app's name. */
  readonly name: string;
  /** Empty when the app can't be loaded. */
  readonly rootAgentName?: string;
  /** The description of the root agent. */
  readonly description?: string;
  /** The programming language of the agents, or `yaml`. */
  readonly language?: string;
  /** Whether an agent controls a computer. */
  readonly isComputerUse?: boolean;
  /** The agents by name. */
  readonly agents?: { readonly [key: string]: AgentInfo };
  /** The error that keeps the app from being loaded. */
  readonly error?: string;
  /** A sentence for each package, key and file that the app's models need and this machine lacks, with the remedy. */
  readonly missing?: readonly string[];
  /** Whether a model of the app can hold a live conversation by voice. */
  readonly isLive?: boolean;
};

/** A webhook of an app. */
export type AppWebhook = {
  /** `https://` or `http://`, without a user name and password. */
  readonly url: string;
  /** The states that are sent; by default all but `queued` and `running`. */
  readonly states?: readonly RunStatus[];
  /** Unique in its run or app; by default the server chooses one. */
  readonly id?: string;
  /** Whether the app's code or YAML has it; it is changed there. */
  readonly isOfCode?: boolean;
};

/**
 * The people who approve calls, in place of the session's user. A request keeps the policy that it was made with.
 *
 * It is approved when `required` of them have approved it. It is refused when as many have refused it, or when those who are left are too few to approve it. Each person counts once.
 */
export type ApprovalPolicy = {
  /** Users who may answer. */
  readonly users?: readonly string[];
  /** Callers whose API key or token has this scope, `approve:NAME`, may answer, too. */
  readonly scope?: string;
  /** The number of approvals that is needed. */
  readonly required?: number;
  /** Whether the session's user may not answer. */
  readonly excludesRequester?: boolean;
  /** Whether those who may answer may name somebody else to answer in their place. */
  readonly mayDelegate?: boolean;
  /** The reach of those who may answer: the request alone, or its session, too. */
  readonly sees?: "request" | "session";
  /** Time from the request until `default` is its answer; None: it stays open. */
  readonly deadlineSeconds?: number;
  /** The answer at the deadline. */
  readonly default?: "approve" | "refuse";
};

/** A version of an artifact. */
export type ArtifactVersion = {
  /** Counted from 0, one more with each save. */
  readonly version: number;
  /** The URI of this version. */
  readonly canonicalUri: string;
  /** Stored when the version was saved. */
  readonly customMetadata?: JsonObject;
  /** Unix seconds. */
  readonly createTime: number;
  /** The media type of the content. */
  readonly mimeType?: string;
};

/** One line of the audit trail: who did what to what, when, and what came of it. */
export type AuditEntry = {
  /** The kind of the entry. */
  readonly action: "access.refused" | "app.changed" | "app.traffic.changed" | "app.version.deleted" | "app.version.published" | "app.webhook.changed" | "app.webhook.deleted" | "artifact.changed" | "artifact.deleted" | "audit.read" | "budget.changed" | "budget.deleted" | "credential.revoked" | "data.read" | "evaluation.changed" | "guardrail.asked" | "guardrail.blocked" | "guardrail.redacted" | "head.signed" | "key.created" | "key.revoked" | "memory.changed" | "memory.deleted" | "request.answered" | "request.delegated" | "role.changed" | "role.deleted" | "run.cancelled" | "run.continued" | "run.retried" | "run.signaled" | "run.started" | "run.webhook.changed" | "run.webhook.deleted" | "schedule.changed" | "schedule.created" | "schedule.deleted" | "schedule.paused" | "schedule.resumed" | "schedule.started" | "server.started" | "server.stopped" | "service_account.changed" | "service_account.deleted" | "session.changed" | "session.created" | "session.deleted" | "session.expired" | "session.forked" | "session.rewound" | "trail.broken" | "trail.cut" | "user.deleted" | "user.exported" | "webhook.redelivered" | "webhook.tested";
  /** Whether it was done, or refused. */
  readonly outcome: "refused" | "success";
  /** Unix time of the server in milliseconds. */
  readonly time: number;
  /** The user of the key or token that was sent; none without authentication, and for the server itself. */
  readonly subject?: string;
  /** The id of the API key that was sent. */
  readonly keyId?: string;
  /** `X-Request-Id` of the HTTP request, or a random id; the same in all entries of one request. */
  readonly httpRequestId?: string;
  /** The app that it concerns. */
  readonly appName?: string;
  /** The user whose data it concerns. */
  readonly userId?: string;
  /** The session that it concerns. */
  readonly sessionId?: string;
  /** The run that it concerns. */
  readonly runId?: string;
  /** The request to a person that was answered or delegated. */
  readonly requestId?: string;
  /** Another thing that it concerns: the id of a webhook, schedule, credential or key, the name of an artifact; of a refused or reading request its method and path; of a broken trail what is wrong; of a change of traffic the shares of the versions. */
  readonly target?: string;
  /** The HTTP status of a refusal. */
  readonly status?: number;
  /** The code of the error of a refusal. */
  readonly error?: string;
  /** Of a refusal without valid credentials: how many such refusals before it were too many to be recorded. */
  readonly unrecorded?: number;
  /** The tool of an answered request, or of a call or result that a guardrail has checked. */
  readonly tool?: string;
  /** Of an answered request: SHA-256 of the arguments that the person was shown, as JSON with sorted keys. */
  readonly argumentsDigest?: string;
  /** Of an approval with a payload, which may be arguments in place of the shown ones: the SHA-256 of its JSON. */
  readonly payloadDigest?: string;
  /** The person in whose name a request was answered or delegated; none if a deadline's default answers. */
  readonly answeredBy?: string;
  /** Of an answer: `approved`, `rejected`, `answered` (no approval), or `counted as an approval` and `counted as a rejection` if the request needs more answers. Of a delegation: the other person. */
  readonly decision?: string;
  /** The version of the app's code that runs, or was published. */
  readonly appVersion?: string;
  /** The model of the agent that asks, or of the app's root agent. */
  readonly model?: string;
  /** Of a guardrail's decision: the name of its check. */
  readonly check?: string;
  /** Of a guardrail's decision: `user_message`, `model_output`, `tool_arguments` or `tool_results`. */
  readonly where?: string;
  /** Of a guardrail's decision: its id, which is in the metadata of the run's event, too. */
  readonly decisionId?: string;
  /** Of a guardrail's decision: the id of the call whose arguments or result was checked. */
  readonly callId?: string;
  /** Of an answer about a model's call: the version of the model, as its provider has named it with the call. */
  readonly modelVersion?: string;
  /** Of a start of a server: SHA-256 of its settings, so that a change of settings shows. */
  readonly settingsDigest?: string;
  /** Of a cut: by chain, the first entry that is kept. Earlier ones were removed. */
  readonly cuts?: readonly ChainHead[];
  /** Of a signed head: the newest entries of the other chains. */
  readonly heads?: readonly ChainHead[];
  /** Of a signed head: the first 16 hexadecimal digits of the SHA-256 of the public key's 32 bytes. */
  readonly signedBy?: string;
  /** The number of the chain; each server writes one. */
  readonly chain?: number;
  /** 1 for the first entry of a chain. */
  readonly sequence?: number;
  /** `hash` of the chain's entry before; zeros for the first one. */
  readonly previous?: string;
  /** SHA-256 of the entry's canonical JSON without `hash` and `signature`. */
  readonly hash?: string;
  /** Of a signed head: the Ed25519 signature of `greenroom-audit-head:` and `hash`, in hexadecimal digits. */
  readonly signature?: string;
};

/** The state of the audit trail as a whole. */
export type AuditState = {
  /** The newest signed head. */
  readonly signed?: AuditEntry;
  /** The newest entry `trail.broken`: a server has found that the trail was changed. */
  readonly broken?: AuditEntry;
};

export type AuthCredentialTypes = "apiKey" | "http" | "oauth2" | "openIdConnect" | "serviceAccount";

/** Inline bytes. */
export type Blob = {
  /** The bytes; base64 in JSON. */
  readonly data?: string;
  /** The media type of the data. */
  readonly mimeType?: string;
  /** The file's name for display. */
  readonly displayName?: string;
};

/** A stored limit of the models' tokens or cost in an app. It takes the place of limits in the app's code with the same `per` and `window`, and the limit of one user or key that of each. */
export type Budget = {
  /** The owner of the limited usage: a user in the app, the app, or an API key in all apps. */
  readonly per: "app" | "key" | "user";
  /** The user that it limits; None, with `per` user, for each user. */
  readonly userId?: string;
  /** The id of the API key that it limits; None, with `per` key, for each key. */
  readonly keyId?: string;
  /** The time of which the usage is counted. */
  readonly window?: "day" | "ever";
  /** Most tokens. It or `money` is required. */
  readonly tokens?: number;
  /** Highest cost, in the currency of the price table. */
  readonly money?: number;
  /** The share of the limit at which a warning is given, once in the window; None: no warning. */
  readonly warnAt?: number | null;
};

/** A budget that limits runs, and its use. */
export type BudgetInEffect = {
  /** The owner of the limited usage. */
  readonly per: "app" | "key" | "run" | "user";
  /** The user that a stored budget limits; None, with `per` user, for each user that has no budget of its own. */
  readonly userId?: string;
  /** The API key that a stored budget limits; None, with `per` key, for each key that has no budget of its own. */
  readonly keyId?: string;
  /** The time of which the usage is counted. */
  readonly window?: "day" | "ever";
  /** Most tokens. */
  readonly tokens?: number;
  /** Highest cost. */
  readonly money?: number;
  /** The share of the limit at which a warning is given. */
  readonly warnAt?: number;
  /** The code of the app, or a stored budget. */
  readonly source: "app" | "stored";
  /** The largest uses first, at most 20; none of a budget per run. */
  readonly uses?: readonly BudgetUse[];
};

/** The usage of an owner that counts for a budget. */
export type BudgetUse = {
  /** The user, of a budget per user. */
  readonly userId?: string;
  /** The API key's id, of a budget per key. */
  readonly keyId?: string;
  /** Spent tokens. */
  readonly tokens?: number;
  /** Spent money. */
  readonly money?: number;
  /** Tokens that are reserved for calls in progress. */
  readonly reservedTokens?: number;
  /** Money that is reserved for calls in progress. */
  readonly reservedMoney?: number;
  /** The spent share of the limit; of two limits the larger share. */
  readonly share?: number;
  /** Unix seconds of the warning in this window; None: there was none. */
  readonly warnedAt?: number;
};

/** The authenticated caller of a request. */
export type Caller = {
  /** The subject of the key or token, which may differ from the session's user. */
  readonly userId: string;
  /** The API key; None for a token of an identity provider. */
  readonly keyId?: string;
  /** The scopes granted to the caller. */
  readonly scopes?: readonly string[];
};

/** A case, and the answer that it was made from. */
export type CaseOfAnswer = {
  /** The id of the case. */
  readonly evalId: string;
  /** The session's user. */
  readonly userId: string;
  /** The session of the answer. */
  readonly sessionId: string;
  /** The event of the answer. */
  readonly eventId: string;
  /** The reason why no case was added; None for an added case. */
  readonly reason?: string;
};

/** The stored answer that a case was made from. */
export type CaseSource = {
  /** The session's user. */
  readonly userId: string;
  /** The session of the answer. */
  readonly sessionId: string;
  /** The event of the answer. */
  readonly eventId: string;
  /** The run of the answer. */
  readonly runId: string;
  /** The version of the app's code in that run, where it is known. */
  readonly appVersion?: string;
  /** The feedback on the answer when the case was made. */
  readonly feedback?: readonly Feedback[];
  /** The message with the calls and the answer, as they were. */
  readonly answer: Invocation;
};

/** An entry of a chain, by its place and its hash: the newest one when another chain's head was signed, or the first one after a cut. */
export type ChainHead = {
  /** The number of the chain. */
  readonly chain: number;
  /** The sequence number of the entry. */
  readonly sequence: number;
  /** The hash of the entry. */
  readonly hash: string;
};

/** The new content of a memory. */
export type ChangeMemoryRequest = {
  /** In place of the earlier one. It has a text. */
  readonly content: Content;
  /** In place of the earlier ones; without them, these are kept. */
  readonly customMetadata?: JsonObject;
};

/** The result of code that the provider or a code executor ran. */
export type CodeExecutionResult = {
  /** OUTCOME_OK, OUTCOME_FAILED, OUTCOME_DEADLINE_EXCEEDED or OUTCOME_UNSPECIFIED. */
  readonly outcome?: string;
  /** Standard output, or the error's text. */
  readonly output?: string;
  /** The id of the executed code. */
  readonly id?: string;
};

/** A message of a conversation. */
export type Content = {
  /** "user" or "model"; function responses are sent as "user". */
  readonly role?: string;
  /** The pieces of the message, in order. */
  readonly parts?: readonly Part[];
};

/** First message and plan of a simulated user. */
export type ConversationScenario = {
  /** The first message. */
  readonly startingPrompt: string;
  /** The user's wishes, in words. */
  readonly conversationPlan: string;
  /** The id of a persona, or its description and behaviors. */
  readonly userPersona?: JsonValue;
};

/** A key for a user, with its own permissions, or for a service account, with that account's. */
export type CreateApiKeyRequest = {
  /** A description, such as the place where the key is kept. */
  readonly name?: string;
  /** The user that the key acts for. It or `serviceAccount` is required. */
  readonly userId?: string;
  /** The service account that the key belongs to; then without `scopes`, `roles` and `apps`. */
  readonly serviceAccount?: string;
  /** Its scopes; without scopes and roles `run` and `read`. */
  readonly scopes?: readonly string[];
  /** Names of roles, whose scopes the key has, too. */
  readonly roles?: readonly string[];
  /** The only apps that the key may access; without it, all. */
  readonly apps?: readonly string[];
  /** Unix seconds; without it, the key never expires. */
  readonly expiresAt?: number;
};

/** A set to create. */
export type CreateEvalSetRequest = {
  /** The new set, with or without cases. */
  readonly evalSet: EvalSet;
};

/** A session to create. */
export type CreateSessionRequest = {
  /** Generated by default. */
  readonly sessionId?: string;
  /** The initial state. */
  readonly state?: JsonObject;
  /** The events of an exported session; they are stored in order, all or none. */
  readonly events?: readonly Event[];
  /** Must be empty. */
  readonly options?: JsonObject;
};

/** A new key. */
export type CreatedApiKey = {
  /** The public part of the key. */
  readonly id: string;
  /** A description. */
  readonly name?: string;
  /** The user that the key acts for. */
  readonly userId: string;
  /** The service account that the key belongs to, which has its permissions. */
  readonly serviceAccount?: string;
  /** Its scopes, without those of its roles. */
  readonly scopes?: readonly string[];
  /** Names of its roles. */
  readonly roles?: readonly string[];
  /** The only apps that the key may access; None: all. */
  readonly apps?: readonly string[];
  /** Unix seconds, as the other times. */
  readonly createdAt: number;
  /** None: never. */
  readonly expiresAt?: number;
  /** None for a key that isn't revoked. */
  readonly revokedAt?: number;
  /** Up to a minute old; None for a key that was never used. */
  readonly lastUsedAt?: number;
  /** The key, which can't be shown again. */
  readonly key: string;
};

/** Body of `/requests/{request_id}/delegate`. */
export type DelegateRequest = {
  /** The person who is to answer. */
  readonly userId: string;
  /** The person who may answer, for callers that act for all users of the app; by default the caller itself. */
  readonly fromUserId?: string;
  /** Kept with the delegation. */
  readonly comment?: string;
};

/** A person who named another one to answer. */
export type Delegation = {
  /** The person who might have answered. */
  readonly fromUserId: string;
  /** The person who answers instead. */
  readonly toUserId: string;
  /** Unix seconds. */
  readonly at: number;
  /** The person's words about it. */
  readonly comment?: string;
};

/** A try to send a message. */
export type DeliveryAttempt = {
  /** Unix seconds. */
  readonly at: number;
  /** Duration. */
  readonly seconds: number;
  /** The HTTP status of the response; None without one. */
  readonly statusCode?: number;
  /** The reason of a failure; None if the receiver accepted the message. */
  readonly error?: string;
};

/** The outcome of an erasure for one kind of data. */
export type ErasedData = {
  /** The kind of data. */
  readonly kind: "answers" | "artifacts" | "audit_entries" | "credentials" | "events" | "feedback" | "given_feedback" | "memories" | "requests" | "runs" | "schedules" | "sessions" | "spans" | "state" | "usage";
  /** The number of items before the erasure. */
  readonly found: number;
  /** The number of items that were deleted. */
  readonly deleted: number;
  /** The number of items that were found again afterwards, and should not have been. */
  readonly left: number;
  /** The number of items that are kept on purpose. */
  readonly kept?: number;
  /** The reason why items are kept, or why they could not be counted. */
  readonly reason?: string;
};

/** The report on the erasure of a user's data in an app. */
export type ErasureReport = {
  /** The app. */
  readonly appName: string;
  /** The user. */
  readonly userId: string;
  /** Unix seconds. */
  readonly startedAt: number;
  /** Unix seconds. */
  readonly endedAt: number;
  /** Whether a search afterwards has found nothing but what is kept. If not, the erasure can be repeated. */
  readonly isComplete: boolean;
  /** The outcome by kind of data. */
  readonly data?: readonly ErasedData[];
  /** Things that remain to be done, or are stored elsewhere. */
  readonly notes?: readonly string[];
};

/** A conversation with the expected responses, or a scenario for a simulated user: exactly one of both. */
export type EvalCase = {
  /** Unique within its set. */
  readonly evalId: string;
  /** Messages, with the expected reaction to each. */
  readonly conversation?: readonly Invocation[];
  /** The scenario for a simulated user. */
  readonly conversationScenario?: ConversationScenario;
  /** The session in which the case runs. */
  readonly sessionInput?: SessionInput;
  /** Rubrics for all messages. */
  readonly rubrics?: readonly Rubric[];
  /** The expected state of the session at the end. */
  readonly finalSessionState?: JsonObject;
  /** Unix seconds. */
  readonly creationTimestamp?: number;
  /** The number of messages at the beginning of `conversation` that aren't run: the session begins with them, as they are here. */
  readonly givenTurns?: number;
  /** The results of calls by tool, in their order. Tools don't run then; a call without a result here gets an error. */
  readonly toolResults?: { readonly [key: string]: readonly RecordedResult[] };
  /** The stored answer that the case was made from. */
  readonly source?: CaseSource;
};

/** The result of one run of a case. */
export type EvalCaseResult = {
  /** The set's id, for older clients. */
  readonly evalSetFile?: string;
  /** The id of the set. */
  readonly evalSetId: string;
  /** The id of the case. */
  readonly evalId: string;
  /** 1 passed, 2 failed, 3 not evaluated. */
  readonly finalEvalStatus: EvalStatus;
  /** Empty in stored results. */
  readonly evalMetricResults?: readonly JsonValue[];
  /** Results for the whole case. */
  readonly overallEvalMetricResults?: readonly EvalMetricResult[];
  /** Results for each turn. */
  readonly evalMetricResultPerInvocation?: readonly EvalMetricResultPerInvocation[];
  /** The session's user. */
  readonly userId: string;
  /** The session in which the case was run. */
  readonly sessionId: string;
  /** The session at its end; in stored results only. */
  readonly sessionDetails?: Session;
  /** The reason why the case could not be run. */
  readonly error?: string;
  /** A hash of the case. Results of one id with different hashes are those of different cases. */
  readonly evalCaseDigest?: string;
  /** True for a case with results of tools, which ran apart from all stores: its session isn't kept. */
  readonly isOffline?: boolean;
};

/** Result of a metric. */
export type EvalMetricResult = {
  /** The metric's name. */
  readonly metricName: string;
  /** The lowest score that passes. */
  readonly threshold?: number;
  /** The metric's options. */
  readonly criterion?: JsonObject;
  /** None when the metric could not be computed. */
  readonly score?: number;
  /** 1 passed, 2 failed, 3 not evaluated, 4 only informs. */
  readonly evalStatus: EvalStatus;
  /** Details beyond the score. */
  readonly details?: EvalMetricResultDetails;
};

/** Details that some metrics give beyond their score. */
export type EvalMetricResultDetails = {
  /** The score of each rubric. */
  readonly rubricScores?: readonly RubricScore[];
  /** Tokens by kind. */
  readonly tokenUsageDetails?: JsonObject;
  /** Seconds by kind. */
  readonly durationDetails?: JsonObject;
};

/** Results of the metrics for one turn. */
export type EvalMetricResultPerInvocation = {
  /** The turn as the agent ran it. */
  readonly actualInvocation: Invocation;
  /** The expected turn; None in scenarios. */
  readonly expectedInvocation?: Invocation;
  /** One for each metric. */
  readonly evalMetricResults?: readonly EvalMetricResult[];
};

/** Cases that are run together. The fields of this record are snake_case on the wire as well. */
export type EvalSet = {
  /** The set's id, which is also the file's name. */
  readonly eval_set_id: string;
  /** A name for people. */
  readonly name?: string;
  /** A description for people. */
  readonly description?: string;
  /** The cases. */
  readonly eval_cases?: readonly EvalCase[];
  /** Unix seconds. */
  readonly creation_timestamp?: number;
  /** The number of changes of the set since its history began; None for a set that isn't stored with an app. */
  readonly version?: number;
};

/** The results of one run of a set. */
export type EvalSetResult = {
  /** `{app}_{set}_{creation_timestamp}`. */
  readonly evalSetResultId: string;
  /** The same id as the name of a file. */
  readonly evalSetResultName: string;
  /** The id of the set. */
  readonly evalSetId: string;
  /** One for each run of a case. */
  readonly evalCaseResults?: readonly EvalCaseResult[];
  /** Unix seconds. */
  readonly creationTimestamp?: number;
  /** The version of the set; None for a set that isn't stored with an app. */
  readonly evalSetVersion?: number;
};

/** A version of a set, with its differences from the one before. */
export type EvalSetVersion = {
  /** From 1 on. */
  readonly version: number;
  /** Unix seconds. */
  readonly createdAt: number;
  /** The ids of new cases. */
  readonly added?: readonly string[];
  /** The ids of changed cases. */
  readonly changed?: readonly string[];
  /** The ids of removed cases. */
  readonly removed?: readonly string[];
  /** The number of cases in this version. */
  readonly size: number;
};

export type EvalStatus = 1 | 2 | 3 | 4;

/** A complete event is stored and immutable; a partial one is only streamed. */
export type Event = {
  /** The message. */
  readonly content?: Content;
  /** Whether this is a streamed piece of a message that follows complete. */
  readonly partial?: boolean;
  /** Whether a live model has ended its turn. */
  readonly turnComplete?: boolean;
  /** Whether the message was cut off. */
  readonly interrupted?: boolean;
  /** A finish reason, or the class name of an error; a reply may carry content and an error. */
  readonly errorCode?: string;
  /** The error's text. */
  readonly errorMessage?: string;
  /** The reason why the model stopped. */
  readonly finishReason?: string;
  /** Token counts of the model call. */
  readonly usageMetadata?: GenerateContentResponseUsageMetadata;
  /** The model that answered, as the provider reports it. */
  readonly modelVersion?: string;
  /** Sources that the answer is based on. */
  readonly groundingMetadata?: JsonObject;
  /** Citations in the answer. */
  readonly citationMetadata?: JsonObject;
  /** Mean log probability of the answer's tokens. */
  readonly avgLogprobs?: number;
  /** Log probabilities of single tokens. */
  readonly logprobsResult?: JsonObject;
  /** Free-form data of the application. */
  readonly customMetadata?: JsonObject;
  /** Transcript of the user's speech. */
  readonly inputTranscription?: Transcription;
  /** Transcript of the model's speech. */
  readonly outputTranscription?: Transcription;
  /** The provider's handle for resuming a live session. */
  readonly liveSessionResumptionUpdate?: JsonObject;
  /** The provider's id of the live session. */
  readonly liveSessionId?: string;
  /** The provider's notice that it will close the live connection. */
  readonly goAway?: JsonObject;
  /** Start or end of the user's speech. */
  readonly voiceActivity?: JsonObject;
  /** The reason why a live model ended its turn. */
  readonly turnCompleteReason?: string;
  /** The provider's id of a stored interaction. */
  readonly interactionId?: string;
  /** The status of that interaction. */
  readonly interactionStatus?: string;
  /** The provider's id of the execution environment. */
  readonly environmentId?: string;
  /** The state of the context cache used by the call. */
  readonly cacheMetadata?: JsonObject;
  /** The event's id, unique in its session. */
  readonly id: string;
  /** The id of the run that wrote it. */
  readonly invocationId: string;
  /** "user" or the name of an agent. */
  readonly author: string;
  /** Unix seconds. */
  readonly timestamp: number;
  /** Side effects of the event. */
  readonly actions: EventActions;
  /** Dotted path of agents, where parallel agents have separate histories. */
  readonly branch?: string;
  /** Calls of this event whose answer comes in a later message. */
  readonly longRunningToolIds?: readonly string[];
  /** The workflow node that wrote the event. */
  readonly nodeInfo?: NodeInfo;
  /** The output of a workflow node or a task. */
  readonly output?: JsonValue;
  /** The scope outside of which the event is not part of a prompt. */
  readonly isolationScope?: string;
};

/** Side effects of an event. */
export type EventActions = {
  /** Changes of the state by key; `__ADK_SENTINEL_REMOVED__` removes the key. */
  readonly stateDelta?: JsonObject;
  /** New versions of artifacts by file name. */
  readonly artifactDelta?: { readonly [key: string]: number };
  /** Requested logins by the id of the function call. */
  readonly requestedAuthConfigs?: JsonObject;
  /** Requested approvals by the id of the function call. */
  readonly requestedToolConfirmations?: { readonly [key: string]: ToolConfirmation };
  /** Whether the function response is the answer, without another model call. */
  readonly skipSummarization?: boolean;
  /** The agent that continues. */
  readonly transferToAgent?: string;
  /** The reason for the transfer. */
  readonly transferReason?: string;
  /** Whether an enclosing loop ends. */
  readonly escalate?: boolean;
  /** Whether the agent has finished in this run. */
  readonly endOfAgent?: boolean;
  /** Checkpoint of a workflow agent. */
  readonly agentState?: JsonObject;
  /** The summary that replaces older events. */
  readonly compaction?: EventCompaction;
  /** The run before which the session is reset. */
  readonly rewindBeforeInvocationId?: string;
  /** The value that selects the next edges of a workflow. */
  readonly route?: JsonValue;
  /** User interface parts to render. */
  readonly renderUiWidgets?: readonly JsonObject[];
  /** The final structured response of the agent. */
  readonly setModelResponse?: JsonValue;
  /** Written only when it is set: ADK for Java has it, and ADK's Python client refuses it. */
  readonly deletedArtifactIds?: readonly string[];
  /** Written only when it is set: ADK for Java has it, and ADK's Python client refuses it. */
  readonly endInvocation?: boolean;
};

/** A summary that replaces all events between the two times (Unix seconds, both included). */
export type EventCompaction = {
  /** Time of the first event that is replaced, Unix seconds. */
  readonly startTimestamp: number;
  /** Time of the last event that is replaced, Unix seconds. */
  readonly endTimestamp: number;
  /** The summary. */
  readonly compactedContent: Content;
};

/** A page of a session's log. */
export type EventPage = {
  /** In the order of the log. */
  readonly events: readonly Event[];
  /** Sequence number of the last event of the page, which is the `after` of the next page. */
  readonly lastSeq: number;
};

/** Code that the model wrote, executed by the provider or a code executor. */
export type ExecutableCode = {
  /** The source text. */
  readonly code?: string;
  /** The programming language, such as PYTHON. */
  readonly language?: string;
  /** Pairs the code with its result. */
  readonly id?: string;
};

/** A session that has not been updated for longer than its app keeps sessions. */
export type ExpiredSession = {
  /** The user. */
  readonly userId: string;
  /** The session. */
  readonly sessionId: string;
  /** Unix seconds. */
  readonly lastUpdateTime: number;
  /** Whether it stays, since a run of it is unfinished. */
  readonly isKept: boolean;
};

/** Stored feedback. There is one for each event, name and subject. */
export type Feedback = {
  /** The quality that is judged, such as `helpful` or `correctness`. */
  readonly name: string;
  /** A number on a scale of the caller's choice, or true or false, which filters count as 1 and 0. */
  readonly score?: boolean | number;
  /** A category, such as `wrong tool`. */
  readonly label?: string;
  /** The reasons, in words. */
  readonly comment?: string;
  /** Stays when the feedback is replaced. */
  readonly id: string;
  /** The session's app. */
  readonly appName: string;
  /** The session's user. */
  readonly userId: string;
  /** The session of the event. */
  readonly sessionId: string;
  /** The event that is judged. */
  readonly eventId: string;
  /** The run of the event; empty for an event of no run. */
  readonly runId: string;
  /** `user` if the session's user gave it, `service` if somebody else did who acts for the user. */
  readonly source: "service" | "user";
  /** The caller who gave it. Without authentication, the session's user. */
  readonly subject: string;
  /** Unix seconds; of feedback that replaced another one, the time of that. */
  readonly createdAt: number;
};

/** Feedback on an event. It has at least one of `score`, `label` and `comment`. */
export type FeedbackRequest = {
  /** The quality that is judged, such as `helpful` or `correctness`. */
  readonly name: string;
  /** A number on a scale of the caller's choice, or true or false, which filters count as 1 and 0. */
  readonly score?: boolean | number;
  /** A category, such as `wrong tool`. */
  readonly label?: string;
  /** The reasons, in words. */
  readonly comment?: string;
};

/** Feedback of one name on runs of a version. */
export type FeedbackScores = {
  /** Number of feedback with a score. */
  readonly count: number;
  /** The mean score; true counts as 1, and false as 0. */
  readonly mean: number;
  /** With the baseline; none for the baseline itself, and if one of them has no score. */
  readonly comparison: MeanComparison | null;
};

/** A field of an agent with two values. */
export type FieldChange = {
  /** The name of the field; of a setting `settings.` and its name. */
  readonly field: string;
  /** The value in the first version. */
  readonly before: JsonValue;
  /** The value in the second version. */
  readonly after: JsonValue;
  /** A unified diff of texts with several lines. */
  readonly diff?: string;
};

/** Figures of a time, or of a whole period. Groups of models and tools have those of their calls, and no runs. */
export type Figures = {
  /** Runs that ended, by status: `succeeded`, `failed`, `cancelled`. */
  readonly runs?: { readonly [key: string]: number };
  /** Runs that failed, by the code of their error; of models and tools, calls that failed. */
  readonly errors?: { readonly [key: string]: number };
  /** From a request to the first text of a model, of runs that ended. */
  readonly firstText?: Latency;
  /** From a request to the end, of runs that ended; of models and tools, the duration of calls. */
  readonly duration?: Latency;
  /** Answers of models. */
  readonly modelCalls?: number;
  /** Results of tools. */
  readonly toolCalls?: number;
  /** Tokens of prompts, with the cached ones. */
  readonly inputTokens?: number;
  /** Tokens of answers, with those of thoughts. */
  readonly outputTokens?: number;
  /** Tokens of prompts that were read from a cache. */
  readonly cachedTokens?: number;
  /** Tokens of models without a known price, which are not in `cost`. */
  readonly unpricedTokens?: number;
  /** In `currency`. */
  readonly cost?: number;
};

/** A file that is in one version only, or has another content. */
export type FileChange = {
  /** Relative to the served folder. */
  readonly path: string;
  /** The kind of the difference. */
  readonly change: "added" | "changed" | "removed";
  /** A unified diff; none for files that are no text or too long. */
  readonly diff: string | null;
};

/** A reference to a file by URI. */
export type FileData = {
  /** The file's URI. */
  readonly fileUri?: string;
  /** The file's media type. */
  readonly mimeType?: string;
  /** The file's name for display. */
  readonly displayName?: string;
};

/** The end of a login through an identity connector. */
export type FinalizeIdentityRequest = {
  /** The connector of the login. */
  readonly connectorName?: string;
  /** The user who logged in. */
  readonly userId?: string;
  /** The state that the provider returned. */
  readonly userIdValidationState?: string;
  /** The nonce of the consent. */
  readonly consentNonce?: string;
};

/** The event up to which a session is copied. */
export type ForkSessionRequest = {
  /** Sequence number of the last event to copy (0: none); by default the last one of the log. */
  readonly seq?: number;
  /** Names the last event to copy by its id instead. */
  readonly eventId?: string;
  /** The id of the fork; generated by default. */
  readonly sessionId?: string;
};

/** A call of a function, requested by the model. */
export type FunctionCall = {
  /** Pairs the call with its response. */
  readonly id?: string;
  /** The function's name. */
  readonly name: string;
  /** The arguments by name. */
  readonly args?: JsonObject;
  /** Pieces of arguments that are still streamed. */
  readonly partialArgs?: readonly PartialArg[];
  /** Whether more pieces follow. */
  readonly willContinue?: boolean;
};

/** Parameters are given either as a Gemini `Schema` or as plain JSON Schema, not both; neither means none. */
export type FunctionDeclaration = {
  /** The function's name. */
  readonly name?: string;
  /** A description of the function for the model. */
  readonly description?: string;
  /** The parameters as a Gemini `Schema`. */
  readonly parameters?: Schema;
  /** The parameters as JSON Schema. */
  readonly parametersJsonSchema?: JsonObject;
  /** The result as a Gemini `Schema`. */
  readonly response?: Schema;
  /** The result as JSON Schema. */
  readonly responseJsonSchema?: JsonObject;
  /** BLOCKING or NON_BLOCKING, for live models. */
  readonly behavior?: string;
};

/** The result of a function call. */
export type FunctionResponse = {
  /** The id of the call. */
  readonly id?: string;
  /** The function's name. */
  readonly name: string;
  /** Always an object; other results are wrapped as `{"result": value}`. */
  readonly response?: JsonObject;
  /** Media of the result. */
  readonly parts?: readonly FunctionResponsePart[];
  /** The time at which a live model reacts to the response. */
  readonly scheduling?: string;
  /** Whether more responses to the call follow. */
  readonly willContinue?: boolean;
};

/** Media in the result of a function. */
export type FunctionResponsePart = {
  /** Bytes in the message itself. */
  readonly inlineData?: Blob;
  /** A reference to a file. */
  readonly fileData?: FileData;
  /** The provider's options for processing the medium. */
  readonly mediaProcessing?: JsonValue;
};

/** Token counts of a model call. */
export type GenerateContentResponseUsageMetadata = {
  /** Tokens of the prompt, with the cached ones. */
  readonly promptTokenCount?: number;
  /** Tokens of the answer. */
  readonly candidatesTokenCount?: number;
  /** All tokens of the call. */
  readonly totalTokenCount?: number;
  /** Tokens of the model's reasoning. */
  readonly thoughtsTokenCount?: number;
  /** Tokens of the prompt that were read from a cache. */
  readonly cachedContentTokenCount?: number;
  /** Tokens of results of the provider's tools. */
  readonly toolUsePromptTokenCount?: number;
  /** The prompt's tokens by modality. */
  readonly promptTokensDetails?: readonly ModalityTokenCount[];
  /** The answer's tokens by modality. */
  readonly candidatesTokensDetails?: readonly ModalityTokenCount[];
  /** The cached tokens by modality. */
  readonly cacheTokensDetails?: readonly ModalityTokenCount[];
  /** Tokens of tool results by modality. */
  readonly toolUsePromptTokensDetails?: readonly ModalityTokenCount[];
  /** The provider's billing class of the call. */
  readonly trafficType?: string;
};

/** A person's answer to a request. */
export type GivenAnswer = {
  /** The person who answered. */
  readonly userId: string;
  /** Unix seconds. */
  readonly answeredAt: number;
  /** Whether an approval was given; None for other kinds. */
  readonly confirmed?: boolean;
  /** The person's words about it. */
  readonly comment?: string;
};

/** A stored credential without its secrets. */
export type GrantedLogin = {
  /** The key that the credential is stored under. */
  readonly credentialKey: string;
  /** The kind of the credential. */
  readonly authType: AuthCredentialTypes;
  /** Unix seconds; None if the credential does not expire. */
  readonly expiresAt?: number;
};

/** A graph of an app's agents. */
export type GraphResponse = {
  /** DOT text; omitted for an unknown event. */
  readonly dotSrc?: string;
};

/** A request to people. Times are Unix seconds. */
export type HumanRequest = {
  /** Unique among all sessions. */
  readonly id: string;
  /** The kind of answer. */
  readonly kind: RequestKind;
  /** `cancelled` if its run ended, or went on, without an answer to it; `expired` if nobody answered it in 30 days, where that is a limit: not of input. */
  readonly status: RequestStatus;
  /** The app that runs. */
  readonly appName: string;
  /** The owner of the session. */
  readonly userId: string;
  /** The session of the run. */
  readonly sessionId: string;
  /** The run that waits. */
  readonly runId: string;
  /** Id of the function call in the session's log that waits for the answer. */
  readonly callId: string;
  /** The name of that function call. */
  readonly function: string;
  /** The agent that asks. */
  readonly agent: string;
  /** The tool that needs the approval or login, or that asks for input; None for a workflow's node. */
  readonly tool?: string;
  /** The arguments of the tool's call, as the log shows them. Of a login: what it is for. */
  readonly arguments?: JsonObject;
  /** The question. */
  readonly message?: string;
  /** Data that comes with the question. */
  readonly payload?: JsonValue;
  /** JSON Schema of the answer to a request for input. */
  readonly responseSchema?: JsonValue;
  /** Time of the request. */
  readonly createdAt: number;
  /** Time at which the default answer is given; None if there is none. */
  readonly deadline?: number;
  /** The app's policy; None if the session's user answers. */
  readonly policy?: ApprovalPolicy;
  /** The users who may answer, and haven't yet. Callers with the scope of the policy may, too. */
  readonly approvers?: readonly string[];
  /** Users who may not answer: they did, have delegated it, or are the requester. */
  readonly excluded?: readonly string[];
  /** The persons who named others to answer, oldest first. */
  readonly delegations?: readonly Delegation[];
  /** The answers so far, oldest first. */
  readonly answers?: readonly GivenAnswer[];
  /** The outcome of an approval; None while it is open. */
  readonly confirmed?: boolean;
  /** Time of the answer that decided it. */
  readonly closedAt?: number;
  /** Whether the caller, as itself, may answer it now. */
  readonly mayAnswer?: boolean;
};

/** Steps before the final response: `invocation_events`, or the other three, which older files have. */
export type IntermediateData = {
  /** In order. */
  readonly invocationEvents?: readonly InvocationEvent[];
  /** The function calls. */
  readonly toolUses?: readonly FunctionCall[];
  /** Their responses. */
  readonly toolResponses?: readonly FunctionResponse[];
  /** Pairs of author and parts. */
  readonly intermediateResponses?: readonly (readonly [string, readonly Part[]])[];
};

/** The range of a number. */
export type Interval = {
  /** The smallest value. */
  readonly minValue: number;
  /** The greatest value. */
  readonly maxValue: number;
  /** Whether the smallest value itself is left out. */
  readonly openAtMin?: boolean;
  /** Whether the greatest value itself is left out. */
  readonly openAtMax?: boolean;
};

/** A message of the user and the agents' reaction, expected or actual. */
export type Invocation = {
  /** The run's id. */
  readonly invocationId?: string;
  /** The user's message. */
  readonly userContent: Content;
  /** The answer; None if none is expected. */
  readonly finalResponse?: Content;
  /** The steps before the answer. */
  readonly intermediateData?: IntermediateData;
  /** Unix seconds. */
  readonly creationTimestamp?: number;
  /** Duration of the run, in seconds. */
  readonly duration?: number;
  /** Duration of the model calls, in seconds. */
  readonly modelDuration?: number;
  /** Duration of the tools, in seconds. */
  readonly toolDuration?: number;
  /** Rubrics for this message only. */
  readonly rubrics?: readonly Rubric[];
  /** The instructions and tools of the agents. */
  readonly appDetails?: AppDetails;
};

/** An event before the final response. */
export type InvocationEvent = {
  /** The agent that wrote the event. */
  readonly author: string;
  /** Text, calls and responses. */
  readonly content?: Content;
  /** The sources of the model's answer. */
  readonly groundingMetadata?: JsonObject;
  /** Tokens of the model call. */
  readonly usageMetadata?: GenerateContentResponseUsageMetadata;
  /** As the provider reported it. */
  readonly modelVersion?: string;
};

/** A session that is kept as a test. ADK's web page keeps the events alone. */
export type KeptSession = {
  /** The events of the conversation. */
  readonly events?: readonly Event[];
  /** The session's id. */
  readonly id?: string;
  /** The session's app. */
  readonly appName?: string;
  /** The session's user. */
  readonly userId?: string;
  /** The state at the end; by default the one that the events lead to. */
  readonly state?: JsonObject;
  /** Unix seconds. */
  readonly lastUpdateTime?: number;
};

/** Percentiles of durations in seconds, with a relative error of at most 2.5 %. */
export type Latency = {
  /** The number of durations. */
  readonly count?: number;
  /** The median; None without durations. */
  readonly p50?: number;
  /** None without durations. */
  readonly p95?: number;
  /** None without durations. */
  readonly p99?: number;
};

/** A number that was measured each minute. */
export type Level = {
  /** Over the minutes of the point. */
  readonly average: number;
  /** Of all its minutes. Of several apps, the sum of their maxima. */
  readonly maximum: number;
};

/** A page of the keys that the caller may administrate. */
export type ListApiKeysResponse = {
  /** Newest first. */
  readonly keys?: readonly ApiKeyInfo[];
  /** `page_token` of the next request; None on the last page. */
  readonly nextPageToken?: string;
};

/** The webhooks of an app. */
export type ListAppWebhooksResponse = {
  /** Those of the app's code, then those that clients have stored. */
  readonly webhooks: readonly AppWebhook[];
};

/** The apps of the server. */
export type ListAppsResponse = {
  /** The apps that the caller may use. */
  readonly apps: readonly AppInfo[];
};

/** A page of the audit trail. */
export type ListAuditResponse = {
  /** Newest first. */
  readonly entries?: readonly AuditEntry[];
  /** `page_token` of the next request; None on the last page. */
  readonly nextPageToken?: string;
  /** On the first page. */
  readonly state?: AuditState;
};

/** The budgets of an app that are in effect. */
export type ListBudgetsResponse = {
  /** Of all amounts of money. */
  readonly currency?: string;
  /** Those of the app's code first. */
  readonly budgets?: readonly BudgetInEffect[];
};

/** The messages to a webhook. */
export type ListDeliveriesResponse = {
  /** Newest first. */
  readonly deliveries: readonly WebhookDelivery[];
};

/** The versions of a set. */
export type ListEvalSetVersionsResponse = {
  /** Oldest first. */
  readonly versions: readonly EvalSetVersion[];
};

/** A page of a list of feedback. */
export type ListFeedbackResponse = {
  /** Newest first. */
  readonly feedback: readonly Feedback[];
  /** `page_token` of the next request; None on the last page. */
  readonly nextPageToken?: string;
};

/** Lines of an app's log. */
export type ListLogsResponse = {
  /** Oldest first. */
  readonly lines: readonly LogLine[];
};

/** A page of a user's memories. */
export type ListMemoriesResponse = {
  /** In the order in which they were added; the results of a search, best first. */
  readonly memories?: readonly MemoryEntry[];
  /** `page_token` of the next request; None on the last page. */
  readonly nextPageToken?: string;
};

/** The available metrics. */
export type ListMetricsInfoResponse = {
  /** In the order of their names. */
  readonly metricsInfo: readonly MetricInfo[];
};

/** The servers that share a store. */
export type ListReplicasResponse = {
  /** In the order of their starts. */
  readonly replicas: readonly ReplicaStatus[];
};

/** A page of a list of requests to people. */
export type ListRequestsResponse = {
  /** Open ones, newest first. */
  readonly requests?: readonly HumanRequest[];
  /** `page_token` of the next request; None on the last page. */
  readonly nextPageToken?: string;
};

/** All roles: the built-in ones, then the others by name. */
export type ListRolesResponse = {
  /** At most 1000. */
  readonly roles?: readonly Role[];
};

/** The webhooks of a run. */
export type ListRunWebhooksResponse = {
  /** Those of the app, which the run had when it began, and those of the run. */
  readonly webhooks: readonly RunWebhook[];
};

/** A page of a list of runs. */
export type ListRunsResponse = {
  /** Newest first. */
  readonly runs?: readonly Run[];
  /** `page_token` of the next request; None on the last page. */
  readonly nextPageToken?: string;
};

/** The newest entries of a schedule's history. */
export type ListScheduleRunsResponse = {
  /** Newest first. */
  readonly runs: readonly ScheduleRun[];
};

/** A page of a list of schedules. */
export type ListSchedulesResponse = {
  /** Newest first. */
  readonly schedules: readonly Schedule[];
  /** `page_token` of the next request; None on the last page. */
  readonly nextPageToken?: string;
};

/** The service accounts that the caller may administrate, by name. */
export type ListServiceAccountsResponse = {
  /** At most 1000. */
  readonly serviceAccounts?: readonly ServiceAccount[];
};

/** The settings in effect. */
export type ListSettingsResponse = {
  /** All of the server's settings. */
  readonly settings?: readonly SettingInfo[];
};

/** A page of sums of usage. */
export type ListUsageResponse = {
  /** The currency of all costs. */
  readonly currency?: string;
  /** In the order of the groups. */
  readonly usage?: readonly UsageSum[];
  /** `page_token` of the next request; None on the last page. */
  readonly nextPageToken?: string;
};

/** The figures of an app's versions beside each other. */
export type ListVersionScoresResponse = {
  /** The version with which the others are compared; none without runs. */
  readonly baseline: string | null;
  /** Versions that have runs: newest first, then `source`. */
  readonly versions: readonly VersionScores[];
  /** Unix seconds of the oldest run that was counted. */
  readonly runsFrom: number | null;
  /** Whether there are older runs, which were not counted. */
  readonly isLimited: boolean;
};

/** The published versions of an app. */
export type ListVersionsResponse = {
  /** Newest first. */
  readonly versions: readonly PublishedVersion[];
  /** See `Traffic`. */
  readonly shares: { readonly [key: string]: number };
  /** The version of the present code, which is `appVersion` of its runs; none if it can't be loaded. */
  readonly sourceVersion: string | null;
};

/** A page of the waiting runs of an app. */
export type ListWaitingRunsResponse = {
  /** Newest first. */
  readonly waitingRuns?: readonly WaitingRun[];
  /** `page_token` of the next request; None on the last page. */
  readonly nextPageToken?: string;
};

/** The load of the `step` seconds from `time` on. */
export type LoadPoint = {
  /** Unix seconds, a multiple of `step`. */
  readonly time: number;
  /** Runs that were executing. */
  readonly running: Level;
  /** Runs in the queue of their session, or waiting for their turn. */
  readonly queued: Level;
  /** Requests that waited for a person's answer. */
  readonly openRequests: Level;
  /** Servers; None in the load of single apps. */
  readonly replicas?: Level;
};

/** The load of all servers over time. */
export type LoadStatistics = {
  /** Unix seconds, included: `start` of the request, rounded down to a multiple of `step`. */
  readonly start: number;
  /** Unix seconds, not included: `end` of the request, rounded up to a multiple of `step`. */
  readonly end: number;
  /** The seconds between two points. */
  readonly step: number;
  /** By time; times at which no server ran have no point. */
  readonly points: readonly LoadPoint[];
};

/** A line of an app's log. */
export type LogLine = {
  /** Counted from 1, one more with each line of the server. */
  readonly number: number;
  /** Unix seconds. */
  readonly time: number;
  /** `debug`, `info`, `warning`, `error` or `critical`. */
  readonly level: string;
  /** The name of the logger. */
  readonly logger: string;
  /** At most 8,192 characters. */
  readonly message: string;
  /** The owner of the session. */
  readonly userId: string;
  /** The session of the run. */
  readonly sessionId: string;
  /** The run that logged the line. */
  readonly runId: string;
  /** The traceback of an error, or its class if content isn't traced; at most 8,192 characters. */
  readonly error?: string;
};

/** The logo of ADK's web page. */
export type LogoConfig = {
  /** Shown beside the logo. */
  readonly logo_text?: string;
  /** The logo's URL. */
  readonly logo_image_url?: string;
};

/** An answer that becomes a case. */
export type MakeCaseRequest = {
  /** The set, which is created if it doesn't exist. */
  readonly evalSetId: string;
  /** The answer that is expected; None if only the rubrics count. */
  readonly expectedResponse?: string;
};

/** The caller and its permissions. */
export type Me = {
  /** The user that the caller acts for; None without authentication. */
  readonly userId?: string;
  /** With those of its roles; `admin` without authentication. */
  readonly scopes?: readonly string[];
  /** The only apps that the caller may access; None: all. */
  readonly apps?: readonly string[];
  /** The id of the API key that was sent. */
  readonly keyId?: string;
};

/** The difference of a mean between the sessions of two versions. */
export type MeanComparison = {
  /** The mean of the version minus that of the baseline. */
  readonly difference: number;
  /** The lower end of the difference's 95 % interval. */
  readonly low: number;
  /** The upper end of the interval. */
  readonly high: number;
  /** Whether the difference is more than chance. */
  readonly isSignificant: boolean;
  /** The comparison in words. */
  readonly text: string;
};

/** A remembered event. */
export type MemoryEntry = {
  /** The event's content. */
  readonly content: Content;
  /** The event's author. */
  readonly author?: string;
  /** Time of the event, in ISO 8601. */
  readonly timestamp?: string;
  /** The event's id, or one of its own. */
  readonly id?: string;
  /** Of the event, or of who has added it. */
  readonly customMetadata?: JsonObject;
};

/** An available metric. */
export type MetricInfo = {
  /** The metric's name. */
  readonly metricName: string;
  /** A sentence on what the metric measures. */
  readonly description: string;
  /** The range of the metric's scores. */
  readonly metricValueInfo: MetricValueInfo;
  /** Whether the metric passes or fails; the others only inform. */
  readonly requiresThreshold?: boolean;
};

/** The values of a metric. */
export type MetricValueInfo = {
  /** The range of the scores. */
  readonly interval: Interval;
};

/** Token counts of one modality. */
export type ModalityTokenCount = {
  /** TEXT, IMAGE, AUDIO, VIDEO or DOCUMENT. */
  readonly modality?: string;
  /** Tokens of this modality. */
  readonly tokenCount?: number;
};

/** Position in a workflow that an event comes from. */
export type NodeInfo = {
  /** `wf@1/node@2`; empty in apps without a workflow. */
  readonly path?: string;
  /** Paths of the nodes whose output it is. */
  readonly outputFor?: readonly string[];
  /** Whether the output is the content's text. */
  readonly messageAsOutput?: boolean;
};

/** A piece of a message; exactly one of the kinds of data is set. */
export type Part = {
  /** Plain text. */
  readonly text?: string;
  /** Bytes in the message itself. */
  readonly inlineData?: Blob;
  /** A reference to a file. */
  readonly fileData?: FileData;
  /** A call that the model requests. */
  readonly functionCall?: FunctionCall;
  /** The result of a call. */
  readonly functionResponse?: FunctionResponse;
  /** Code that the model wrote to be executed. */
  readonly executableCode?: ExecutableCode;
  /** The result of executed code. */
  readonly codeExecutionResult?: CodeExecutionResult;
  /** A call of a tool that the provider executes. */
  readonly toolCall?: ToolCall;
  /** The result of such a call. */
  readonly toolResponse?: ToolResponse;
  /** The transcript of the part's audio. */
  readonly audioTranscription?: Transcription;
  /** Whether the part is the model's reasoning. */
  readonly thought?: boolean;
  /** Opaque bytes that the provider needs back with the reasoning; base64 in JSON. */
  readonly thoughtSignature?: string;
  /** The section of a video that is used, and its frame rate. */
  readonly videoMetadata?: VideoMetadata;
  /** The resolution at which the model reads the medium. */
  readonly mediaResolution?: PartMediaResolution;
  /** Free-form data of the application. */
  readonly partMetadata?: JsonObject;
  /** The provider's options for processing the medium. */
  readonly mediaProcessing?: JsonValue;
  /** The provider's data about speech. */
  readonly speechMetadata?: JsonObject;
};

/** The resolution at which the model reads a medium. */
export type PartMediaResolution = {
  /** A named resolution. */
  readonly level?: string;
  /** Tokens that the medium may take. */
  readonly numTokens?: number;
};

/** A piece of a function call's arguments that is still being streamed. */
export type PartialArg = {
  /** The position of the piece in the arguments. */
  readonly jsonPath?: string;
  /** A piece of a string. */
  readonly stringValue?: string;
  /** A number. */
  readonly numberValue?: number;
  /** A boolean. */
  readonly boolValue?: boolean;
  /** Set where the value is null. */
  readonly nullValue?: string;
  /** Whether more pieces of this value follow. */
  readonly willContinue?: boolean;
};

/** Changes of a session. At least one field is required. */
export type PatchSessionRequest = {
  /** Changes of the state by key; `__ADK_SENTINEL_REMOVED__` removes the key. */
  readonly stateDelta?: JsonObject;
  /** The new title; empty to remove it. */
  readonly title?: string;
};

/** A problem document (RFC 9457). */
export type Problem = {
  /** A URI that identifies the kind of problem. */
  readonly type: string;
  /** The kind of problem in words. */
  readonly title: string;
  /** The HTTP status. */
  readonly status: number;
  /** A description of this request's fault. */
  readonly detail: string;
  /** The name of the error, to match on. */
  readonly code?: string;
  /** The single faults. */
  readonly errors?: readonly ProblemCause[];
};

/** A fault in a request. */
export type ProblemCause = {
  /** The kind of fault. */
  readonly type: string;
  /** The path to the fault. */
  readonly loc: readonly (string | number)[];
  /** A description of the fault. */
  readonly msg: string;
};

/** A request to publish the present code of an app. */
export type PublishVersionRequest = {
  /** A description of the change. */
  readonly message?: string;
};

/** An immutable copy of an app's files. */
export type PublishedVersion = {
  /** The app. */
  readonly appName: string;
  /** `v1` for the first one of the app, `v2` for the next one. Names are not used again. */
  readonly name: string;
  /** A hash of the files, which is `appVersion` of its runs. */
  readonly version: string;
  /** A description of the change, by the one who published it. */
  readonly message?: string;
  /** Unix seconds. */
  readonly publishedAt: number;
  /** The caller who published it; none without authentication. */
  readonly publishedBy?: string;
  /** Its agents; left out in lists. */
  readonly agents?: readonly AgentDescription[];
  /** Its files; left out in lists. */
  readonly files?: readonly VersionFile[];
};

/** A request that continues a run, and waits in the queue before the request in the run's record. */
export type QueuedRequest = {
  /** The request's body, as it was admitted. */
  readonly request: AgentRunRequest;
  /** Its authenticated caller; None without authentication. */
  readonly caller?: Caller;
  /** The session's last sequence number when it was admitted. */
  readonly messageAfterSeq?: number;
};

/** A call's arguments and its result. */
export type RecordedResult = {
  /** The arguments of the call. */
  readonly args?: JsonObject;
  /** The result of the call. */
  readonly response: JsonObject;
};

/** A run that could not be retried. */
export type RefusedRetry = {
  /** The run. */
  readonly runId: string;
  /** The class name of the error. */
  readonly code: string;
  /** The error's text. */
  readonly detail: string;
};

/** A server, and the unfinished runs of the sessions that it owns. */
export type ReplicaStatus = {
  /** The id of the process. */
  readonly id: string;
  /** The URL at which other servers reach it; None for a server that shares its store with no other. */
  readonly address?: string;
  /** Its version of greenroom. */
  readonly version: string;
  /** The time of its start, in Unix seconds. */
  readonly startedAt: number;
  /** The time since it has shown that it is alive, which it does every second. */
  readonly heartbeatAgeSeconds: number;
  /** True from its stop signal on: it hands its sessions over to other servers. */
  readonly isDraining: boolean;
  /** The number of shards of sessions that it owns, of 256. */
  readonly shards: number;
  /** The number of runs that are executing. */
  readonly running: number;
  /** The number of runs that wait in their session's queue. */
  readonly queued: number;
  /** The time since the oldest of these runs was requested; None without one. */
  readonly oldestRunAgeSeconds?: number;
};

/** Body of `/requests/{request_id}/answer`. */
export type RequestAnswer = {
  /** The decision on an approval, which must have one; false declines a login. */
  readonly confirmed?: boolean;
  /** Of an approval: what its tool asks for; without a payload in the request, arguments in place of the model's. */
  readonly payload?: JsonValue;
  /** The answer to a request for input; of a login, the credential in one of the forms that `/run` takes. */
  readonly response?: JsonValue;
  /** Kept with the answer. */
  readonly comment?: string;
  /** The person who answers, for callers that act for all users of the app; by default the caller itself. */
  readonly userId?: string;
};

export type RequestKind = "approval" | "input" | "login";

export type RequestStatus = "answered" | "cancelled" | "expired" | "open";

/** A metric to compute. */
export type RequestedMetric = {
  /** A metric that `metrics-info` lists. */
  readonly metricName: string;
  /** The lowest score that passes. */
  readonly threshold?: number;
  /** Further options of the metric. */
  readonly criterion?: JsonObject;
};

/** The sessions of an app that would be deleted now. */
export type RetentionPreview = {
  /** The app. */
  readonly appName: string;
  /** The time without an update after which sessions are deleted, of the app or else of the server; None: never. */
  readonly sessionTtlSeconds: number | null;
  /** The number of sessions that would be deleted. */
  readonly expired: number;
  /** The number of sessions that are as old, and stay since a run of theirs is unfinished. */
  readonly kept: number;
  /** The first hundred of both, newest update first. */
  readonly sessions?: readonly ExpiredSession[];
};

/** The way of a retry. */
export type RetryRunRequest = {
  /** Whether a new run continues in a fork of the session; otherwise the run itself does. */
  readonly fork?: boolean;
};

/** A filter for the runs to retry; missing fields filter nothing. */
export type RetryRunsRequest = {
  /** Only runs of this app. */
  readonly appName?: string;
  /** Only runs of this user. */
  readonly userId?: string;
  /** Only runs of this session. */
  readonly sessionId?: string;
  /** Only runs with one of these statuses. */
  readonly status?: readonly ("cancelled" | "failed")[];
  /** Only runs that failed with this error. */
  readonly errorCode?: string;
  /** Only runs created at or after these Unix seconds. */
  readonly createdFrom?: number;
  /** Only runs created before these Unix seconds. */
  readonly createdBefore?: number;
  /** Whether new runs continue in forks of the sessions. */
  readonly fork?: boolean;
  /** Maximum number of runs that are looked at. */
  readonly limit?: number;
  /** The `nextPageToken` of the previous page. */
  readonly pageToken?: string;
};

/** The result of retrying a page of runs. */
export type RetryRunsResponse = {
  /** Newest first. */
  readonly started?: readonly Run[];
  /** Newest first. */
  readonly refused?: readonly RefusedRetry[];
  /** `page_token` of the next request; None on the last page. */
  readonly nextPageToken?: string;
};

/** The run that a session is taken back to. */
export type RewindSessionRequest = {
  /** The id of the first run that doesn't count any more. */
  readonly rewindBeforeInvocationId: string;
};

/** A stored or built-in role. */
export type Role = {
  /** For people. */
  readonly description?: string;
  /** The scopes of those who have the role. */
  readonly scopes: readonly string[];
  /** By which keys, service accounts and tokens name it. */
  readonly name: string;
  /** Built-in roles can't be changed. */
  readonly isBuiltIn?: boolean;
};

/** A named set of scopes. */
export type RoleRequest = {
  /** For people. */
  readonly description?: string;
  /** The scopes of those who have the role. */
  readonly scopes: readonly string[];
};

/** A property that a judge finds fulfilled or not. */
export type Rubric = {
  /** Unique within its list. */
  readonly rubricId: string;
  /** The property that must hold. */
  readonly rubricContent: RubricContent;
  /** A note for people. */
  readonly description?: string;
  /** The type of the metrics that use the rubric; by default all use it. */
  readonly type?: string;
};

/** The content of a rubric. */
export type RubricContent = {
  /** The property that must hold, as a sentence. */
  readonly textProperty?: string;
};

/** The judgement of one rubric. */
export type RubricScore = {
  /** The rubric that was judged. */
  readonly rubricId: string;
  /** The judge's reason. */
  readonly rationale?: string;
  /** 0 or 1 in an invocation, the mean in a case; None without a judgement. */
  readonly score?: number;
};

/** The record of a run. Times are Unix seconds. */
export type Run = {
  /** The run's id, which is also the invocation id of its events. */
  readonly id: string;
  /** The app that runs. */
  readonly appName: string;
  /** The owner of the session. */
  readonly userId: string;
  /** The session that the run writes to. */
  readonly sessionId: string;
  /** The state of the run. */
  readonly status: RunStatus;
  /** Unix seconds of the request. */
  readonly createdAt: number;
  /** Unix seconds at which the run starts; None if it starts at once, and when the time has come. */
  readonly startAt?: number;
  /** Unix seconds of the newest message that continued it, of its retry, or at which its time had come; None: `created_at`. */
  readonly requestedAt?: number;
  /** Unix seconds of the first start; None while the run is queued. */
  readonly startedAt?: number;
  /** Unix seconds; None until the run has ended. */
  readonly endedAt?: number;
  /** Unix seconds of the first text of a model since the run was requested; None without statistics. */
  readonly firstTextAt?: number;
  /** Number of times that a process started or resumed the run. */
  readonly attempts?: number;
  /** Number of the last attempts that made no progress. */
  readonly stalled?: number;
  /** Number of those in which the run was the only resumed one without progress when the process died. */
  readonly stalledAlone?: number;
  /** Whether the last attempt was the only resumed run without progress. */
  readonly resumedAlone?: boolean;
  /** Number of events that the run had stored at the last attempt; -1 after a clean stop, which does not count as an attempt without progress. */
  readonly progress?: number;
  /** The error that the run failed with. */
  readonly error?: RunError;
  /** Token counts of the run's model calls. */
  readonly usage?: GenerateContentResponseUsageMetadata;
  /** The session's last sequence number before the run's first event. */
  readonly afterSeq?: number;
  /** The session's last sequence number before the message of `request`, which may be a later message than the run's first. */
  readonly messageAfterSeq?: number;
  /** The request's body, to start the run again; None for a live run, which can't be started again. Its message and its changes of the state are removed when the run has ended, if the log has them. */
  readonly request?: AgentRunRequest;
  /** The idempotency key that the caller sent. */
  readonly idempotencyKey?: string;
  /** Digest of the body that came with the idempotency key. */
  readonly requestDigest?: string;
  /** W3C context of the trace that the request belongs to. */
  readonly traceparent?: string;
  /** The caller who started the run; None without authentication. */
  readonly caller?: Caller;
  /** Whether it is a live (voice or video) run. */
  readonly isLive?: boolean;
  /** Version of the app's code in the last attempt. */
  readonly appVersion?: string;
  /** Runs of a higher priority start first. */
  readonly priority?: number;
  /** Number of times that it was retried by request, after it had failed or was cancelled. */
  readonly retries?: number;
  /** The run of another session that this one continues after a fork. */
  readonly retryOf?: string;
  /** Times and signals that continue the run while it waits, by id of the call that waits for them. */
  readonly wakeUps?: { readonly [key: string]: WakeUp };
  /** The digests of its pending approval and credential requests, by request id. */
  readonly asked?: { readonly [key: string]: string };
  /** Ids of the open requests to people while the run waits, by id of the call that waits for the answer. */
  readonly requests?: { readonly [key: string]: string };
  /** Receivers of the run's states. */
  readonly webhooks?: readonly RunWebhook[];
  /** Signals that were sent before the run waits for them, oldest first. */
  readonly signals?: readonly SentSignal[];
  /** The ids of signals that it received, and the Unix seconds until which it refuses them a second time. */
  readonly signalIds?: { readonly [key: string]: number };
  /** The active run that is to read the message of this request, or has read it: then this run has done nothing itself. None for a run of its own. */
  readonly steeredInto?: string;
  /** The sequence number of the message in the log, where the other run has read it. */
  readonly readAtSeq?: number;
  /** Number of times that figures of it were added to the statistics. */
  readonly counted?: number;
  /** The sequence number up to which its events are in the statistics. */
  readonly countedSeq?: number;
  /** Requests that continue the run before `request`, oldest first: those whose messages were not in the log when `request` was admitted. Empty when the run begins. */
  readonly queuedBefore?: readonly QueuedRequest[];
};

/** The error that a run failed with. */
export type RunError = {
  /** The class name of the error, or the code that a model reported. */
  readonly code: string;
  /** The error's text. */
  readonly message: string;
  /** The HTTP status of the error; None for an error that a model reported. */
  readonly status?: number;
};

/** Cases to run and metrics to compute. */
export type RunEvalRequest = {
  /** The cases to run; empty: all. */
  readonly evalCaseIds?: readonly string[];
  /** The older name of `eval_case_ids`. */
  readonly evalIds?: readonly string[];
  /** The version of the set to run; by default the newest. */
  readonly evalSetVersion?: number;
  /** The metrics to compute. */
  readonly evalMetrics?: readonly RequestedMetric[];
  /** Options of the simulated user in scenarios. */
  readonly userSimulatorConfig?: JsonObject;
  /** Not supported. */
  readonly liveModelConfig?: JsonObject;
};

/** The results of the cases. */
export type RunEvalResponse = {
  /** One for each case. */
  readonly runEvalResults: readonly RunEvalResult[];
};

/** The result of a case as it is answered to the request that ran it. */
export type RunEvalResult = {
  /** The set's id, for older clients. */
  readonly evalSetFile?: string;
  /** The id of the set. */
  readonly evalSetId: string;
  /** The id of the case. */
  readonly evalId: string;
  /** 1 passed, 2 failed, 3 not evaluated. */
  readonly finalEvalStatus: EvalStatus;
  /** Results for the whole case. */
  readonly evalMetricResults?: readonly EvalMetricResult[];
  /** Results for the whole case. */
  readonly overallEvalMetricResults?: readonly EvalMetricResult[];
  /** Results for each turn. */
  readonly evalMetricResultPerInvocation?: readonly EvalMetricResultPerInvocation[];
  /** The session's user. */
  readonly userId: string;
  /** The session in which the case was run. */
  readonly sessionId: string;
  /** The session at its end; in stored results only. */
  readonly sessionDetails?: Session;
  /** The reason why the case could not be run. */
  readonly error?: string;
  /** A hash of the case. Results of one id with different hashes are those of different cases. */
  readonly evalCaseDigest?: string;
  /** True for a case with results of tools, which ran apart from all stores: its session isn't kept. */
  readonly isOffline?: boolean;
  /** The evaluated app. */
  readonly appName: string;
};

export type RunStatus = "cancelled" | "failed" | "queued" | "running" | "succeeded" | "waiting";

/** A webhook of a run. */
export type RunWebhook = {
  /** `https://` or `http://`, without a user name and password. */
  readonly url: string;
  /** The states that are sent; by default all but `queued` and `running`. */
  readonly states?: readonly RunStatus[];
  /** Unique in its run or app; by default the server chooses one. */
  readonly id?: string;
  /** Whether the run has it from its app. */
  readonly isOfApp?: boolean;
  /** The status of the run that was noted last, whether it is one of `states` or not. */
  readonly status?: RunStatus;
  /** Number of changes of the status since the run has this webhook. */
  readonly changes?: number;
};

/** The configuration of ADK's web page. */
export type RuntimeConfig = {
  /** The server's URL, if it isn't the root of the origin that the page came from. */
  readonly backendUrl?: string;
  /** Whether the page sends usage reports. */
  readonly telemetry?: boolean;
  /** Whether agents' files may be edited. */
  readonly edit?: boolean;
};

/** A version to save. */
export type SaveArtifactRequest = {
  /** The artifact's name; the prefix `user:` shares it among the user's sessions. */
  readonly filename: string;
  /** A part with `inlineData`, `text` or `fileData`. */
  readonly artifact: Part;
  /** Stored with the version. */
  readonly customMetadata?: JsonObject;
};

/** A conversation to keep as a test. */
export type SaveTestRequest = {
  /** The conversation as the endpoint of sessions returns it, or its events only. */
  readonly sessionData: KeptSession;
};

/** A schedule. It has exactly one of `cron`, `everySeconds` and `at`. Times are Unix seconds. */
export type Schedule = {
  /** Unique in its app; by default the server chooses one. */
  readonly id?: string;
  /** The app that runs. Set by the server. */
  readonly appName?: string;
  /** The owner of the sessions. */
  readonly userId: string;
  /** Minute, hour, day of the month, month and day of the week: `30 9 * * MON-FRI`. */
  readonly cron?: string;
  /** The time zone of `cron`: a name of the IANA database, such as `Europe/Berlin`. */
  readonly timeZone?: string;
  /** Runs start at this distance, from `startAt` on or, without it, from the creation of the schedule on. */
  readonly everySeconds?: number;
  /** The run starts once, at this time. */
  readonly at?: number;
  /** No run starts before this time. */
  readonly startAt?: number;
  /** No run starts after this time. */
  readonly endAt?: number;
  /** Each run starts up to this much later, by a number that looks random. */
  readonly jitterSeconds?: number;
  /** Policy for times that passed while the server was down: no run, one for all of them, or one for each, at most 100. */
  readonly missed?: "all" | "once" | "skip";
  /** Policy while the schedule's last run is unfinished: `skip` this time, `cancel` that run, `enqueue` (in one session) or `allow` (in new sessions). By default `skip` in one session, and `allow` in new ones. */
  readonly overlap?: "allow" | "cancel" | "enqueue" | "skip";
  /** The session of all runs; by default each run gets a new session. */
  readonly sessionId?: string;
  /** The request of each run: its message, changes of the state, and options. */
  readonly request?: SessionRunRequest;
  /** Whether no run starts until the schedule is resumed. */
  readonly isPaused?: boolean;
  /** The time of the next run; None if there is none. Set by the server. */
  readonly nextAt?: number;
  /** Whether the app's code or YAML declares it: then it can be paused, but not changed. Set by the server. */
  readonly isOfApp?: boolean;
  /** Set by the server. */
  readonly createdAt?: number;
  /** The run that it started last. Set by the server. */
  readonly lastRunId?: string;
};

/** An entry of a schedule's history: a time that came, and its outcome. Times are Unix seconds. */
export type ScheduleRun = {
  /** The time that the schedule gave, without jitter; of a run that a person started, the time of that. */
  readonly dueAt: number;
  /** The first of several times that passed without a run; `dueAt` is the last one. */
  readonly firstDueAt?: number;
  /** The time at which the outcome was known. */
  readonly at: number;
  /** A run was started; or none was, since nobody was there at the time, since the last run was unfinished, or since the server refused the request. */
  readonly outcome: "missed" | "refused" | "started" | "unfinished";
  /** The run that was started, or the unfinished one. */
  readonly runId?: string;
  /** The session of the run that was started. */
  readonly sessionId?: string;
  /** The name of the error with which the request was refused. */
  readonly errorCode?: string;
  /** The error's text. */
  readonly errorMessage?: string;
  /** Whether a person started the run, by `…/run`. */
  readonly isManual?: boolean;
};

/** The next times of a schedule. */
export type ScheduleTimes = {
  /** Unix seconds, earliest first, without jitter. */
  readonly times: readonly number[];
};

/** The Gemini API's subset of OpenAPI schemas; type names are upper case. */
export type Schema = {
  /** STRING, NUMBER, INTEGER, BOOLEAN, ARRAY, OBJECT or NULL. */
  readonly type?: string;
  /** A short name. */
  readonly title?: string;
  /** A description of the value for the model. */
  readonly description?: string;
  /** The format of a string or a number, such as `date-time` or `int32`. */
  readonly format?: string;
  /** Whether null is valid as well. */
  readonly nullable?: boolean;
  /** The value used when none is given. */
  readonly default?: JsonValue;
  /** One valid value. */
  readonly example?: JsonValue;
  /** The valid strings. */
  readonly enum?: readonly string[];
  /** The value is valid if one of these accepts it. */
  readonly anyOf?: readonly Schema[];
  /** The schema of an array's elements. */
  readonly items?: Schema;
  /** Schemas of an object's properties by name. */
  readonly properties?: { readonly [key: string]: Schema };
  /** Names of the required properties. */
  readonly required?: readonly string[];
  /** Names of the properties in the order in which the model writes them. */
  readonly propertyOrdering?: readonly string[];
  /** True, false or the schema of other properties. */
  readonly additionalProperties?: JsonValue;
  /** The smallest valid number. */
  readonly minimum?: number;
  /** The largest valid number. */
  readonly maximum?: number;
  /** The smallest length of an array. */
  readonly minItems?: number;
  /** The greatest length of an array. */
  readonly maxItems?: number;
  /** The smallest length of a string, in characters. */
  readonly minLength?: number;
  /** The greatest length of a string, in characters. */
  readonly maxLength?: number;
  /** The smallest number of properties of an object. */
  readonly minProperties?: number;
  /** The greatest number of properties of an object. */
  readonly maxProperties?: number;
  /** Regular expression that a string must match. */
  readonly pattern?: string;
  /** A schema in `defs`, as `#/$defs/name`. */
  readonly ref?: string;
  /** Schemas by name, for `ref`. */
  readonly defs?: JsonValue;
};

/** A signal that was sent to a run. */
export type SentSignal = {
  /** Of its idempotency key or its URL; a run receives a signal with the same id once. */
  readonly id: string;
  /** The name that a call of `wait_for` gives. */
  readonly name: string;
  /** The result of the call. */
  readonly value?: JsonValue;
  /** Unix seconds. */
  readonly sentAt: number;
  /** Unix seconds, until which the run refuses it a second time. */
  readonly knownUntil: number;
};

/** An identity that is no user. It acts as the user `service:NAME`. */
export type ServiceAccount = {
  /** For people. */
  readonly description?: string;
  /** Scopes of its keys, besides those of its roles. */
  readonly scopes?: readonly string[];
  /** Names of roles, whose scopes its keys have. */
  readonly roles?: readonly string[];
  /** The only apps that its keys may access; without it, all. */
  readonly apps?: readonly string[];
  /** True: its keys are refused. */
  readonly isDisabled?: boolean;
  /** Unique among the service accounts. */
  readonly name: string;
  /** Unix seconds. */
  readonly createdAt: number;
};

/** A service account's description and permissions, which all its keys have. */
export type ServiceAccountRequest = {
  /** For people. */
  readonly description?: string;
  /** Scopes of its keys, besides those of its roles. */
  readonly scopes?: readonly string[];
  /** Names of roles, whose scopes its keys have. */
  readonly roles?: readonly string[];
  /** The only apps that its keys may access; without it, all. */
  readonly apps?: readonly string[];
  /** True: its keys are refused. */
  readonly isDisabled?: boolean;
};

/** A copy of a session: the maps and lists belong to the holder, the events are shared and immutable. */
export type Session = {
  /** The session's id. */
  readonly id: string;
  /** The app that the session belongs to. */
  readonly appName: string;
  /** The owner of the session. */
  readonly userId: string;
  /** The merged state, with `app:` and `user:` keys under their prefixes. */
  readonly state: JsonObject;
  /** Any iterable is accepted. */
  readonly events: readonly Event[];
  /** Timestamp of the last stored event, Unix seconds. */
  readonly lastUpdateTime: number;
};

/** The session in which a case runs. */
export type SessionInput = {
  /** The app's name. */
  readonly appName?: string;
  /** The user's id. */
  readonly userId?: string;
  /** By default a new one. */
  readonly sessionId?: string;
  /** The state that the new session begins with. */
  readonly state?: JsonObject;
};

/** A request to run in a session. */
export type SessionRunRequest = {
  /** The user's message or function responses; None runs on the stored history. */
  readonly newMessage?: Content;
  /** Whether partial events are sent. */
  readonly streaming?: boolean;
  /** Changes of the session's state, stored with the message. */
  readonly stateDelta?: JsonObject;
  /** Sent by ADK's UI, without effect. */
  readonly functionCallEventId?: string;
  /** The run to continue. */
  readonly invocationId?: string;
  /** Stored with the user's event. */
  readonly customMetadata?: JsonObject;
  /** The service tier requested from the model's provider. */
  readonly serviceTier?: string;
  /** Lowers the limit of the app or the server. */
  readonly maxLlmCalls?: number;
  /** Policy for a session that already has an active run. */
  readonly multitaskStrategy?: "enqueue" | "interrupt" | "reject" | "steer";
  /** Runs of a higher priority start first where the server limits the runs that it executes at a time; by default that of the app. */
  readonly priority?: number;
  /** Whether the run continues or is cancelled when the client disconnects. */
  readonly onDisconnect?: "cancel" | "continue";
  /** The run is failed after this time, which counts from its start. */
  readonly deadlineSeconds?: number;
  /** Unix seconds at which the run starts; at once if they have passed. */
  readonly startAt?: number;
  /** Seconds after which the run starts, in place of `startAt`. */
  readonly delaySeconds?: number;
  /** Functions that the client executes; a call stays open until a message brings its function response. */
  readonly clientTools?: readonly FunctionDeclaration[];
  /** Receivers of the run's states, besides those of the app. */
  readonly webhooks?: readonly Webhook[];
};

/** A test that was written. */
export type SessionTestReply = {
  /** `success`. */
  readonly status: string;
  /** The name of the file that was written. */
  readonly file?: string;
};

/** A setting of the server. */
export type SettingInfo = {
  /** As in `greenroom.toml`: `cors.max_age`. */
  readonly key: string;
  /** The value in effect as text, without secrets. */
  readonly value: string;
  /** The source of the value: a flag, a variable, a line of the file, `default`, `derived` from other settings and the folder, or `code`. */
  readonly origin: string;
  /** Whether the value is the default. */
  readonly isDefault: boolean;
  /** For people. */
  readonly description: string;
  /** The environment variable that sets it. */
  readonly variable: string;
};

/** Credentials for the web page. */
export type SignInRequest = {
  /** An API key or a token; an empty one signs out. */
  readonly key: string;
};

/** A signal that was sent by its signed URL. */
export type SignalSent = {
  /** The signal's name. */
  readonly signal: string;
};

/** The signed-in caller. */
export type SignedIn = {
  /** The only user that the key acts for; None if it acts for several, or if nobody has signed in. */
  readonly userId?: string;
};

/** A span of a trace. Its fields are snake_case, as ADK's UI reads them. */
export type SpanRecord = {
  /** The operation. */
  readonly name: string;
  /** Id of the trace, as hex text. */
  readonly trace_id: string;
  /** Id of the span, as hex text. */
  readonly span_id: string;
  /** Id of the parent; None for the root. */
  readonly parent_span_id: string | null;
  /** Nanoseconds since the epoch. */
  readonly start_time: number;
  /** Nanoseconds since the epoch. */
  readonly end_time: number;
  /** Attributes by name; no value is null. */
  readonly attributes: { readonly [key: string]: string | number | boolean | readonly string[] };
  /** Filled in when the span is shown, never null. */
  readonly logs?: readonly JsonObject[];
};

/** Statistics over time. */
export type Statistics = {
  /** The currency of all costs. */
  readonly currency?: string;
  /** Unix seconds, included: `start` of the request, rounded down to a multiple of `step`. */
  readonly start: number;
  /** Unix seconds, not included: `end` of the request, rounded up to a multiple of `step`. */
  readonly end: number;
  /** The seconds between two points. */
  readonly step: number;
  /** Those with most runs first, or with most calls; at most `limit`. */
  readonly groups: readonly StatisticsGroup[];
  /** The sum of all other groups; None if there are none. */
  readonly others?: StatisticsGroup;
  /** The number of groups in `others`. */
  readonly otherGroups?: number;
};

/** The figures of one app, model, tool or user over time. */
export type StatisticsGroup = {
  /** The name of the app, model or tool, or the id of the user; None without grouping, and for the sum of groups. */
  readonly key?: string;
  /** Of the whole period. */
  readonly total: Figures;
  /** By time; times without figures have no point. */
  readonly points: readonly StatisticsPoint[];
};

/** Figures of the `step` seconds from `time` on. */
export type StatisticsPoint = {
  /** Runs that ended, by status: `succeeded`, `failed`, `cancelled`. */
  readonly runs?: { readonly [key: string]: number };
  /** Runs that failed, by the code of their error; of models and tools, calls that failed. */
  readonly errors?: { readonly [key: string]: number };
  /** From a request to the first text of a model, of runs that ended. */
  readonly firstText?: Latency;
  /** From a request to the end, of runs that ended; of models and tools, the duration of calls. */
  readonly duration?: Latency;
  /** Answers of models. */
  readonly modelCalls?: number;
  /** Results of tools. */
  readonly toolCalls?: number;
  /** Tokens of prompts, with the cached ones. */
  readonly inputTokens?: number;
  /** Tokens of answers, with those of thoughts. */
  readonly outputTokens?: number;
  /** Tokens of prompts that were read from a cache. */
  readonly cachedTokens?: number;
  /** Tokens of models without a known price, which are not in `cost`. */
  readonly unpricedTokens?: number;
  /** In `currency`. */
  readonly cost?: number;
  /** Unix seconds, a multiple of `step`. */
  readonly time: number;
};

/** The consent to usage reports. The server sends none. */
export type TelemetryConsent = {
  /** Whether the user consents. */
  readonly telemetry: boolean;
};

/** An entry of a request's tool list: function declarations, or one built-in of the model's service. */
export type Tool = {
  /** Functions that the application executes. */
  readonly functionDeclarations?: readonly FunctionDeclaration[];
  /** Options of the built-in Google Search. */
  readonly googleSearch?: JsonObject;
  /** Options of the older Google Search. */
  readonly googleSearchRetrieval?: JsonObject;
  /** Options of the built-in Google Maps. */
  readonly googleMaps?: JsonObject;
  /** Options of the built-in web search for enterprises. */
  readonly enterpriseWebSearch?: JsonObject;
  /** Options of reading web pages. */
  readonly urlContext?: JsonObject;
  /** Options of executing code at the provider. */
  readonly codeExecution?: JsonObject;
  /** Options of retrieval from the provider's data stores. */
  readonly retrieval?: JsonObject;
  /** Options of controlling a computer. */
  readonly computerUse?: JsonObject;
  /** Options of searching uploaded files. */
  readonly fileSearch?: JsonObject;
  /** Options of the search of Parallel. */
  readonly parallelAiSearch?: JsonObject;
  /** Options of the search of Exa. */
  readonly exaAiSearch?: JsonObject;
};

/** A call of a tool that the model's service runs. */
export type ToolCall = {
  /** Pairs the call with its response. */
  readonly id?: string;
  /** The kind of the provider's tool. */
  readonly toolType?: string;
  /** The arguments by name. */
  readonly args?: JsonObject;
};

/** A tool that an agent has in one version only, or with another declaration. */
export type ToolChange = {
  /** The tool's name. */
  readonly name: string;
  /** The kind of the difference. */
  readonly change: "added" | "changed" | "removed";
  /** The declaration in the first version. */
  readonly before: FunctionDeclaration | null;
  /** The declaration in the second version. */
  readonly after: FunctionDeclaration | null;
};

/** An approval of a tool call: the request or its answer. */
export type ToolConfirmation = {
  /** The question for the user. */
  readonly hint?: string;
  /** Whether the user approved. */
  readonly confirmed?: boolean;
  /** Data that the tool requests from the user, or the user's answer. */
  readonly payload?: JsonValue;
};

/** The result of a tool that the model's service has run. */
export type ToolResponse = {
  /** The id of the call. */
  readonly id?: string;
  /** The kind of the provider's tool. */
  readonly toolType?: string;
  /** The tool's result. */
  readonly response?: JsonObject;
};

/** The shares of an app's sessions that each version serves. */
export type Traffic = {
  /** Percentages of new sessions by the name of a version, `source` for the present code; their sum is 100. A version with 0 gets no new sessions and keeps those it has; one that is missing serves no session. Empty: the present code serves all sessions. */
  readonly shares: { readonly [key: string]: number };
};

/** The transcript of a piece of audio. */
export type Transcription = {
  /** The transcribed text. */
  readonly text?: string;
  /** Whether the transcript is complete. */
  readonly finished?: boolean;
  /** BCP 47 code of the language. */
  readonly languageCode?: string;
  /** The label of the speaker. */
  readonly speakerLabel?: string;
  /** The words with their times. */
  readonly words?: readonly JsonObject[];
  /** Start in the audio. */
  readonly startOffset?: string;
  /** End in the audio. */
  readonly endOffset?: string;
};

/** The usage of an app, or of one user, session, run, model and day, as grouped; the fields of other groups are None. */
export type UsageSum = {
  /** None unless grouped by user. */
  readonly userId?: string;
  /** None unless grouped by session. */
  readonly sessionId?: string;
  /** None unless grouped by run. */
  readonly runId?: string;
  /** The model's name, as the provider reported it. */
  readonly model?: string;
  /** Such as 2026-01-31, in UTC. */
  readonly day?: string;
  /** The number of model calls. */
  readonly calls?: number;
  /** Tokens of prompts, with the cached ones. */
  readonly promptTokenCount?: number;
  /** Tokens of prompts that were read from a cache. */
  readonly cachedContentTokenCount?: number;
  /** Tokens of results of the provider's tools. */
  readonly toolUsePromptTokenCount?: number;
  /** Tokens of answers. */
  readonly candidatesTokenCount?: number;
  /** Tokens of the models' reasoning. */
  readonly thoughtsTokenCount?: number;
  /** All tokens, with the estimated ones of calls whose usage the model did not report; only apps with a budget estimate them. */
  readonly totalTokenCount?: number;
  /** Tokens of calls whose usage the model did not report. */
  readonly estimatedTokenCount?: number;
  /** Tokens of models without a known price. */
  readonly unpricedTokenCount?: number;
  /** In `currency`; None if any token is unpriced. */
  readonly cost?: number;
};

/** The differences between two versions of an app. */
export type VersionComparison = {
  /** The name of the first version. */
  readonly first: string;
  /** The name of the second version. */
  readonly second: string;
  /** Agents that differ, by name. Empty if a model would see the same. */
  readonly agents: readonly AgentChange[];
  /** Files that differ, by path. */
  readonly files: readonly FileChange[];
};

/** The first step of a run that differs when its log is replayed with other code of its app. */
export type VersionDifference = {
  /** The sequence number of the event, in the session's log. */
  readonly seq: number;
  /** The step in the log, and the step with the other code. */
  readonly text: string;
};

/** A file of a published version. */
export type VersionFile = {
  /** Relative to the served folder. */
  readonly path: string;
  /** The size of the file. */
  readonly sizeBytes: number;
};

/** Figures of a version's runs. */
export type VersionScores = {
  /** The version; `source` for all code that isn't published. */
  readonly name: string;
  /** Number of runs. */
  readonly runs: number;
  /** Number of their sessions. */
  readonly sessions: number;
  /** Number of runs that have succeeded or failed. */
  readonly ended: number;
  /** Number of failed runs. */
  readonly failed: number;
  /** The share of failed runs, compared with the baseline's; none for the baseline itself, and without ended runs. */
  readonly failures: MeanComparison | null;
  /** The median time from the start to the end of its succeeded runs. */
  readonly medianSeconds: number | null;
  /** The time that 95 % of its succeeded runs keep. */
  readonly p95Seconds: number | null;
  /** The mean number of tokens of its runs with token counts. */
  readonly meanTokens: number | null;
  /** By the name of the feedback. */
  readonly feedback: { readonly [key: string]: FeedbackScores };
};

/** A section of a video. */
export type VideoMetadata = {
  /** Start of the section, such as `1.5s`. */
  readonly startOffset?: string;
  /** End of the section, such as `3s`. */
  readonly endOffset?: string;
  /** Frames per second that the model is given. */
  readonly fps?: number;
};

/** A waiting run, and whether it would differ if it continued with the present code. */
export type WaitingRun = {
  /** The run's record. */
  readonly run: Run;
  /** Names of what the run waits for, such as `approval of pay`. */
  readonly waitsFor?: readonly string[];
  /** The present version of the app's code; None when it can't be loaded. */
  readonly version?: string;
  /** The app's policy for a run that differs; None when the app can't be loaded. */
  readonly onVersionChange?: string;
  /** None if the replay is equal, or the run began with this version, or with a published one, which it keeps. */
  readonly difference?: VersionDifference;
};

/** A cause that continues a run which waits for the response to a call. */
export type WakeUp = {
  /** The name of the function. */
  readonly tool: string;
  /** Unix seconds; None if no time does. */
  readonly at?: number;
  /** The name of the signal; None if none does. */
  readonly signal?: string;
  /** A run that its time can continue only that much later is cancelled instead; None: it always continues. */
  readonly maxLateSeconds?: number;
};

/** A URL that receives the states of a run, or of all runs of an app, in signed HTTP requests. */
export type Webhook = {
  /** `https://` or `http://`, without a user name and password. */
  readonly url: string;
  /** The states that are sent; by default all but `queued` and `running`. */
  readonly states?: readonly RunStatus[];
  /** Unique in its run or app; by default the server chooses one. */
  readonly id?: string;
};

/** A message to a webhook, with the tries to send it. Times are Unix seconds. */
export type WebhookDelivery = {
  /** The header `webhook-id` of all tries. */
  readonly id: string;
  /** The webhook of the run, or of the app. */
  readonly webhookId: string;
  /** The app of the run. */
  readonly appName: string;
  /** None for a test of an app's webhook, which concerns no run. */
  readonly runId?: string;
  /** The user of the run. */
  readonly userId?: string;
  /** The session of the run. */
  readonly sessionId?: string;
  /** The address that it is sent to. */
  readonly url: string;
  /** The type in the body. */
  readonly type: string;
  /** Position among the messages of the run to the webhook, which are sent in this order. */
  readonly number?: number;
  /** Unix seconds. */
  readonly createdAt: number;
  /** The JSON of the `WebhookEvent` that is sent. */
  readonly body: string;
  /** `failed`: it is not tried again, unless a client asks for it. */
  readonly status: "delivered" | "failed" | "pending";
  /** Number of failed tries. */
  readonly failures?: number;
  /** None unless it is pending. */
  readonly nextTryAt?: number;
  /** The newest tries, newest last. */
  readonly attempts?: readonly DeliveryAttempt[];
};
