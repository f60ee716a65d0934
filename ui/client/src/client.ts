import { type Frame, frames } from "./sse.ts";
import { type Following, follow, RunStream, type StreamItem } from "./stream.ts";
import { type Sent, Transport } from "./transport.ts";
import type {
  AddCasesResponse,
  AddFeedbackRequest,
  ApiKeyInfo,
  AnswerRequestResponse,
  AppInfo,
  AppWebhook,
  ArtifactVersion,
  AuditEntry,
  Budget,
  ChangeMemoryRequest,
  Content,
  CreateApiKeyRequest,
  CreateSessionRequest,
  CreatedApiKey,
  DelegateRequest,
  ErasureReport,
  EvalSetVersion,
  Event,
  EventPage,
  Feedback,
  FeedbackRequest,
  ForkSessionRequest,
  FunctionCall,
  GraphResponse,
  HumanRequest,
  JsonObject,
  JsonValue,
  ListApiKeysResponse,
  ListAppWebhooksResponse,
  ListAuditResponse,
  ListBudgetsResponse,
  ListDeliveriesResponse,
  ListEvalSetVersionsResponse,
  ListFeedbackResponse,
  ListMemoriesResponse,
  ListRequestsResponse,
  ListRunWebhooksResponse,
  ListRunsResponse,
  ListRolesResponse,
  ListScheduleRunsResponse,
  ListSchedulesResponse,
  ListServiceAccountsResponse,
  ListSettingsResponse,
  ListUsageResponse,
  ListVersionScoresResponse,
  ListVersionsResponse,
  ListWaitingRunsResponse,
  MakeCaseRequest,
  Me,
  MemoryEntry,
  LoadStatistics,
  Part,
  PatchSessionRequest,
  PublishedVersion,
  RequestAnswer,
  RequestKind,
  RetentionPreview,
  RetryRunsRequest,
  RetryRunsResponse,
  Role,
  RoleRequest,
  Run,
  RunStatus,
  RunWebhook,
  Schedule,
  ScheduleRun,
  ScheduleTimes,
  ServiceAccount,
  ServiceAccountRequest,
  Session,
  SessionRunRequest,
  SpanRecord,
  Traffic,
  VersionComparison,
  Statistics,
  Webhook,
  WebhookDelivery,
} from "./wire.ts";

/**
 * apiKey: sent as `Authorization: Bearer`; a browser that has signed in needs none. retryMs: how long a request or a
 * stream without an answer is tried again, 60,000 by default.
 */
export type ClientOptions = {
  readonly apiKey?: string;
  readonly retryMs?: number;
  readonly fetch?: typeof globalThis.fetch;
};
export type SessionPlace = { readonly app: string; readonly user: string; readonly session: string };
/** message: text, or the content to send; without it the run works on the stored history. */
export type RunMessage = Omit<SessionRunRequest, "newMessage"> & { readonly message?: string | Content };
export type RunQuery = {
  readonly app_name?: string;
  readonly user_id?: string;
  readonly session_id?: string;
  readonly status?: readonly RunStatus[];
  readonly error_code?: string;
  /** As `Run.appVersion`, or with `app_name` the name of a published version. */
  readonly app_version?: string;
  readonly created_from?: number;
  readonly created_before?: number;
  /** The name of feedback that a run has; it needs `app_name`. */
  readonly feedback?: string;
  readonly feedback_label?: string;
  readonly min_score?: number;
  readonly max_score?: number;
  readonly signal?: AbortSignal;
  readonly limit?: number;
  readonly page_token?: string;
};
/** mine: only those that the caller itself may answer now; approver: those that this user may. */
export type AuditQuery = {
  readonly action?: readonly AuditEntry["action"][];
  readonly outcome?: AuditEntry["outcome"];
  readonly subject?: string;
  readonly app_name?: string;
  readonly user_id?: string;
  readonly session_id?: string;
  readonly run_id?: string;
  readonly time_from?: number;
  readonly time_before?: number;
  readonly limit?: number;
  readonly page_token?: string;
};
export type RequestQuery = {
  readonly app_name?: string;
  readonly user_id?: string;
  readonly kind?: readonly RequestKind[];
  readonly tool?: string;
  readonly mine?: boolean;
  readonly approver?: string;
  readonly signal?: AbortSignal;
  readonly limit?: number;
  readonly page_token?: string;
};
export type SessionQuery = {
  readonly text?: string;
  readonly state?: readonly string[];
  readonly updated_from?: number;
  readonly updated_before?: number;
  readonly limit?: number;
  readonly page_token?: string;
};

