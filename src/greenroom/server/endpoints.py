"""The table of endpoints: the source of routing, decoding, documentation and generated tests.

Source of paths: ADK's HTTP surface, with its aliases; `/runs/…` and `…/events`, `…/runs` are ours.
"""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

import msgspec

from greenroom.errors import (
    AccessConflict,
    AgentConfigError,
    AgentNotFound,
    AppLoadError,
    AppNotFound,
    AppNotNamed,
    ApprovalRefused,
    ArtifactNotFound,
    CallerError,
    IdempotencyConflict,
    InvalidRequest,
    LinkExpired,
    MissingExtra,
    NotApprover,
    NotFound,
    NotOffered,
    NotRetryable,
    NotWaiting,
    RequestClosed,
    RequestNotFound,
    RunFailed,
    RunNotFound,
    ScheduleConflict,
    ScheduleNotFound,
    SessionBusy,
    SessionExists,
    SessionFull,
    SessionNotFound,
    SignalRepeated,
    SignalsFull,
    TooLarge,
    TooManyRuns,
    TooManySchedules,
    TooManyVersions,
    TooMuchFeedback,
    TraceNotFound,
    Unauthenticated,
    Unavailable,
    VersionInUse,
    WebhookConflict,
)
from greenroom.evaluation.records import EvalCase, EvalSet, EvalSetResult, RunEvalResult
from greenroom.records.access import (
    ApiKeyInfo,
    CreateApiKeyRequest,
    CreatedApiKey,
    ListApiKeysResponse,
    ListRolesResponse,
    ListServiceAccountsResponse,
    Me,
    Role,
    RoleRequest,
    ServiceAccount,
    ServiceAccountRequest,
)
from greenroom.records.app_version import (
    ListVersionScoresResponse,
    ListVersionsResponse,
    PublishedVersion,
    PublishVersionRequest,
    Traffic,
    VersionComparison,
)
from greenroom.records.audit import AuditAction, AuditOutcome, ListAuditResponse
from greenroom.records.auth import GrantedLogin
from greenroom.records.base import JsonObject
from greenroom.records.budget import Budget, BudgetWindow, ListBudgetsResponse, StoredPer
from greenroom.records.content import Part
from greenroom.records.eval_cases import (
    AddCasesResponse,
    AddFeedbackRequest,
    ListEvalSetVersionsResponse,
    MakeCaseRequest,
)
from greenroom.records.event import Event
from greenroom.records.feedback import Feedback, FeedbackRequest, FeedbackSource, ListFeedbackResponse
from greenroom.records.inbox import (
    AnswerRequestResponse,
    DelegateRequest,
    HumanRequest,
    ListRequestsResponse,
    RequestAnswer,
    RequestKind,
)
from greenroom.records.listings import (
    AppInfo,
    ArtifactVersion,
    ChangeMemoryRequest,
    ListAppsResponse,
    ListMemoriesResponse,
    ListSettingsResponse,
    MemoryEntry,
)
from greenroom.records.replica import ListReplicasResponse
from greenroom.records.retention import RetentionPreview
from greenroom.records.run import (
    AgentRunRequest,
    ListRunsResponse,
    RetryRunsRequest,
    RetryRunsResponse,
    Run,
    RunStatus,
    RunWebhook,
    SessionRunRequest,
    Webhook,
)
from greenroom.records.schedule import ListScheduleRunsResponse, ListSchedulesResponse, Schedule, ScheduleTimes
from greenroom.records.session import Session
from greenroom.records.statistics import LoadStatistics, Statistics, StatisticsGrouping, Step
from greenroom.records.usage import ListUsageResponse, UsageGroup
from greenroom.records.user_data import ErasureReport
from greenroom.records.waiting_run import ListWaitingRunsResponse
from greenroom.records.webhook_delivery import (
    AppWebhook,
    ListAppWebhooksResponse,
    ListDeliveriesResponse,
    ListRunWebhooksResponse,
    WebhookDelivery,
)
from greenroom.server.access.identity import Access
from greenroom.server.app_logs import ListLogsResponse, LogLine
from greenroom.server.endpoint import Endpoint, Handler, Header, Query
from greenroom.server.routes import (
    access,
    apps,
    artifacts,
    audit,
    budgets,
    builder,
    credentials,
    debug,
    evaluation,
    feedback,
    live,
    memories,
    requests,
    run,
    schedules,
    server,
    sessions,
    signal_links,
    statistics,
    user_data,
    versions,
    web_page,
    webhooks,
)
from greenroom.telemetry.span_record import SpanRecord

_APP = "/apps/{app_name}"
_DEV = "/dev/apps/{app_name}"
_USER = "/apps/{app_name}/users/{user_id}"
_SESSIONS = "/apps/{app_name}/users/{user_id}/sessions"
_SESSION = _SESSIONS + "/{session_id}"
_CREDENTIALS = "/apps/{app_name}/users/{user_id}/credentials"
_ARTIFACTS = _SESSION + "/artifacts"
_ARTIFACT = _ARTIFACTS + "/{artifact_name:path}"

_SIGNAL_URL = "/signals/{token}"
_RUN_WEBHOOKS = "/runs/{run_id}/webhooks"
_APP_WEBHOOKS = _APP + "/webhooks"
_APP_WEBHOOK = _APP_WEBHOOKS + "/{webhook_id}"
_SCHEDULES = _APP + "/schedules"
_SCHEDULE = _SCHEDULES + "/{schedule_id}"
_VERSIONS = _APP + "/versions"
_VERSION = _VERSIONS + "/{version_name}"
_FEEDBACK = _SESSION + "/events/{event_id}/feedback"
_DELIVERIES = "/{webhook_id}/deliveries"

_MOST = 2**53 - 1  # exact in every JSON parser, and in every database's integers
Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
Time = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=_MOST)]

_PAGE = (
    Query("after", Count, "Sequence number (`id`) of the event after which to begin."),
    Query("limit", Positive, "Maximum number of events; 1000 by default."),
)
_STEP = Annotated[Step, msgspec.Meta(extra_json_schema={"type": "integer"})]
_PERIOD = (
    Query("start", Time, "Unix seconds of the first point; by default a day before `end`, or 30 days for users."),
    Query("end", Time, "Unix seconds after the last point; by default now."),
    Query("step", _STEP, "Seconds between two points; by default the shortest with at most 500 points."),
)
_DELIVERY_LIMIT = (Query("limit", Positive, "Maximum number of deliveries; 100 by default, at most 1000."),)
_FEEDBACK_FILTERS = (
    Query("event_id", str, "Only feedback on this event."),
    Query("name", str, "Only feedback of this name."),
    Query("label", str, "Only feedback with this label."),
    Query("source", FeedbackSource, "Only feedback of the session's `user`, or of a `service`."),
    Query("min_score", float, "Only scores from this one on; true is 1, and false is 0."),
    Query("max_score", float, "Only scores up to this one."),
    Query("created_from", float, "Only feedback given at or after these Unix seconds."),
    Query("created_before", float, "Only feedback given before these Unix seconds."),
    Query("limit", Positive, "Maximum number of feedback; 100 by default, at most 1000."),
    Query("page_token", str, "The `nextPageToken` of the previous page."),
)
_LAST_EVENT_ID = Header(
    "Last-Event-ID", "The `id` of the last event seen; the stream resumes after it.", pattern="^[0-9]{0,18}$"
)
_CONSENT = Header(
    "X-ADK-Telemetry-Request", "Must be `true`; refuses other sites' forms.", pattern="^true$", is_required=True
)
_IDEMPOTENCY_KEY = Header("Idempotency-Key", "Requests with the same key and body start one run.")
_STARTING = (
    AppNotFound, AppLoadError, SessionNotFound, RunNotFound, InvalidRequest, TooLarge, SessionBusy, SessionFull,
    ApprovalRefused, IdempotencyConflict, TooManyRuns, Unavailable,
)  # fmt: skip