/** min_score, max_score: both are included; true counts as 1, and false as 0. created_from, created_before: Unix seconds. */
export type FeedbackQuery = {
  readonly event_id?: string;
  readonly name?: string;
  readonly label?: string;
  readonly source?: Feedback["source"];
  readonly min_score?: number;
  readonly max_score?: number;
  readonly created_from?: number;
  readonly created_before?: number;
  readonly limit?: number;
  readonly page_token?: string;
};
export type MemoryQuery = { readonly query?: string; readonly limit?: number; readonly page_token?: string };
export type BudgetQuery = { readonly user_id?: string; readonly key_id?: string };
/** The defaults are those of `Budget`. */
export type BudgetRequest = Partial<Budget> & Pick<Budget, "per">;
export type KeyQuery = {
  readonly user_id?: string;
  readonly service_account?: string;
  readonly limit?: number;
  readonly page_token?: string;
};
/** force: also if then no key could administrate all apps any more. */
export type Forced = { readonly force?: boolean };
export type ScheduleQuery = { readonly user_id?: string; readonly limit?: number; readonly page_token?: string };
export type EventQuery = { readonly after?: number; readonly limit?: number; readonly signal?: AbortSignal };

export type UsageQuery = {
  readonly group_by?: readonly string[];
  readonly user_id?: string;
  readonly session_id?: string;
  readonly run_id?: string;
  readonly model?: string;
  readonly first_day?: string;
  readonly last_day?: string;
  readonly limit?: number;
  readonly page_token?: string;
};

export type LoadQuery = {
  readonly start?: number;
  readonly end?: number;
  readonly step?: 60 | 300 | 3600 | 86400;
  readonly app_name?: string;
};

export type StatisticsQuery = LoadQuery & {
  readonly group_by?: "app" | "model" | "tool" | "user";
  readonly user_id?: string;
  readonly model?: string;
  readonly tool?: string;
  readonly limit?: number;
};

const encode = encodeURIComponent;

/** A client of one server. All operations throw GreenroomError. */
export class Client {
  private readonly transport: Transport;

  constructor(url: string, { apiKey, retryMs = 60_000, fetch = globalThis.fetch.bind(globalThis) }: ClientOptions = {}) {
    this.transport = new Transport(url, apiKey, retryMs, fetch);
  }

  /** Sends a request to a path of the server, for what has no method here. Without a body in the reply: undefined. */
  request<T>(path: string, sent: Sent = {}): Promise<T> {
    return this.transport.json(path, sent);
  }

  /** Sends a request once and reads the events of its reply, to the end or to a lost connection. */
  async *requestEvents(path: string, { headers, ...sent }: Sent = {}): AsyncGenerator<Frame> {
    const reply = await this.transport.once(path, { ...sent, headers: { accept: "text/event-stream", ...headers } });
    if (reply.body !== null) yield* frames(reply.body);
  }

  // Apps

  async listApps(): Promise<readonly AppInfo[]> {
    return (await this.get<{ apps: AppInfo[] }>("/list-apps?detailed=true")).apps;
  }

  getAppInfo(app: string): Promise<AppInfo> {
    return this.get(`/apps/${encode(app)}/app-info`);
  }

  getGraph(app: string, { darkMode = false } = {}): Promise<GraphResponse> {
    return this.get(`/dev/apps/${encode(app)}/graph?dark_mode=${darkMode}`);
  }

  listUsage(app: string, query: UsageQuery = {}): Promise<ListUsageResponse> {
    return this.get(`/apps/${encode(app)}/usage${search(query)}`);
  }

  /** Figures of runs and calls over time. Times of the query are Unix seconds. */
  getStatistics(query: StatisticsQuery = {}): Promise<Statistics> {
    return this.get(`/statistics${search(query)}`);
  }

  /** The load of all servers over time. */
  getLoad(query: LoadQuery = {}): Promise<LoadStatistics> {
    return this.get(`/statistics/load${search(query)}`);
  }

  /** Entries of the audit trail, newest first. Times of the query are Unix seconds. */
  listAuditEntries(query: AuditQuery = {}): Promise<ListAuditResponse> {
    return this.get(`/audit${search(query)}`);
  }

  // Sessions

  createSession(app: string, user: string, body: CreateSessionRequest = {}): Promise<Session> {
    return this.post(sessions(app, user), body);
  }

  /** untilSeq: the session as it was after the event with this sequence number. */
  getSession(place: SessionPlace, { untilSeq }: { readonly untilSeq?: number } = {}): Promise<Session> {
    return this.get(session(place) + search({ until_seq: untilSeq }));
  }

  /** A page of a user's sessions, newest update first, 100 by default. next: the `page_token` of the next page. */
  async listSessions(app: string, user: string, query: SessionQuery = {}): Promise<{ sessions: Session[]; next?: string }> {
    const path = sessions(app, user) + search({ limit: 100, ...query });
    const reply = await this.transport.send(path, {}, true);
    const next = reply.headers.get("x-next-page-token");
    return { sessions: (await reply.json()) as Session[], ...(next === null ? {} : { next }) };
  }

  /** After a sequence number. */
  listEvents(place: SessionPlace, { signal, ...query }: EventQuery = {}): Promise<EventPage> {
    return this.transport.json(`${session(place)}/events${search(query)}`, { signal });
  }

  patchSession(place: SessionPlace, body: PatchSessionRequest): Promise<Session> {
    return this.transport.json(session(place), { method: "PATCH", body });
  }

  forkSession(place: SessionPlace, body: ForkSessionRequest = {}): Promise<Session> {
    return this.post(`${session(place)}/fork`, body);
  }

  /** Takes a session back to where a run began; returns the event of the rewind. */
  rewindSession(place: SessionPlace, beforeRun: string): Promise<Event> {
    return this.post(`${session(place)}/rewind`, { rewindBeforeInvocationId: beforeRun });
  }

  /** How long an app keeps sessions, and which would be deleted now. */
  getRetention(app: string): Promise<RetentionPreview> {
    return this.get(`/apps/${encode(app)}/retention`);
  }

  /** Erases all that an app has of a user, and reports what was found, deleted, kept and left. */
  async deleteUser(app: string, user: string): Promise<ErasureReport> {
    return (await this.transport.send(userPath(app, user), { method: "DELETE" }, true)).json() as Promise<ErasureReport>;
  }

  /** A zip file with all that an app has of a user. */
  async exportUser(app: string, user: string): Promise<Blob> {
    return (await this.transport.send(`${userPath(app, user)}/export`, {}, true)).blob();
  }

  async deleteSession(place: SessionPlace): Promise<void> {
    await this.transport.send(session(place), { method: "DELETE" }, true);
  }

  /** Forks the session before the event and starts a run there, on another message or on the event's own. */
  editEvent(place: SessionPlace, eventId: string, message: RunMessage = {}): Promise<Run> {
    return this.post(`${session(place)}/events/${encode(eventId)}/edit`, requestOf(message));
  }

  /** All runs of a session, as they come; the stream has no end. after: sequence number of the last event seen. */
  followSession(place: SessionPlace, following: Following = {}): AsyncGenerator<StreamItem> {
    return follow(this.transport, { path: `${session(place)}/events`, after: following.after ?? 0, isOver: false }, following);
  }

  // Runs

  /** Starts a run, once even if the request is sent again, and returns the stream of its events, without the user's. */
  async run(place: SessionPlace, message: RunMessage, { signal }: { readonly signal?: AbortSignal } = {}): Promise<RunStream> {
    const started = await this.startRun(place, message);
    // an answer continues a run whose earlier events the caller has read
    const content = typeof message.message === "object" ? message.message : undefined;
    const isAnswer = content?.parts?.some((part) => part.functionResponse !== undefined) === true;
    const after = isAnswer ? started.messageAfterSeq : started.afterSeq;
    return this.stream(started, { after, signal }, false);
  }

  /** Starts a run, once even if the request is sent again, and doesn't wait for it. */
  startRun(place: SessionPlace, message: RunMessage, idempotencyKey: string = newKey()): Promise<Run> {
    return this.post(`${session(place)}/runs`, requestOf(message), { "idempotency-key": idempotencyKey });
  }

  /** The events of a run that was started elsewhere. after: sequence number of the last event seen. */
  async follow(runId: string, following: Following = {}): Promise<RunStream> {
    return this.stream(await this.getRun(runId), following, true);
  }