_SET, _CASE = "/eval-sets/{eval_set_id}", "/eval-sets/{eval_set_id}/eval-cases/{eval_id}"
_OLD_SET, _OLD_CASE = "/eval_sets/{eval_set_id}", "/eval_sets/{eval_set_id}/evals/{eval_id}"


def _eval(method: str, handler: Handler, access: Access, summary: str, *paths: str, **options: Any) -> Endpoint:
    """Makes an endpoint of evaluation, served at each path with and without the prefix `/dev`.

    Source of the aliases: ADK's two spellings.
    """
    aliases = (*(_DEV + path for path in paths[1:]), *(_APP + path for path in paths))
    errors = (AppNotFound, NotOffered, *options.pop("errors", ()))
    action: AuditAction | None = "evaluation.changed" if access == "manage" else None
    return Endpoint(
        method,
        _DEV + paths[0],
        handler,
        "evaluation",
        access,
        summary,
        aliases=aliases,
        errors=errors,
        audit=action,
        **options,
    )


_TESTS, _TEST = _DEV + "/tests", _DEV + "/tests/{test_name}"
_TEST_NAME = (Query("test_name", str, "Only this test."),)
_SET_ERRORS = (NotFound, InvalidRequest)
_CASE_ERRORS = (*_SET_ERRORS, CallerError)
_TEST_ERRORS = (AppNotFound, NotFound, NotOffered)
_EVALUATION = (
    _eval("GET", evaluation.list_eval_sets, "read", "List evaluation sets", "/eval_sets", replies=list[str]),
    _eval("GET", evaluation.list_eval_set_ids, "read", "List evaluation sets, as an object", "/eval-sets",
        replies=dict[str, list[str]]),
    _eval("POST", evaluation.create_eval_set, "manage", "Create an evaluation set", "/eval-sets",
        body=evaluation.CreateEvalSetRequest, replies=EvalSet, errors=(InvalidRequest, CallerError)),
    _eval("POST", evaluation.create_empty_eval_set, "manage", "Create an empty evaluation set", _OLD_SET,
        errors=(CallerError,)),
    _eval("GET", evaluation.get_eval_set, "read", "Get an evaluation set", _SET, replies=EvalSet, errors=_SET_ERRORS,
        query=(Query("version", Positive, "The set as it was in this version."),)),
    _eval("GET", evaluation.list_eval_set_versions, "read", "List the versions of an evaluation set",
        _SET + "/versions", replies=ListEvalSetVersionsResponse, errors=_SET_ERRORS),
    _eval("DELETE", evaluation.delete_eval_set, "manage", "Delete an evaluation set", _SET, errors=_SET_ERRORS),
    _eval("GET", evaluation.list_cases, "read", "List the cases of an evaluation set", _OLD_SET + "/evals",
        replies=list[str], errors=(CallerError, InvalidRequest)),
    _eval("POST", evaluation.add_session, "manage", "Add a session to an evaluation set", _OLD_SET + "/add_session",
        _OLD_SET + "/add-session", _SET + "/add-session", body=evaluation.AddSessionToEvalSetRequest,
        errors=(*_CASE_ERRORS, SessionNotFound)),
    _eval("POST", evaluation.add_feedback, "manage", "Add answers with feedback to an evaluation set",
        _SET + "/add-feedback", body=AddFeedbackRequest, replies=AddCasesResponse,
        errors=(CallerError, InvalidRequest)),
    Endpoint("POST", _SESSION + "/events/{event_id}/case", evaluation.make_case, "evaluation", "manage",
        "Add an answer to an evaluation set, with the feedback on it", audit="evaluation.changed",
        body=MakeCaseRequest, replies=AddCasesResponse,
        errors=(AppNotFound, NotOffered, *_SET_ERRORS, SessionNotFound)),
    _eval("GET", evaluation.get_case, "read", "Get a case", _OLD_CASE, _CASE, replies=EvalCase, errors=_SET_ERRORS),
    _eval("PUT", evaluation.replace_case, "manage", "Replace a case", _OLD_CASE, _CASE, body=EvalCase,
        errors=_CASE_ERRORS),
    _eval("DELETE", evaluation.delete_case, "manage", "Delete a case", _OLD_CASE, _CASE, errors=_SET_ERRORS),
    _eval("POST", evaluation.run_eval, "run", "Evaluate cases; text/event-stream reports the progress",
        _SET + "/run", body=evaluation.RunEvalRequest, replies=evaluation.RunEvalResponse,
        errors=(*_SET_ERRORS, AppLoadError, MissingExtra)),
    _eval("POST", evaluation.run_eval_as_list, "run", "Evaluate cases; the reply is a list",
        _OLD_SET + "/run_eval", _OLD_SET + "/run-eval", body=evaluation.RunEvalRequest, replies=list[RunEvalResult],
        errors=(*_SET_ERRORS, AppLoadError, MissingExtra)),
    _eval("GET", evaluation.list_eval_results, "read", "List evaluation results", "/eval_results", replies=list[str]),
    _eval("GET", evaluation.list_eval_result_ids, "read", "List evaluation results, as an object", "/eval-results",
        replies=dict[str, list[str]]),
    _eval("GET", evaluation.get_eval_result, "read", "Get an evaluation result", "/eval_results/{eval_result_id}",
        "/eval-results/{eval_result_id}", replies=EvalSetResult, errors=_SET_ERRORS),
    _eval("GET", evaluation.list_metrics, "read", "List the available metrics", "/metrics-info",
        replies=evaluation.ListMetricsInfoResponse),
    Endpoint("GET", _TESTS, evaluation.list_tests, "evaluation", "read", "List test conversations",
        replies=list[str], errors=(AppNotFound, NotOffered)),
    Endpoint("POST", _TESTS + "/run", evaluation.run_tests, "evaluation", "run",
        "Replay test conversations and show the differences", query=_TEST_NAME, replies=str,
        media_type="text/plain", errors=(AppNotFound, AppLoadError, NotFound, NotOffered)),
    Endpoint("POST", _TESTS + "/rebuild", evaluation.rebuild_tests, "evaluation", "manage",
        "Re-record test conversations", audit="evaluation.changed", query=_TEST_NAME,
        replies=evaluation.SessionTestReply, errors=(AppNotFound, AppLoadError, NotFound, NotOffered)),
    Endpoint("GET", _TEST, evaluation.get_test, "evaluation", "read", "Get a test conversation", replies=Session,
        errors=_TEST_ERRORS),
    Endpoint("PUT", _TEST, evaluation.save_test, "evaluation", "manage", "Save a session as a test conversation",
        audit="evaluation.changed", body=evaluation.SaveTestRequest, replies=evaluation.SessionTestReply,
        errors=_TEST_ERRORS),
    Endpoint("DELETE", _TEST, evaluation.delete_test, "evaluation", "manage", "Delete a test conversation",
        audit="evaluation.changed", replies=evaluation.SessionTestReply, errors=_TEST_ERRORS),
)  # fmt: skip