  getRun(runId: string): Promise<Run> {
    return this.get(`/runs/${encode(runId)}`);
  }

  /** A page of the runs that the caller may see, newest first. */
  listRuns({ signal, ...query }: RunQuery = {}): Promise<ListRunsResponse> {
    return this.transport.json(`/runs${search(query)}`, { signal });
  }

  /** A page of the waiting runs of an app, each with the first step that differs in the present code. */
  listWaitingRuns(appName: string, query: { readonly limit?: number; readonly page_token?: string } = {}): Promise<ListWaitingRunsResponse> {
    return this.get<ListWaitingRunsResponse>(`/apps/${encode(appName)}/waiting-runs${search(query)}`);
  }

  cancelRun(runId: string): Promise<Run> {
    return this.transport.json(`/runs/${encode(runId)}/cancel`, { method: "POST", headers: { "idempotency-key": runId } });
  }

  /** Continues a failed or cancelled run from where it ended; with `fork`, as a new run in a fork of its session. */
  retryRun(runId: string, { fork = false }: { readonly fork?: boolean } = {}, idempotencyKey: string = newKey()): Promise<Run> {
    return this.post(`/runs/${encode(runId)}/retry`, { fork }, { "idempotency-key": idempotencyKey });
  }

  /** Retries each run of a page of those that a filter selects, newest first, and says which were refused. */
  retryRuns(body: RetryRunsRequest = {}): Promise<RetryRunsResponse> {
    return this.transport.json("/runs/retry", { method: "POST", body });
  }

  /** The webhooks of a run, with those of its app. */
  async listWebhooks(runId: string): Promise<readonly RunWebhook[]> {
    return (await this.get<ListRunWebhooksResponse>(`/runs/${encode(runId)}/webhooks`)).webhooks;
  }

  /** Adds a webhook, or replaces the one with its id; it receives the present state too. */
  addWebhook(runId: string, webhook: Webhook): Promise<RunWebhook> {
    return this.post(`/runs/${encode(runId)}/webhooks`, webhook);
  }

  /** Removes a webhook, with its deliveries. */
  async deleteWebhook(runId: string, webhookId: string): Promise<void> {
    await this.transport.send(webhookPath(runId, webhookId), { method: "DELETE" }, true);
  }

  /** The messages to a webhook of a run, newest first. */
  async listDeliveries(runId: string, webhookId: string, { limit }: { readonly limit?: number } = {}): Promise<readonly WebhookDelivery[]> {
    const path = `${webhookPath(runId, webhookId)}/deliveries${search({ limit })}`;
    return (await this.get<ListDeliveriesResponse>(path)).deliveries;
  }

  /** Sends a message once more, and returns it with that try. */
  redeliver(runId: string, webhookId: string, deliveryId: string): Promise<WebhookDelivery> {
    const path = `${webhookPath(runId, webhookId)}/deliveries/${encode(deliveryId)}/redeliver`;
    return this.transport.json(path, { method: "POST" });
  }

  /** Sends `webhook.test` once, and returns it with that try. */
  testWebhook(runId: string, webhookId: string): Promise<WebhookDelivery> {
    return this.transport.json(`${webhookPath(runId, webhookId)}/test`, { method: "POST" });
  }

  /** The webhooks of an app: those of its code, and those that clients have stored. */
  async listAppWebhooks(app: string): Promise<readonly AppWebhook[]> {
    return (await this.get<ListAppWebhooksResponse>(`/apps/${encode(app)}/webhooks`)).webhooks;
  }

  getAppWebhook(app: string, webhookId: string): Promise<AppWebhook> {
    return this.get(`/apps/${encode(app)}/webhooks/${encode(webhookId)}`);
  }

  /** Stores a webhook, over an earlier one with its id; runs that begin from now on have it. */
  putAppWebhook(app: string, webhook: Webhook & { readonly id: string }): Promise<AppWebhook> {
    const path = `/apps/${encode(app)}/webhooks/${encode(webhook.id)}`;
    return this.transport.json(path, { method: "PUT", body: webhook });
  }

  /** Runs that have begun keep the webhook. */
  async deleteAppWebhook(app: string, webhookId: string): Promise<void> {
    await this.transport.send(`/apps/${encode(app)}/webhooks/${encode(webhookId)}`, { method: "DELETE" }, true);
  }

  /** Sends a signal to a run, once. The run continues with its value when it waits for it. */
  signalRun(runId: string, name: string, value: JsonValue = null, idempotencyKey: string = newKey()): Promise<Run> {
    const headers = { "idempotency-key": idempotencyKey };
    return this.transport.json(`/runs/${encode(runId)}/signals/${encode(name)}`, { method: "POST", body: value, headers });
  }

  // Published versions

  /** Publishes the present code of an app; code that was published before is that version. */
  publishVersion(app: string, message = ""): Promise<PublishedVersion> {
    return this.transport.json(versionsPath(app), { method: "POST", body: { message } });
  }

  /** The published versions of an app, newest first, with their shares of its sessions. */
  listVersions(app: string): Promise<ListVersionsResponse> {
    return this.get(versionsPath(app));
  }

  /** A published version with its agents and the names of its files. */
  getVersion(app: string, name: string): Promise<PublishedVersion> {
    return this.get(`${versionsPath(app)}/${encode(name)}`);
  }

  /** Deletes a version that serves no sessions. */
  async deleteVersion(app: string, name: string): Promise<void> {
    await this.transport.send(`${versionsPath(app)}/${encode(name)}`, { method: "DELETE" }, true);
  }

  /** The differences from one version to another, such as `v3` and `v4`; `source` is the present code. */
  compareVersions(app: string, first: string, second: string): Promise<VersionComparison> {
    return this.get(`${versionsPath(app)}/${encode(first)}/compare/${encode(second)}`);
  }

  /** Failures, feedback, times and tokens of the newest runs of each version. */
  getVersionScores(app: string, { baseline }: { readonly baseline?: string } = {}): Promise<ListVersionScoresResponse> {
    return this.get(`${versionsPath(app)}/scores${search({ baseline })}`);
  }

  /** Sets the percentages of an app's sessions that versions serve. Empty: the present code serves all. */
  setTraffic(app: string, shares: Traffic["shares"]): Promise<Traffic> {
    return this.transport.json(`/apps/${encode(app)}/traffic`, { method: "PUT", body: { shares } });
  }

  // Feedback

  /** Gives feedback on an event, in place of the caller's earlier one of this name. */
  giveFeedback(place: SessionPlace, eventId: string, feedback: FeedbackRequest): Promise<Feedback> {
    return this.transport.json(feedbackPath(place, eventId), { method: "POST", body: feedback });
  }

  /** Deletes the caller's feedback on an event: of one name, or all. */
  async deleteFeedback(place: SessionPlace, eventId: string, { name }: { readonly name?: string } = {}): Promise<void> {
    await this.transport.send(`${feedbackPath(place, eventId)}${search({ name })}`, { method: "DELETE" }, true);
  }

  /** A page of the feedback on a session's events, newest first. */
  listSessionFeedback(place: SessionPlace, query: FeedbackQuery = {}): Promise<ListFeedbackResponse> {
    return this.get(`${session(place)}/feedback${search(query)}`);
  }

  /** A page of the feedback on the sessions of an app that the caller may see, newest first. */
  listFeedback(app: string, query: FeedbackQuery & { readonly user_id?: string } = {}): Promise<ListFeedbackResponse> {
    return this.get(`/apps/${encode(app)}/feedback${search(query)}`);
  }

  // Evaluation

  /** Adds an answer to an evaluation set, with the feedback on it. The set is created if it doesn't exist. */
  makeCase(place: SessionPlace, eventId: string, request: MakeCaseRequest): Promise<AddCasesResponse> {
    const path = `${session(place)}/events/${encode(eventId)}/case`;
    return this.transport.json(path, { method: "POST", body: request });
  }

  /** Adds the answers with such feedback to an evaluation set, which is created if it doesn't exist. */
  addFeedbackCases(app: string, evalSetId: string, request: AddFeedbackRequest): Promise<AddCasesResponse> {
    const path = `/dev/apps/${encode(app)}/eval-sets/${encode(evalSetId)}/add-feedback`;
    return this.transport.json(path, { method: "POST", body: request });
  }