_ACCOUNT = "/service-accounts/{account_name}"
_ROLE = "/roles/{role_name}"
_FORCE = (Query("force", bool, "Also if then no key could administrate all apps any more.", default=False),)
_ACCESS = (
    Endpoint("GET", "/me", access.get_me, "access", "any", "Get the caller's user and permissions", replies=Me),
    Endpoint("GET", "/keys", access.list_keys, "access", "admin",
        "List API keys that the caller may administrate, newest first, revoked and expired ones included",
        replies=ListApiKeysResponse, errors=(InvalidRequest, NotOffered, Unavailable),
        query=(
            Query("user_id", str, "Only keys of this user."),
            Query("service_account", str, "Only keys of this service account."),
            Query("limit", Positive, "Maximum number of keys; 100 by default, at most 1000."),
            Query("page_token", str, "The `nextPageToken` of the previous page."),
        )),
    Endpoint("POST", "/keys", access.create_key, "access", "admin",
        "Create an API key with at most the caller's permissions; the response is the only one with the key itself",
        body=CreateApiKeyRequest, replies=CreatedApiKey,
        errors=(InvalidRequest, NotFound, AccessConflict, NotOffered, Unavailable)),
    Endpoint("GET", "/keys/{key_id}", access.get_key, "access", "admin", "Get what is stored about an API key",
        replies=ApiKeyInfo, errors=(NotFound, NotOffered, Unavailable)),
    Endpoint("DELETE", "/keys/{key_id}", access.revoke_key, "access", "admin", "Revoke an API key", query=_FORCE,
        replies=ApiKeyInfo, errors=(NotFound, AccessConflict, NotOffered, Unavailable)),
    Endpoint("GET", "/service-accounts", access.list_accounts, "access", "admin",
        "List the service accounts that the caller may administrate", replies=ListServiceAccountsResponse,
        errors=(NotOffered, Unavailable)),
    Endpoint("GET", _ACCOUNT, access.get_account, "access", "admin", "Get a service account", replies=ServiceAccount,
        errors=(NotFound, NotOffered, Unavailable)),
    Endpoint("PUT", _ACCOUNT, access.put_account, "access", "admin",
        "Create or replace a service account with at most the caller's permissions", query=_FORCE,
        body=ServiceAccountRequest, replies=ServiceAccount,
        errors=(InvalidRequest, NotFound, AccessConflict, NotOffered, Unavailable)),
    Endpoint("DELETE", _ACCOUNT, access.delete_account, "access", "admin",
        "Delete a service account and revoke its keys", query=_FORCE,
        errors=(NotFound, AccessConflict, NotOffered, Unavailable)),
    Endpoint("GET", "/roles", access.list_roles, "access", "admin", "List the built-in roles and the others",
        replies=ListRolesResponse, errors=(NotOffered, Unavailable)),
    Endpoint("PUT", _ROLE, access.put_role, "access", "admin",
        "Create or replace a role with at most the caller's scopes", query=_FORCE, body=RoleRequest, replies=Role,
        errors=(InvalidRequest, AccessConflict, NotOffered, Unavailable)),
    Endpoint("DELETE", _ROLE, access.delete_role, "access", "admin", "Delete a role that is not in use",
        errors=(NotFound, AccessConflict, NotOffered, Unavailable)),
)  # fmt: skip

_MEMORIES = "/apps/{app_name}/users/{user_id}/memories"
_MEMORY_ENDPOINTS = (
    Endpoint("GET", _MEMORIES, memories.list_memories, "memory", "read",
        "List a user's memories in the order in which they were added, or the best matches of a query",
        replies=ListMemoriesResponse, errors=(InvalidRequest, NotOffered),
        query=(
            Query("query", str, "Only the best matches, best first; they are one page."),
            Query("limit", Positive, "Maximum number of memories; 100 by default, at most 1000."),
            Query("page_token", str, "The `nextPageToken` of the previous page."),
        )),
    Endpoint("PUT", _MEMORIES + "/{memory_id}", memories.change_memory, "memory", "run",
        "Replace the content of a memory", body=ChangeMemoryRequest, replies=MemoryEntry,
        errors=(NotFound, InvalidRequest, AppLoadError, NotOffered)),
    Endpoint("DELETE", _MEMORIES + "/{memory_id}", memories.delete_memory, "memory", "run", "Delete a memory",
        errors=(NotOffered,)),
)  # fmt: skip

_BUDGETS = _APP + "/budgets"
_BUDGET_ENDPOINTS = (
    Endpoint("GET", _BUDGETS, budgets.list_budgets, "budgets", "read",
        "List the budgets of an app that are in effect, and their use, as far as the caller may see them",
        replies=ListBudgetsResponse, errors=(AppNotFound, AppLoadError),
        query=(
            Query("user_id", str, "Only budgets and the use of this user."),
            Query("key_id", str, "Only budgets and the use of this API key."),
        )),
    Endpoint("PUT", _BUDGETS, budgets.put_budget, "budgets", "admin",
        "Store a budget, in place of the one with the same owner and window; runs in progress obey it, too",
        body=Budget, replies=Budget, errors=(AppNotFound, InvalidRequest)),
    Endpoint("DELETE", _BUDGETS, budgets.delete_budget, "budgets", "admin", "Delete a stored budget",
        errors=(NotFound, InvalidRequest),
        query=(
            Query("per", StoredPer, "Required: the `per` of the budget."),
            Query("window", BudgetWindow, "The window of the budget.", default="day"),
            Query("user_id", str, "The user of the budget; without it, that of each user."),
            Query("key_id", str, "The API key of the budget; without it, that of each key."),
        )),
)  # fmt: skip

_DARK_MODE = (Query("dark_mode", bool, "Use the dark palette.", default=False),)
_DARK_BY_DEFAULT = (Query("dark_mode", bool, "Use the dark palette.", default=True),)

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("POST", "/run", run.run, "runs", "run", "Run an agent and wait for all its events", body=AgentRunRequest,
        headers=(_IDEMPOTENCY_KEY,), replies=list[Event], errors=(*_STARTING, AppNotNamed, RunFailed)),
    Endpoint("POST", "/run_sse", run.run_sse, "runs", "run", "Run an agent and stream its events",
        aliases=("/run-sse",), body=AgentRunRequest, headers=(_IDEMPOTENCY_KEY,), replies=Event,
        errors=(*_STARTING, AppNotNamed), is_stream=True),
    Endpoint("POST", _SESSION + "/runs", run.start_in_background, "runs", "run", "Start a run in the background",
        body=SessionRunRequest, headers=(_IDEMPOTENCY_KEY,), replies=Run, status=202, errors=_STARTING),
    Endpoint("POST", _SESSION + "/events/{event_id}/edit", run.edit_event, "runs", "run",
        "Fork a session before an event and start a run there, with another message or the event's own",
        body=SessionRunRequest | None, replies=Run, status=202,
        errors=(AppNotFound, AppLoadError, SessionNotFound, RunNotFound, NotFound, InvalidRequest, NotOffered,
            TooManyRuns, Unavailable)),
    Endpoint("GET", "/runs", run.list_runs, "runs", "read",
        "List runs that the caller may see, newest first; with text/event-stream, the page as event `snapshot` "
        "and then each run that changes, whatever its status and feedback",
        replies=ListRunsResponse, streams=Run, errors=(InvalidRequest,),
        query=(
            Query("app_name", str, "Only runs of this app."),
            Query("user_id", str, "Only runs of this user."),
            Query("session_id", str, "Only runs of this session."),
            Query("status", list[RunStatus], "Only runs with one of these statuses."),
            Query("error_code", str, "Only runs that failed with this error."),
            Query("app_version", str, "Only runs of this version of their app's code; with `app_name`, also the name "
                "of a published version."),
            Query("created_from", float, "Only runs created at or after these Unix seconds."),
            Query("created_before", float, "Only runs created before these Unix seconds."),
            Query("feedback", str, "Only runs with feedback of this name; it needs `app_name`, and searches the newest "
                "10,000 feedback of the name."),
            Query("feedback_label", str, "Only runs whose feedback of that name has this label."),
            Query("min_score", float, "Only runs whose feedback has a score from this one on; true is 1, false is 0."),
            Query("max_score", float, "Only runs whose feedback has a score up to this one."),
            Query("limit", Positive, "Maximum number of runs; 100 by default, at most 1000."),
            Query("page_token", str, "The `nextPageToken` of the previous page."),
        )),
    Endpoint("GET", _APP + "/retention", apps.preview_retention, "apps", "manage",
        "Get how long an app keeps sessions, and which would be deleted now", replies=RetentionPreview,
        errors=(AppNotFound, AppLoadError)),
    Endpoint("GET", _APP + "/waiting-runs", run.list_waiting_runs, "runs", "manage",
        "List the waiting runs of an app, newest first, each with the first step that differs when its log is replayed "
        "with the present code",
        replies=ListWaitingRunsResponse, errors=(AppNotFound, AppLoadError, InvalidRequest),
        query=(
            Query("limit", Positive, "Maximum number of runs; 20 by default, at most 100."),
            Query("page_token", str, "The `nextPageToken` of the previous page."),
        )),
    Endpoint("GET", "/runs/{run_id}", run.get_run, "runs", "read", "Get a run", replies=Run,
        errors=(RunNotFound,)),
    Endpoint("GET", "/runs/{run_id}/events", run.run_events, "runs", "read",
        "List the events of a run, or stream them with text/event-stream; Last-Event-ID resumes a stream", query=_PAGE,
        headers=(_LAST_EVENT_ID,), replies=run.EventPage, streams=Event, errors=(RunNotFound, InvalidRequest)),
    Endpoint("POST", "/runs/{run_id}/cancel", run.cancel_run, "runs", "run", "Cancel a run", replies=Run,
        errors=(RunNotFound,)),
    Endpoint("POST", "/runs/retry", run.retry_runs, "runs", "run",
        "Retry each failed run of a page of those that a filter selects, newest first", body=RetryRunsRequest,
        replies=RetryRunsResponse, errors=(InvalidRequest,)),
    Endpoint("POST", "/runs/{run_id}/retry", run.retry_run, "runs", "run",
        "Continue a failed or cancelled run from where it ended, or in a fork of its session",
        body=run.RetryRunRequest | None, headers=(_IDEMPOTENCY_KEY,), replies=Run, status=202,
        errors=(RunNotFound, SessionNotFound, AppNotFound, AppLoadError, NotRetryable, SessionBusy, SessionFull,
            IdempotencyConflict, InvalidRequest, NotOffered, TooManyRuns, Unavailable)),
    Endpoint("GET", _RUN_WEBHOOKS, webhooks.list_run_webhooks, "webhooks", "read",
        "List the webhooks of a run, with those of its app", replies=ListRunWebhooksResponse,
        errors=(RunNotFound,)),
    Endpoint("POST", _RUN_WEBHOOKS, webhooks.add_run_webhook, "webhooks", "run",
        "Add a webhook to a run, or replace the one with its id; it also receives the present state", body=Webhook,
        replies=RunWebhook, status=201, errors=(RunNotFound, InvalidRequest, NotOffered)),
    Endpoint("DELETE", _RUN_WEBHOOKS + "/{webhook_id}", webhooks.delete_run_webhook, "webhooks", "run",
        "Remove a webhook from a run, with its deliveries", errors=(RunNotFound, NotFound)),
    Endpoint("GET", _RUN_WEBHOOKS + _DELIVERIES, webhooks.list_run_deliveries, "webhooks", "read",
        "List the deliveries of a run's states to a webhook, newest first", query=_DELIVERY_LIMIT,
        replies=ListDeliveriesResponse, errors=(RunNotFound, NotFound)),
    Endpoint("POST", _RUN_WEBHOOKS + _DELIVERIES + "/{delivery_id}/redeliver", webhooks.redeliver_of_run, "webhooks",
        "run", "Send a delivery once more, with the same id and body, and wait for the response",
        replies=WebhookDelivery, errors=(RunNotFound, NotFound)),
    Endpoint("POST", _RUN_WEBHOOKS + "/{webhook_id}/test", webhooks.test_run_webhook, "webhooks", "run",
        "Send `webhook.test` to a webhook of a run, and wait for the response", replies=WebhookDelivery,
        errors=(RunNotFound, NotFound)),
    Endpoint("GET", _APP_WEBHOOKS, webhooks.list_app_webhooks, "webhooks", "manage", "List the webhooks of an app",
        replies=ListAppWebhooksResponse, errors=(AppNotFound, AppLoadError)),
    Endpoint("GET", _APP_WEBHOOK, webhooks.get_app_webhook, "webhooks", "manage", "Get a webhook of an app",
        replies=AppWebhook, errors=(AppNotFound, AppLoadError, NotFound)),
    Endpoint("PUT", _APP_WEBHOOK, webhooks.put_app_webhook, "webhooks", "manage",
        "Store a webhook of an app, for the runs that begin from now on, or replace the one with its id", body=Webhook,
        replies=AppWebhook, errors=(AppNotFound, AppLoadError, InvalidRequest, NotOffered, WebhookConflict)),
    Endpoint("DELETE", _APP_WEBHOOK, webhooks.delete_app_webhook, "webhooks", "manage",
        "Delete a webhook of an app; runs that have begun keep it",
        errors=(AppNotFound, AppLoadError, NotFound, WebhookConflict)),
    Endpoint("GET", _APP_WEBHOOKS + _DELIVERIES, webhooks.list_app_deliveries, "webhooks", "manage",
        "List the deliveries of all runs' states to a webhook of an app, newest first", query=_DELIVERY_LIMIT,
        replies=ListDeliveriesResponse, errors=(AppNotFound, AppLoadError, NotFound)),
    Endpoint("POST", _APP_WEBHOOKS + _DELIVERIES + "/{delivery_id}/redeliver", webhooks.redeliver_of_app, "webhooks",
        "manage", "Send a delivery once more, with the same id and body, and wait for the response",
        replies=WebhookDelivery, errors=(AppNotFound, AppLoadError, NotFound)),
    Endpoint("POST", _APP_WEBHOOKS + "/{webhook_id}/test", webhooks.test_app_webhook, "webhooks", "manage",
        "Send `webhook.test` to a webhook of an app, and wait for the response", replies=WebhookDelivery,
        errors=(AppNotFound, AppLoadError, NotFound)),
    Endpoint("POST", "/runs/{run_id}/signals/{signal_name}", run.signal_run, "runs", "run",
        "Send a signal, with any JSON as its value, to a run; it continues when it waits for the signal",
        body=Any | None,
        headers=(Header("Idempotency-Key", "A run receives one signal with the same key within a day."),),
        replies=Run, errors=(RunNotFound, NotWaiting, SignalsFull, TooManyRuns, Unavailable)),
    Endpoint("GET", _SIGNAL_URL, signal_links.signal_page, "runs", "open",
        "Show the page of a signed URL, which asks for confirmation; it changes nothing", replies=str,
        media_type="text/html", errors=(NotFound, LinkExpired, RunNotFound, NotWaiting, SignalRepeated)),
    Endpoint("POST", _SIGNAL_URL, signal_links.send_signal, "runs", "open",
        "Send the signal of a signed URL once, without credentials", body=bytes, replies=signal_links.SignalSent,
        errors=(NotFound, LinkExpired, InvalidRequest, RunNotFound, NotWaiting, SignalRepeated, SignalsFull,
            TooManyRuns, Unavailable)),
    Endpoint("POST", _FEEDBACK, feedback.give_feedback, "feedback", "run",
        "Give feedback on an event, in place of the caller's earlier one of this name", body=FeedbackRequest,
        replies=Feedback, errors=(SessionNotFound, NotFound, InvalidRequest, TooMuchFeedback)),
    Endpoint("DELETE", _FEEDBACK, feedback.delete_feedback, "feedback", "run",
        "Delete the caller's feedback on an event", errors=(SessionNotFound, NotFound),
        query=(Query("name", str, "Only feedback of this name; by default all of the caller's."),)),
    Endpoint("GET", _SESSION + "/feedback", feedback.list_feedback_of_session, "feedback", "read",
        "List the feedback on the events of a session, newest first", query=_FEEDBACK_FILTERS,
        replies=ListFeedbackResponse, errors=(SessionNotFound, InvalidRequest)),
    Endpoint("GET", _APP + "/feedback", feedback.list_feedback_of_app, "feedback", "read",
        "List the feedback on sessions of an app that the caller may see, newest first",
        query=(Query("user_id", str, "Only feedback on sessions of this user."), *_FEEDBACK_FILTERS),
        replies=ListFeedbackResponse, errors=(AppNotFound, InvalidRequest)),
    Endpoint("GET", _VERSIONS, versions.list_app_versions, "versions", "manage",
        "List the published versions of an app, newest first, with their shares of its sessions",
        replies=ListVersionsResponse, errors=(AppNotFound,)),
    Endpoint("POST", _VERSIONS, versions.publish_version, "versions", "manage",
        "Publish the present code of an app as an immutable version; code that was published before is that version",
        body=PublishVersionRequest | None, replies=PublishedVersion, status=201,
        errors=(AppNotFound, AppLoadError, NotOffered, TooLarge, TooManyVersions)),
    Endpoint("GET", _VERSIONS + "/scores", versions.get_version_scores, "versions", "manage",
        "Compare the failures, feedback, times and tokens of the newest runs of each version",
        replies=ListVersionScoresResponse, errors=(AppNotFound,),
        query=(Query("baseline", str, "The version with which the others are compared; by default the one with the "
            "greatest share of the sessions."),)),
    Endpoint("GET", _VERSION, versions.get_version, "versions", "manage",
        "Get a published version with its agents and the names of its files", replies=PublishedVersion,
        errors=(AppNotFound, NotFound)),
    Endpoint("DELETE", _VERSION, versions.delete_version, "versions", "manage",
        "Delete a published version that serves no sessions", errors=(AppNotFound, NotFound, VersionInUse)),
    Endpoint("GET", _VERSION + "/compare/{other_version_name}", versions.compare_versions, "versions", "manage",
        "Compare two versions, or one with the present code, `source`: instructions, models, settings, tools and files",
        replies=VersionComparison, errors=(AppNotFound, AppLoadError, NotFound, NotOffered, TooLarge)),
    Endpoint("PUT", _APP + "/traffic", versions.set_traffic, "versions", "manage",
        "Set the share of an app's sessions that each version serves", body=Traffic, replies=Traffic,
        errors=(AppNotFound, InvalidRequest, NotFound)),
    Endpoint("GET", _SCHEDULES, schedules.list_schedules, "schedules", "read",
        "List the schedules of an app that the caller may see, newest first", replies=ListSchedulesResponse,
        errors=(InvalidRequest,), query=(
            Query("user_id", str, "Only schedules of this user."),
            Query("limit", Positive, "Maximum number of schedules; 100 by default, at most 1000."),
            Query("page_token", str, "The `nextPageToken` of the previous page."),
        )),
    Endpoint("POST", _SCHEDULES, schedules.create_schedule, "schedules", "run",
        "Create a schedule: runs that the server starts by the clock", body=Schedule, replies=Schedule, status=201,
        errors=(AppNotFound, AppLoadError, InvalidRequest, NotOffered, TooLarge, ScheduleConflict, TooManySchedules)),
    Endpoint("POST", _SCHEDULES + "/preview", schedules.next_times, "schedules", "read",
        "List the next times of a schedule, which need not be stored", body=Schedule, replies=ScheduleTimes,
        errors=(AppNotFound, InvalidRequest),
        query=(Query("limit", Positive, "Maximum number of times; 5 by default, at most 20."),)),
    Endpoint("GET", _SCHEDULE, schedules.get_schedule, "schedules", "read", "Get a schedule", replies=Schedule,
        errors=(ScheduleNotFound,)),
    Endpoint("PUT", _SCHEDULE, schedules.replace_schedule, "schedules", "run",
        "Change a schedule; its next run is the first after now", body=Schedule, replies=Schedule,
        errors=(ScheduleNotFound, InvalidRequest, NotOffered, TooLarge, ScheduleConflict)),
    Endpoint("DELETE", _SCHEDULE, schedules.delete_schedule, "schedules", "run",
        "Delete a schedule with its history; its runs stay", errors=(ScheduleNotFound, ScheduleConflict)),
    Endpoint("POST", _SCHEDULE + "/pause", schedules.pause_schedule, "schedules", "run",
        "Start no runs of a schedule until it is resumed", replies=Schedule, errors=(ScheduleNotFound,)),
    Endpoint("POST", _SCHEDULE + "/resume", schedules.resume_schedule, "schedules", "run",
        "Start runs of a schedule again, the first one after now", replies=Schedule, errors=(ScheduleNotFound,)),
    Endpoint("POST", _SCHEDULE + "/run", schedules.run_schedule, "schedules", "run",
        "Start a run of a schedule now, without waiting for it", replies=Run, status=202, headers=(_IDEMPOTENCY_KEY,),
        errors=(ScheduleNotFound, *_STARTING)),
    Endpoint("GET", _SCHEDULE + "/runs", schedules.list_schedule_runs, "schedules", "read",
        "List the history of a schedule, newest first: its times, with the runs that were started, or why none was",
        query=(Query("limit", Positive, "Maximum number of entries; 100 by default, at most 1000."),),
        replies=ListScheduleRunsResponse, errors=(ScheduleNotFound,)),
    Endpoint("GET", "/requests", requests.list_requests, "requests", "read",
        "List the open requests to people that the caller may see, of all sessions, newest first; with "
        "text/event-stream, the page as event `snapshot` and then each request that is new or changes",
        replies=ListRequestsResponse, streams=HumanRequest, errors=(InvalidRequest,),
        query=(
            Query("app_name", str, "Only requests of this app."),
            Query("user_id", str, "Only requests in sessions of this user."),
            Query("kind", list[RequestKind], "Only requests of one of these kinds."),
            Query("tool", str, "Only requests of this tool."),
            Query("mine", bool, "Only requests that the caller itself may answer now.", default=False),
            Query("approver", str, "Only requests that this user may answer now."),
            Query("limit", Positive, "Maximum number of requests; 100 by default, at most 1000."),
            Query("page_token", str, "The `nextPageToken` of the previous page."),
        )),
    Endpoint("GET", "/requests/{request_id}", requests.get_request, "requests", "read",
        "Get a request to people, open or closed", replies=HumanRequest, errors=(RequestNotFound,)),
    Endpoint("GET", "/requests/{request_id}/session", requests.get_session_of_request, "requests", "read",
        "Get the session of a request to people, if its policy lets those who answer read it", replies=Session,
        errors=(RequestNotFound, SessionNotFound)),
    Endpoint("POST", "/requests/{request_id}/delegate", requests.delegate_request, "requests", "run",
        "Let another person answer a request in place of the caller", body=DelegateRequest, replies=HumanRequest,
        errors=(RequestNotFound, RequestClosed, NotApprover, InvalidRequest, Unavailable)),
    Endpoint("POST", "/requests/{request_id}/answer", requests.answer_request, "requests", "run",
        "Answer a request to people; its run continues, as after a function response to `/run`", body=RequestAnswer,
        replies=AnswerRequestResponse,
        errors=(RequestNotFound, RequestClosed, NotApprover, ApprovalRefused, InvalidRequest, AppNotFound, AppLoadError,
            TooManyRuns, Unavailable)),
    Endpoint("GET", _SESSION, sessions.get_session, "sessions", "read", "Get a session with its state and its events",
        replies=Session, errors=(SessionNotFound, InvalidRequest),
        query=(
            Query("events", Literal["all"], "`all` includes internal events: checkpoints of workflows, steps of "
                "agents that run as tools."),
            Query("until_seq", Count, "Return the session as it was after the event with this sequence number."),
        )),
    Endpoint("POST", _SESSIONS, sessions.create_session, "sessions", "run", "Create a session",
        body=sessions.CreateSessionRequest | None, replies=Session,
        errors=(AppNotFound, AppLoadError, SessionExists, InvalidRequest, CallerError, TooLarge)),
    Endpoint("GET", _SESSIONS, sessions.list_sessions, "sessions", "read",
        "List a user's sessions, without their events", replies=list[Session], errors=(InvalidRequest,),
        query=(
            Query("text", str, "Only sessions with this text in their title or in an event, ignoring case."),
            Query("state", list[str], "Only sessions with this value in their state: `key=value`."),
            Query("updated_from", float, "Only sessions updated at or after these Unix seconds."),
            Query("updated_before", float, "Only sessions updated before these Unix seconds."),
            Query("limit", Positive, "Maximum number of sessions, newest update first; without it all are returned, "
                "oldest update first."),
            Query("page_token", str, "The header `x-next-page-token` of the previous page."),
        )),
    Endpoint("POST", _SESSION, sessions.create_session_with_id, "sessions", "run",
        "Create a session with the given id; the body is its state", body=dict[str, Any] | None,
        replies=Session, errors=(AppNotFound, AppLoadError, SessionExists, InvalidRequest, TooLarge)),
    Endpoint("PATCH", _SESSION, sessions.patch_session, "sessions", "run", "Change a session's state",
        body=sessions.PatchSessionRequest, replies=Session,
        errors=(SessionNotFound, AppLoadError, InvalidRequest, TooLarge, SessionFull)),
    Endpoint("DELETE", _SESSION, sessions.delete_session, "sessions", "run", "Delete a session and its events"),
    Endpoint("POST", _SESSION + "/fork", sessions.fork_session, "sessions", "run",
        "Create a session that shares another one's events up to one of them", body=sessions.ForkSessionRequest | None,
        replies=Session, errors=(SessionNotFound, NotFound, SessionExists, InvalidRequest, NotOffered)),
    Endpoint("POST", _SESSION + "/rewind", sessions.rewind_session, "sessions", "run",
        "Take a session back to where a run began; its events stay, and count no longer",
        body=sessions.RewindSessionRequest, replies=Event,
        errors=(AppNotFound, SessionNotFound, RunNotFound, SessionBusy, SessionFull, InvalidRequest)),
    Endpoint("DELETE", _USER, user_data.erase_user, "users", "manage",
        "Erase all data of a user in an app, and report what was found, deleted, kept and left", replies=ErasureReport,
        errors=(NotOffered, Unavailable)),
    Endpoint("GET", _USER + "/export", user_data.export_user, "users", "read",
        "Export all data of a user in an app as a zip file", replies=bytes, media_type="application/zip"),
    Endpoint("GET", _SESSION + "/events", run.session_events, "sessions", "read",
        "List the events of a session, or stream them without end with text/event-stream", query=_PAGE,
        headers=(_LAST_EVENT_ID,), replies=run.EventPage, streams=Event, errors=(SessionNotFound, InvalidRequest)),
    Endpoint("GET", _ARTIFACTS, artifacts.list_artifacts, "artifacts", "read",
        "List the artifacts of a session and of its user", replies=list[str]),
    Endpoint("POST", _ARTIFACTS, artifacts.save_artifact, "artifacts", "run", "Save a new version of an artifact",
        body=artifacts.SaveArtifactRequest, replies=ArtifactVersion, errors=(AppNotFound, CallerError, TooLarge)),
    Endpoint("GET", _ARTIFACT + "/versions", artifacts.list_versions, "artifacts", "read",
        "List the versions of an artifact", replies=list[int]),
    Endpoint("GET", _ARTIFACT + "/versions/metadata", artifacts.list_version_metadata, "artifacts", "read",
        "List the metadata of all versions", replies=list[ArtifactVersion]),
    Endpoint("GET", _ARTIFACT + "/versions/{version}", artifacts.load_version, "artifacts", "read",
        "Get a version; `latest` is the newest", replies=Part, errors=(ArtifactNotFound, InvalidRequest)),
    Endpoint("GET", _ARTIFACT + "/versions/{version}/metadata", artifacts.get_version_metadata, "artifacts", "read",
        "Get the metadata of a version", replies=ArtifactVersion, errors=(ArtifactNotFound, InvalidRequest)),
    Endpoint("GET", _ARTIFACT + "/versions/{version}/content", artifacts.download_version, "artifacts", "read",
        "Download a version, or the `latest`, with its media type", replies=bytes, media_type="*/*",
        errors=(ArtifactNotFound,)),
    Endpoint("PUT", _ARTIFACT, artifacts.upload_artifact, "artifacts", "run",
        "Upload a new version of an artifact, of any size", body=bytes, replies=ArtifactVersion,
        errors=(AppNotFound,)),
    Endpoint("GET", _ARTIFACT, artifacts.load_artifact, "artifacts", "read",
        "Get an artifact, by default its newest version", replies=Part,
        query=(Query("version", Count, "The version; the newest by default."),),
        errors=(ArtifactNotFound, InvalidRequest)),
    Endpoint("DELETE", _ARTIFACT, artifacts.delete_artifact, "artifacts", "run", "Delete all versions of an artifact"),
    Endpoint("GET", _CREDENTIALS, credentials.list_credentials, "credentials", "read",
        "List the logins that a user granted, without secrets", replies=list[GrantedLogin]),
    Endpoint("DELETE", _CREDENTIALS + "/{credential_key:path}", credentials.revoke_credential, "credentials", "run",
        "Revoke a granted login and delete the stored credential"),
    Endpoint("PATCH", "/apps/{app_name}/users/{user_id}/memory", sessions.add_session_to_memory, "memory", "run",
        "Add a session to memory", body=sessions.AddToMemoryRequest, errors=(SessionNotFound, InvalidRequest)),
    Endpoint("GET", "/list-apps", apps.list_apps, "apps", "read",
        "List the apps; with `detailed`, also descriptions, load errors and what is missing",
        query=(Query("detailed", bool, "Include descriptions and errors.", default=False),),
        replies=list[str] | ListAppsResponse),
    Endpoint("GET", "/apps/{app_name}/app-info", apps.app_info, "apps", "read", "Get an app's agents and tools",
        replies=AppInfo, errors=(AppNotFound, AppLoadError, CallerError)),
    Endpoint("GET", _APP + "/usage", apps.list_usage, "apps", "read",
        "Get the tokens and the cost of an app's runs, as far as the caller may see them",
        replies=ListUsageResponse, errors=(InvalidRequest,),
        query=(
            Query("group_by", list[UsageGroup], "One sum per group; without groups, one sum of everything."),
            Query("user_id", str, "Only usage of this user."),
            Query("session_id", str, "Only usage in this session."),
            Query("run_id", str, "Only usage of this run."),
            Query("model", str, "Only usage of this model, as its provider names it."),
            Query("first_day", date, "Only usage of this day (UTC) and later ones."),
            Query("last_day", date, "Only usage of this day (UTC) and earlier ones."),
            Query("limit", Positive, "Maximum number of sums; 100 by default, at most 1000."),
            Query("page_token", str, "The `nextPageToken` of the previous page."),
        )),
    Endpoint("GET", "/dev/apps/{app_name}/debug/trace/session/{session_id}", debug.session_trace, "debug", "debug",
        "Get the spans of a session's runs, at most the newest 1000", aliases=("/debug/trace/session/{session_id}",),
        replies=list[SpanRecord]),
    Endpoint("GET", "/dev/apps/{app_name}/debug/trace/{event_id}", debug.event_trace, "debug", "debug",
        "Get the span of an event: its attributes, with `trace_id` and `span_id`", aliases=("/debug/trace/{event_id}",),
        replies=dict[str, Any], errors=(TraceNotFound,)),
    Endpoint("GET", _APP + "/logs", debug.app_logs, "debug", "debug",
        "List the log messages of an app's runs that are still in memory, or stream them with text/event-stream",
        query=(
            Query("after", Count, "Number of the line after which to begin."),
            Query("limit", Positive, "Maximum number of lines; 1000 by default and at most."),
        ),
        headers=(_LAST_EVENT_ID,), replies=ListLogsResponse, streams=LogLine, errors=(AppNotFound, InvalidRequest)),
    Endpoint("GET", _DEV + "/build_graph", debug.app_tree, "debug", "debug",
        "Get an app's tree of agents, with their instructions and tools", aliases=("/dev/build_graph/{app_name}",),
        replies=dict[str, Any], errors=(AppNotFound, AppLoadError)),
    Endpoint("GET", _DEV + "/build_graph_image", debug.app_graphs, "debug", "debug",
        "Get the graphs of an app and of its workflow agents, by path", aliases=("/dev/build_graph_image/{app_name}",),
        query=(*_DARK_MODE, Query("node", str, "Return only the graph with this path.")),
        replies=dict[str, debug.GraphResponse], errors=(AppNotFound, AppLoadError, AgentNotFound)),
    Endpoint("GET", _DEV + "/graph", debug.app_graph, "debug", "debug", "Get the graph of an app's agents and tools",
        query=_DARK_MODE, replies=debug.GraphResponse, errors=(AppNotFound, AppLoadError)),
    Endpoint("GET", "/dev" + _SESSION + "/events/{event_id}/graph", debug.event_graph, "debug", "debug",
        "Get the graph of an app, with the agents and tools of an event highlighted",
        aliases=(_SESSION + "/events/{event_id}/graph",), query=_DARK_BY_DEFAULT, replies=debug.GraphResponse,
        errors=(AppNotFound, AppLoadError, SessionNotFound)),
    Endpoint("GET", "/statistics", statistics.get_statistics, "statistics", "read",
        "Get figures of runs and calls over time, as far as the caller may see them", replies=Statistics,
        errors=(InvalidRequest, NotOffered), query=(
            *_PERIOD,
            Query("group_by", StatisticsGrouping, "One series for each; without it, one of everything."),
            Query("app_name", str, "Only figures of this app."),
            Query("user_id", str, "Only figures of this user, which are kept by day."),
            Query("model", str, "Only calls of this model, as its provider names it."),
            Query("tool", str, "Only calls of this tool."),
            Query("limit", Positive, "Maximum number of groups; 10 by default, at most 50."),
        )),
    Endpoint("GET", "/statistics/load", statistics.get_load, "statistics", "debug",
        "Get the load of all servers over time", replies=LoadStatistics,
        errors=(InvalidRequest, NotOffered),
        query=(*_PERIOD, Query("app_name", str, "Only the load of this app."))),
    Endpoint("GET", "/audit", audit.list_audit_entries, "audit", "audit",
        "List the entries of the audit trail that the caller may see, newest first", replies=ListAuditResponse,
        errors=(InvalidRequest, NotOffered), audit="audit.read", query=(
            Query("action", list[AuditAction], "Only entries with one of these actions."),
            Query("outcome", AuditOutcome, "Only what succeeded, or was refused."),
            Query("subject", str, "Only entries about this caller."),
            Query("app_name", str, "Only entries about this app."),
            Query("user_id", str, "Only entries about data of this user."),
            Query("session_id", str, "Only entries about this session."),
            Query("run_id", str, "Only entries about this run."),
            Query("time_from", Time, "Only entries at or after these Unix seconds."),
            Query("time_before", Time, "Only entries before these Unix seconds."),
            Query("limit", Positive, "Maximum number of entries; 100 by default, at most 1000."),
            Query("page_token", str, "The `nextPageToken` of the previous page."),
        )),
    *_ACCESS,
    *_MEMORY_ENDPOINTS,
    Endpoint("GET", "/settings", server.list_settings, "server", "admin",
        "List the settings of the server in effect and their sources, without secrets", replies=ListSettingsResponse),
    *_BUDGET_ENDPOINTS,
    Endpoint("GET", "/metrics", server.metrics, "server", "debug",
        "Get metrics of runs, models and tools since the start of the server, in Prometheus's text format",
        media_type="text/plain", errors=(MissingExtra,)),
    Endpoint("GET", "/replicas", server.list_replicas, "server", "debug",
        "List the servers that share the database, with their runs of apps that the caller may access; without a "
        "shared database, this server", replies=ListReplicasResponse),
    Endpoint("GET", "/health", server.health, "server", "open", "Check that the server responds", aliases=("/livez",),
        replies=dict[str, str]),
    Endpoint("GET", "/readyz", server.ready, "server", "open",
        "Check that the server takes requests: its stores respond, and it isn't stopping", replies=dict[str, str],
        errors=(Unavailable,)),
    Endpoint("GET", "/version", server.version, "server", "open", "Get the versions of the server and its language",
        replies=dict[str, str]),
    Endpoint("GET", "/openapi.json", server.openapi, "server", "open", "Get the OpenAPI 3.1 document of this API",
        replies=dict[str, Any]),
    Endpoint("GET", "/docs", web_page.docs_page, "server", "open", "Show the documentation of this API",
        media_type="text/html"),
    *_EVALUATION,
    Endpoint("GET", _DEV + "/builder", builder.get_file, "editing", "read",
        "Get a YAML file of an app; empty if there is none, or the server doesn't allow edits",
        aliases=("/builder/app/{app_name}",), media_type="text/plain", query=(
            Query("file_path", str, "Path in the app's folder.", default="root_agent.yaml"),
            Query("tmp", bool, "Read the draft, if there is one.", default=False),
            Query("ts", str, "Ignored. ADK's page sends it to bypass caches."),
        ), errors=(AppNotFound, AgentConfigError, NotOffered)),
    Endpoint("GET", _DEV + "/builder/files", builder.list_files, "editing", "manage", "List the YAML files of an app",
        replies=builder.AgentFileList, errors=(AppNotFound, NotOffered)),
    Endpoint("POST", _DEV + "/builder/save", builder.save_files, "editing", "manage",
        "Save YAML files of an app, which may be new: a form with `files`, each named `{app_name}/PATH.yaml`",
        aliases=("/builder/save",), replies=bool,
        query=(Query("tmp", bool, "Save as a draft, without building the agents.", default=False),),
        audit="app.changed", errors=(AppNotFound, AgentConfigError, InvalidRequest, NotOffered, TooLarge)),
    Endpoint("POST", _DEV + "/builder/cancel", builder.cancel, "editing", "manage", "Discard a draft",
        audit="app.changed", aliases=("/builder/app/{app_name}/cancel",), replies=bool,
        errors=(AppNotFound, NotOffered)),
    Endpoint("GET", "/dev/builder/schema", builder.get_schema, "editing", "manage",
        "Get the JSON Schema of agents' YAML files", replies=JsonObject, errors=(NotOffered,)),
    Endpoint("GET", "/config/telemetry", web_page.get_telemetry, "web page", "open",
        "Get whether the web page reports its use", replies=web_page.TelemetryConsent),
    Endpoint("POST", "/config/telemetry", web_page.set_telemetry, "web page", "open",
        "Set the consent to usage reports; the server sends none", body=web_page.TelemetryConsent,
        replies=web_page.TelemetryConsent, errors=(CallerError,), headers=(_CONSENT,)),
    Endpoint("POST", "/agent-identity/finalize", web_page.finalize_identity, "web page", "run",
        "Complete a cloud provider's consent flow", body=web_page.FinalizeIdentityRequest, status=501,
        errors=(NotOffered,)),
    Endpoint("GET", "/dev-ui/config", web_page.get_logo, "web page", "open", "Get the web page's logo",
        replies=web_page.LogoConfig),
    Endpoint("GET", "/dev-ui/assets/config/runtime-config.json", web_page.get_runtime_config, "web page", "open",
        "Get the configuration of the web page", replies=web_page.RuntimeConfig),
    Endpoint("GET", "/sign-in", server.sign_in_page, "server", "open", "Redirect to the sign-in page",
        status=307),
    Endpoint("POST", "/sign-in", server.sign_in, "server", "open",
        "Sign in: store a key in a cookie; an empty key deletes the cookie", body=server.SignInRequest,
        replies=server.SignedIn, errors=(InvalidRequest, Unauthenticated, Unavailable)),
    Endpoint("GET", "/", server.redirect, "server", "open", "Redirect to the web page, with any method",
        aliases=("/dev-ui",), status=307, takes_any_method=True),
    Endpoint("GET", "/dev-ui/{file:path}", web_page.dev_ui, "web page", "open",
        "Get a file of the web page; other paths are addresses of its pages", media_type="text/html"),
)  # fmt: skip