  /** The versions of an evaluation set, oldest first. */
  async listEvalSetVersions(app: string, evalSetId: string): Promise<readonly EvalSetVersion[]> {
    const path = `/dev/apps/${encode(app)}/eval-sets/${encode(evalSetId)}/versions`;
    return (await this.get<ListEvalSetVersionsResponse>(path)).versions;
  }

  // Memories and settings

  /** A page of a user's memories in the order in which they were added; with a query the best matches, best first. */
  listMemories(app: string, user: string, query: MemoryQuery = {}): Promise<ListMemoriesResponse> {
    return this.get(`${memories(app, user)}${search(query)}`);
  }

  /** Replaces the content of a memory, and its metadata if some is given. */
  changeMemory(app: string, user: string, memoryId: string, request: ChangeMemoryRequest): Promise<MemoryEntry> {
    return this.transport.json(`${memories(app, user)}/${encode(memoryId)}`, { method: "PUT", body: request });
  }

  async deleteMemory(app: string, user: string, memoryId: string): Promise<void> {
    await this.transport.send(`${memories(app, user)}/${encode(memoryId)}`, { method: "DELETE" }, true);
  }

  /** The settings of the server in effect, without secrets. */
  listSettings(): Promise<ListSettingsResponse> {
    return this.get("/settings");
  }

  // Budgets

  /** The budgets of an app that are in effect, and their use; all, or those of one user or API key. */
  listBudgets(app: string, query: BudgetQuery = {}): Promise<ListBudgetsResponse> {
    return this.get(`/apps/${encode(app)}/budgets${search(query)}`);
  }

  /** Stores a budget, in place of the one with the same owner and window. */
  putBudget(app: string, budget: BudgetRequest): Promise<Budget> {
    return this.transport.json(`/apps/${encode(app)}/budgets`, { method: "PUT", body: budget });
  }

  /** Deletes the stored budget with this owner and window. */
  async deleteBudget(app: string, { per, window, userId, keyId }: BudgetRequest): Promise<void> {
    const query = search({ per, window, user_id: userId ?? undefined, key_id: keyId ?? undefined });
    await this.transport.send(`/apps/${encode(app)}/budgets${query}`, { method: "DELETE" }, true);
  }

  // Keys, service accounts and roles

  /** The caller's user and permissions. */
  getMe(): Promise<Me> {
    return this.get("/me");
  }

  /** A page of the API keys that the caller may administrate, newest first. */
  listKeys(query: KeyQuery = {}): Promise<ListApiKeysResponse> {
    return this.get(`/keys${search(query)}`);
  }

  /** The response is the only one with the key itself. */
  createKey(request: CreateApiKeyRequest): Promise<CreatedApiKey> {
    return this.post("/keys", request);
  }

  getKey(keyId: string): Promise<ApiKeyInfo> {
    return this.get(`/keys/${encode(keyId)}`);
  }

  /** With `force`, also if then no key could administrate all apps any more. */
  revokeKey(keyId: string, options: Forced = {}): Promise<ApiKeyInfo> {
    return this.transport.json(`/keys/${encode(keyId)}${search(options)}`, { method: "DELETE" });
  }

  listServiceAccounts(): Promise<ListServiceAccountsResponse> {
    return this.get("/service-accounts");
  }

  getServiceAccount(name: string): Promise<ServiceAccount> {
    return this.get(`/service-accounts/${encode(name)}`);
  }

  /** Creates or replaces a service account. `force`: as for `revokeKey`. */
  putServiceAccount(name: string, account: ServiceAccountRequest, options: Forced = {}): Promise<ServiceAccount> {
    const path = `/service-accounts/${encode(name)}${search(options)}`;
    return this.transport.json(path, { method: "PUT", body: account });
  }

  /** Deletes a service account and revokes its keys. `force`: as for `revokeKey`. */
  async deleteServiceAccount(name: string, options: Forced = {}): Promise<void> {
    await this.transport.send(`/service-accounts/${encode(name)}${search(options)}`, { method: "DELETE" }, true);
  }

  listRoles(): Promise<ListRolesResponse> {
    return this.get("/roles");
  }

  /** Creates or replaces a role. `force`: as for `revokeKey`. */
  putRole(name: string, role: RoleRequest, options: Forced = {}): Promise<Role> {
    return this.transport.json(`/roles/${encode(name)}${search(options)}`, { method: "PUT", body: role });
  }

  /** Deletes a role that is not in use. */
  async deleteRole(name: string): Promise<void> {
    await this.transport.send(`/roles/${encode(name)}`, { method: "DELETE" }, true);
  }

  // Schedules

  /** A page of the schedules that the caller may see, newest first. */
  listSchedules(app: string, query: ScheduleQuery = {}): Promise<ListSchedulesResponse> {
    return this.get(`/apps/${encode(app)}/schedules${search(query)}`);
  }

  createSchedule(app: string, schedule: Schedule): Promise<Schedule> {
    return this.post(`/apps/${encode(app)}/schedules`, schedule);
  }

  /** The next times of a schedule, which need not be stored, in Unix seconds and without jitter. */
  async nextTimes(app: string, schedule: Schedule, { limit }: { readonly limit?: number } = {}): Promise<readonly number[]> {
    const path = `/apps/${encode(app)}/schedules/preview${search({ limit })}`;
    return (await this.transport.json<ScheduleTimes>(path, { method: "POST", body: schedule })).times;
  }

  getSchedule(app: string, scheduleId: string): Promise<Schedule> {
    return this.get(schedulePath(app, scheduleId));
  }

  /** Changes a schedule; its next run is the first after now. */
  replaceSchedule(app: string, scheduleId: string, schedule: Schedule): Promise<Schedule> {
    return this.transport.json(schedulePath(app, scheduleId), { method: "PUT", body: schedule });
  }

  /** Deletes a schedule with its history; its runs stay. */
  async deleteSchedule(app: string, scheduleId: string): Promise<void> {
    await this.transport.send(schedulePath(app, scheduleId), { method: "DELETE" }, true);
  }

  pauseSchedule(app: string, scheduleId: string): Promise<Schedule> {
    return this.transport.json(`${schedulePath(app, scheduleId)}/pause`, { method: "POST" });
  }

  /** Starts runs of a schedule again, the first one after now. */
  resumeSchedule(app: string, scheduleId: string): Promise<Schedule> {
    return this.transport.json(`${schedulePath(app, scheduleId)}/resume`, { method: "POST" });
  }

  /** Starts a run of a schedule now, once even if the request is sent again. */
  runSchedule(app: string, scheduleId: string, idempotencyKey: string = newKey()): Promise<Run> {
    const headers = { "idempotency-key": idempotencyKey };
    return this.transport.json(`${schedulePath(app, scheduleId)}/run`, { method: "POST", headers });
  }

  /** The history of a schedule, newest first. */
  async listScheduleRuns(app: string, scheduleId: string, { limit }: { readonly limit?: number } = {}): Promise<readonly ScheduleRun[]> {
    const path = `${schedulePath(app, scheduleId)}/runs${search({ limit })}`;
    return (await this.get<ListScheduleRunsResponse>(path)).runs;
  }

  // Requests to people, and answers

  /** A page of the open requests to people that the caller may see, of all sessions, newest first. */
  listRequests({ signal, ...query }: RequestQuery = {}): Promise<ListRequestsResponse> {
    return this.transport.json(`/requests${search(query)}`, { signal });
  }

  /** A request to people, open or closed. */
  getRequest(requestId: string): Promise<HumanRequest> {
    return this.get(`/requests/${encode(requestId)}`);
  }

  /** Answers a request to people; its run goes on. */
  answerRequest(requestId: string, answer: RequestAnswer): Promise<AnswerRequestResponse> {
    return this.transport.json(`/requests/${encode(requestId)}/answer`, { method: "POST", body: answer });
  }

  /** Lets another person answer a request in place of the caller. */
  delegateRequest(requestId: string, delegation: DelegateRequest): Promise<HumanRequest> {
    return this.transport.json(`/requests/${encode(requestId)}/delegate`, { method: "POST", body: delegation });
  }

  /** The session of a request, if its policy lets those who answer read it. */
  getSessionOfRequest(requestId: string): Promise<Session> {
    return this.get(`/requests/${encode(requestId)}/session`);
  }

  /** Answers a call of a run that waits, and returns the stream of the events that follow. */
  answer(run: Run, request: Pick<FunctionCall, "id" | "name">, response: JsonObject): Promise<RunStream> {
    const place = { app: run.appName, user: run.userId, session: run.sessionId };
    const part: Part = { functionResponse: { ...(request.id === undefined ? {} : { id: request.id }), name: request.name, response } };
    return this.run(place, { message: { role: "user", parts: [part] } });
  }