SOCKETS: tuple[Endpoint, ...] = (
    Endpoint("WEBSOCKET", "/run_live", live.run_live, "runs", "run",
        "Live conversation with an agent: sends LiveRequests and audio, receives events", aliases=("/run-live",),
        query=(
            Query("app_name", str, "Optional if the server has a default app."),
            Query("user_id", str, "Required."),
            Query("session_id", str, "Required."),
            Query("modalities", list[live.Modality], "Response modalities of the model; AUDIO by default."),
            Query("proactive_audio", bool, "The model may stay silent."),
            Query("enable_affective_dialog", bool, "The model adapts to the tone of voice."),
            Query("enable_session_resumption", bool, "Request handles for session resumption."),
            Query("explicit_vad_signal", bool, "Report when the user starts and stops speaking."),
            Query("save_live_blob", bool, "Save the audio as artifacts.", default=False),
            Query("binary_mime_type", str, "Media type of binary frames.", default=live.MICROPHONE),
            Query("after", Count,
                "Sequence number (`seq`) of the last event seen: stored events after it are sent first."),
        ),
        errors=(AppNotNamed, AppNotFound, AppLoadError, SessionNotFound, SessionFull, TooManyRuns, Unavailable)),
)  # fmt: skip
"""The endpoints that are WebSockets. Source: ADK's `/run_live`."""