  /** payload: what the tool receives besides, as its confirmation asks for. */
  approve(run: Run, request: FunctionCall, payload?: JsonObject): Promise<RunStream> {
    return this.answer(run, request, { confirmed: true, ...(payload === undefined ? {} : { payload }) });
  }

  refuse(run: Run, request: FunctionCall): Promise<RunStream> {
    return this.answer(run, request, { confirmed: false });
  }

  // Artifacts

  listArtifacts(place: SessionPlace): Promise<readonly string[]> {
    return this.get(`${session(place)}/artifacts`);
  }

  listArtifactVersions(place: SessionPlace, name: string): Promise<readonly ArtifactVersion[]> {
    return this.get(`${artifact(place, name)}/versions/metadata`);
  }

  async saveArtifact(place: SessionPlace, name: string, data: Blob | Uint8Array, mimeType?: string): Promise<ArtifactVersion> {
    const type = mimeType ?? (data instanceof Blob && data.type !== "" ? data.type : "application/octet-stream");
    const sent = { method: "PUT", body: data, headers: { "content-type": type } };
    return (await this.transport.send(artifact(place, name), sent, false)).json() as Promise<ArtifactVersion>;
  }

  async loadArtifact(place: SessionPlace, name: string, version: number | "latest" = "latest"): Promise<Blob> {
    return (await this.transport.send(`${artifact(place, name)}/versions/${version}/content`, {}, true)).blob();
  }

  async deleteArtifact(place: SessionPlace, name: string): Promise<void> {
    await this.transport.send(artifact(place, name), { method: "DELETE" }, true);
  }

  // Traces

  /** The attributes of an event's span, with the model's request and reply. */
  getEventTrace(app: string, eventId: string): Promise<JsonObject> {
    return this.get(`/dev/apps/${encode(app)}/debug/trace/${encode(eventId)}`);
  }

  getSessionTrace(app: string, sessionId: string): Promise<readonly SpanRecord[]> {
    return this.get(`/dev/apps/${encode(app)}/debug/trace/session/${encode(sessionId)}`);
  }

  private stream(run: Run, following: Following, withUserEvents: boolean): RunStream {
    const path = `/runs/${encode(run.id)}/events`;
    const after = following.after ?? null;
    const items = follow(this.transport, { path, after, isOver: true }, following);
    return new RunStream(run, items, after, withUserEvents);
  }

  private get<T>(path: string): Promise<T> {
    return this.transport.json(path);
  }

  private post<T>(path: string, body: unknown, headers: NonNullable<Sent["headers"]> = {}): Promise<T> {
    return this.transport.json(path, { method: "POST", body, headers });
  }
}

/** As `crypto.randomUUID`, which browsers offer to pages over HTTPS and of this machine only. */
function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function sessions(app: string, user: string): string {
  return `/apps/${encode(app)}/users/${encode(user)}/sessions`;
}

function session(place: SessionPlace): string {
  return `${sessions(place.app, place.user)}/${encode(place.session)}`;
}

function userPath(app: string, user: string): string {
  return `/apps/${encode(app)}/users/${encode(user)}`;
}

function artifact(place: SessionPlace, name: string): string {
  return `${session(place)}/artifacts/${encode(name)}`;
}

function versionsPath(app: string): string {
  return `/apps/${encode(app)}/versions`;
}

function memories(app: string, user: string): string {
  return `/apps/${encode(app)}/users/${encode(user)}/memories`;
}

function feedbackPath(place: SessionPlace, eventId: string): string {
  return `${session(place)}/events/${encode(eventId)}/feedback`;
}

function schedulePath(app: string, scheduleId: string): string {
  return `/apps/${encode(app)}/schedules/${encode(scheduleId)}`;
}

function webhookPath(runId: string, webhookId: string): string {
  return `/runs/${encode(runId)}/webhooks/${encode(webhookId)}`;
}

function requestOf({ message, ...rest }: RunMessage): SessionRunRequest {
  if (message === undefined) return rest;
  return { ...rest, newMessage: typeof message === "string" ? { role: "user", parts: [{ text: message }] } : message };
}

function search(query: { readonly [name: string]: string | number | boolean | readonly string[] | undefined }): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined) found.append(name, String(one));
  return found.size === 0 ? "" : `?${found}`;
}

