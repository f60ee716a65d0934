"""The asynchronous client."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from uuid import uuid4

from greenroom.client.connection import Connection, path
from greenroom.client.run_stream import RunStream
from greenroom.errors import ArtifactNotFound, InvalidRequest
from greenroom.records import wire
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
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.budget import Budget, ListBudgetsResponse
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part, UserContent
from greenroom.records.eval_cases import (
    MAX_ANSWERS,
    AddCasesResponse,
    AddFeedbackRequest,
    EvalSetVersion,
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
    ListMemoriesResponse,
    ListSettingsResponse,
    MemoryEntry,
    SettingInfo,
)
from greenroom.records.retention import RetentionPreview
from greenroom.records.run import (
    ListRunsResponse,
    MultitaskStrategy,
    RetryRunsRequest,
    RetryRunsResponse,
    Run,
    RunStatus,
    RunWebhook,
    SessionRunRequest,
    Webhook,
)
from greenroom.records.schedule import (
    ListScheduleRunsResponse,
    ListSchedulesResponse,
    Schedule,
    ScheduleRun,
    ScheduleTimes,
)
from greenroom.records.session import ListEventsResponse, ListSessionsResponse, Session, SessionFilter
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

DEFAULT_URL = "http://127.0.0.1:8000"


class AsyncClient:
    """Calls a greenroom server. Use it as `async with`, or close it.

    Retries failed requests with exponential backoff, unless a retry could apply them twice. Errors
    of the server are raised as the same classes of `greenroom.errors`, with `detail` but without
    the other fields. Raises Unavailable after `retry_seconds` without an answer.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = 60.0,
        retry_seconds: float = 60.0,
    ) -> None:
        """Opens a client of a server.

        api_key: sent as a bearer token. timeout_seconds: limit of one call; runs may take longer.
        """
        self._connection = Connection(
            url, api_key=api_key, headers=headers, timeout_seconds=timeout_seconds, retry_seconds=retry_seconds
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections. Runs continue."""
        await self._connection.close()

    # apps

    async def list_apps(self) -> list[str]:
        return await self._connection.call("GET", "/list-apps", list[str])

    async def get_app_info(self, app_name: str) -> AppInfo:
        return await self._connection.call("GET", path("apps", app_name, "app-info"), AppInfo)

    async def get_usage(
        self,
        *,
        app_name: str,
        group_by: Iterable[UsageGroup] = (),
        user_id: str | None = None,
        session_id: str | None = None,
        run_id: str | None = None,
        model: str | None = None,
        first_day: str | None = None,
        last_day: str | None = None,
        limit: int | None = None,
        page_token: str | None = None,
    ) -> ListUsageResponse:
        """Tokens and cost of an app's runs that the caller may see, 100 sums at a time; without groups one sum of all.

        first_day, last_day: "2026-01-31" (UTC), both included.
        """
        query = {
            "group_by": list(group_by),
            "user_id": user_id,
            "session_id": session_id,
            "run_id": run_id,
            "model": model,
            "first_day": first_day,
            "last_day": last_day,
            "limit": limit,
            "page_token": page_token,
        }
        return await self._connection.call("GET", path("apps", app_name, "usage"), ListUsageResponse, query=query)

    async def get_statistics(
        self,
        *,
        start: float | None = None,
        end: float | None = None,
        step: Step | None = None,
        group_by: StatisticsGrouping | None = None,
        app_name: str | None = None,
        user_id: str | None = None,
        model: str | None = None,
        tool: str | None = None,
        limit: int | None = None,
    ) -> Statistics:
        """Figures of runs and calls over time that the caller may see; without a group one series of all.

        start, end: Unix seconds; by default the last day. step: seconds between two points. limit: of groups, 10 by
        default.
        """
        query = {
            "start": start,
            "end": end,
            "step": step,
            "group_by": group_by,
            "app_name": app_name,
            "user_id": user_id,
            "model": model,
            "tool": tool,
            "limit": limit,
        }
        return await self._connection.call("GET", "/statistics", Statistics, query=query)

    async def get_load(
        self,
        *,
        start: float | None = None,
        end: float | None = None,
        step: Step | None = None,
        app_name: str | None = None,
    ) -> LoadStatistics:
        """The load of all servers over time, of all apps or of one; the times are as in `get_statistics`."""
        query = {"start": start, "end": end, "step": step, "app_name": app_name}
        return await self._connection.call("GET", "/statistics/load", LoadStatistics, query=query)

    # sessions

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str | None = None,
        state: JsonObject | None = None,
        events: Iterable[Event] = (),
    ) -> Session:
        """Creates a session, with the log of an exported one if `events` are given. Raises SessionExists."""
        body = {"sessionId": session_id, "state": state, "events": list(events)}
        return await self._connection.call("POST", _user(app_name, user_id, "sessions"), Session, body=body)

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, until_seq: int | None = None
    ) -> Session:
        """Returns a session with its state and all its events, or as it was after event `until_seq`.

        Raises SessionNotFound.
        """
        query = {"events": "all", "until_seq": until_seq}
        return await self._connection.call("GET", _session(app_name, user_id, session_id), Session, query=query)

    async def fork_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        seq: int | None = None,
        event_id: str | None = None,
        new_session_id: str | None = None,
    ) -> Session:
        """A new session with the events up to `seq` or `event_id` (by default all), returned without them.

        Raises SessionNotFound, SessionExists, NotFound, NotOffered.
        """
        body = {"seq": seq, "eventId": event_id, "sessionId": new_session_id}
        return await self._connection.call("POST", _session(app_name, user_id, session_id, "fork"), Session, body=body)

    async def edit_event(
        self, *, app_name: str, user_id: str, session_id: str, event_id: str, message: str | Content | None = None
    ) -> Run:
        """Forks the session before an event and starts a run there, with this message or the user's own one again.

        The run's `session_id` is the fork's. Raises SessionNotFound, NotFound, NotOffered.
        """
        edit = _session(app_name, user_id, session_id, "events", event_id, "edit")
        content = UserContent(message) if isinstance(message, str) else message
        return await self._connection.call("POST", edit, Run, body={"newMessage": content})

    async def list_sessions(
        self,
        *,
        app_name: str,
        user_id: str,
        where: SessionFilter | None = None,
        limit: int | None = None,
        page_token: str | None = None,
    ) -> ListSessionsResponse:
        """Lists sessions without their events.

        Without `limit` all, oldest update first; with it a page, newest update first.
        """
        where = where or SessionFilter()
        query = {
            "text": where.text,
            "state": [f"{key}={wire.encode(value).decode()}" for key, value in (where.state or {}).items()] or None,
            "updated_from": where.updated_from,
            "updated_before": where.updated_before,
            "limit": limit,
            "page_token": page_token,
        }
        data, headers = await self._connection.send("GET", _user(app_name, user_id, "sessions"), query=query)
        sessions = self._connection.read(data, list[Session])
        return ListSessionsResponse(sessions=sessions, next_page_token=headers.get("x-next-page-token"))

    async def list_events(
        self, *, app_name: str, user_id: str, session_id: str, after: int = 0, limit: int | None = None
    ) -> ListEventsResponse:
        """A page of the log after sequence number `after`, at most 1000 events. last_seq: that of the last one.

        Raises SessionNotFound.
        """
        events = _session(app_name, user_id, session_id, "events")
        return await self._connection.call("GET", events, ListEventsResponse, query={"after": after, "limit": limit})

    async def update_state(self, *, app_name: str, user_id: str, session_id: str, state_delta: JsonObject) -> Session:
        """Applies the delta; None removes a key. Raises SessionNotFound."""
        body = {"stateDelta": state_delta}
        return await self._connection.call("PATCH", _session(app_name, user_id, session_id), Session, body=body)

    async def set_title(self, *, app_name: str, user_id: str, session_id: str, title: str) -> Session:
        """Changes a session's title; an empty one removes it. Raises SessionNotFound."""
        body = {"title": title}
        return await self._connection.call("PATCH", _session(app_name, user_id, session_id), Session, body=body)

    async def rewind_session(self, *, app_name: str, user_id: str, session_id: str, before_run: str) -> Event:
        """Takes a session back to where a run began, and returns the event of the rewind.

        Raises SessionNotFound, RunNotFound, and SessionBusy while a run is active.
        """
        at = _session(app_name, user_id, session_id, "rewind")
        return await self._connection.call("POST", at, Event, body={"rewindBeforeInvocationId": before_run})

    async def preview_retention(self, *, app_name: str) -> RetentionPreview:
        """The time for which the app keeps sessions, and those that would be deleted now. Raises AppNotFound."""
        return await self._connection.call("GET", path("apps", app_name, "retention"), RetentionPreview)

    async def delete_user(self, *, app_name: str, user_id: str) -> ErasureReport:
        """Deletes all that the app has of the user but what the report says. It can be repeated. Raises NotOffered."""
        return await self._connection.call("DELETE", _user(app_name, user_id), ErasureReport)

    async def export_user(self, file: str | os.PathLike[str], *, app_name: str, user_id: str) -> None:
        """Writes all that the app has of the user into a zip file."""
        await self._connection.download(f"{_user(app_name, user_id)}/export", Path(file))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        await self._connection.send("DELETE", _session(app_name, user_id, session_id))

    # runs

    async def run(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        message: str | Content | None = None,
        streaming: bool = False,
        state_delta: JsonObject | None = None,
        multitask_strategy: MultitaskStrategy = "enqueue",
        deadline_seconds: float | None = None,
        start_at: float | None = None,
        delay_seconds: float | None = None,
        max_llm_calls: int | None = None,
        priority: int | None = None,
        webhooks: Sequence[Webhook] = (),
        idempotency_key: str | None = None,
    ) -> RunStream:
        """Starts a run and returns a stream of its events. Retries don't start it again.

        message: the user's message; None runs on the stored events. streaming: with partial events.
        start_at, delay_seconds: a time, in Unix seconds or from now, at which the run starts; the stream waits for it.
        priority: where the server limits the runs that it executes at a time; by default the app's.
        webhooks: receivers of the run's states. idempotency_key: the same key returns the same run, also in another
        process; generated by default.
        Raises AppNotFound, SessionNotFound, SessionBusy etc.; the stream raises the error that the run fails with.
        """
        content = UserContent(message) if isinstance(message, str) else message
        request = SessionRunRequest(
            new_message=content,
            streaming=streaming,
            state_delta=state_delta,
            multitask_strategy=multitask_strategy,
            deadline_seconds=deadline_seconds,
            start_at=start_at,
            delay_seconds=delay_seconds,
            max_llm_calls=max_llm_calls,
            priority=priority,
            webhooks=list(webhooks) or None,
        )
        started = await self._connection.call(
            "POST",
            _session(app_name, user_id, session_id, "runs"),
            Run,
            body=request,
            headers={"idempotency-key": idempotency_key or uuid4().hex},
            is_repeatable=True,
        )
        # An answer continues a run whose earlier events the caller has read.
        is_answer = content is not None and any(part.function_response for part in content.parts or ())
        after = started.message_after_seq if is_answer else started.after_seq
        return RunStream(self._connection, started, after=after, with_user_events=False)

    async def answer(self, run: Run, request: FunctionCall, response: JsonObject) -> RunStream:
        """Answers a request of a waiting run and returns its next events. request: one of `RunStream.requests`."""
        reply = FunctionResponse(id=request.id, name=request.name, response=response)
        message = UserContent(Part(function_response=reply))
        return await self.run(app_name=run.app_name, user_id=run.user_id, session_id=run.session_id, message=message)

    async def approve(self, run: Run, request: FunctionCall) -> RunStream:
        """Approves a tool call. Raises ApprovalRefused if it was already decided."""
        return await self.answer(run, request, {"confirmed": True})

    async def refuse(self, run: Run, request: FunctionCall) -> RunStream:
        """Refuses a tool call; the agent receives the refusal."""
        return await self.answer(run, request, {"confirmed": False})

    async def follow(self, run_id: str, *, after: int | None = None) -> RunStream:
        """Streams a run's events, including the user's, from the first or after sequence number `after`.

        Raises RunNotFound.
        """
        return RunStream(self._connection, await self.get_run(run_id), after=after, with_user_events=True)

    async def get_run(self, run_id: str) -> Run:
        """Raises RunNotFound."""
        return await self._connection.call("GET", path("runs", run_id), Run)

    async def list_runs(
        self,
        *,
        app_name: str | None = None,
        user_id: str | None = None,
        session_id: str | None = None,
        status: Iterable[RunStatus] = (),
        error_code: str | None = None,
        app_version: str | None = None,
        created_from: float | None = None,
        created_before: float | None = None,
        feedback: str | None = None,
        feedback_label: str | None = None,
        min_score: float | None = None,
        max_score: float | None = None,
        limit: int | None = None,
        page_token: str | None = None,
    ) -> ListRunsResponse:
        """Runs that the caller may see, newest first, 100 at a time. Times are Unix seconds.

        app_version: a version of the code, as `Run.app_version` has it, or with `app_name` the name of a published one.
        feedback: the name of feedback that a run has; it needs `app_name`. min_score, max_score: of that feedback, both
        included.
        """
        query = {
            "app_name": app_name,
            "user_id": user_id,
            "session_id": session_id,
            "status": list(status),
            "error_code": error_code,
            "app_version": app_version,
            "created_from": created_from,
            "created_before": created_before,
            "feedback": feedback,
            "feedback_label": feedback_label,
            "min_score": min_score,
            "max_score": max_score,
            "limit": limit,
            "page_token": page_token,
        }
        return await self._connection.call("GET", "/runs", ListRunsResponse, query=query)

    async def list_waiting_runs(
        self, app_name: str, *, limit: int | None = None, page_token: str | None = None
    ) -> ListWaitingRunsResponse:
        """The waiting runs of an app, newest first, 20 at a time, each with the first step that differs in the present
        code. Raises AppNotFound, AppLoadError.
        """
        query = {"limit": limit, "page_token": page_token}
        return await self._connection.call(
            "GET", path("apps", app_name, "waiting-runs"), ListWaitingRunsResponse, query=query
        )

    async def cancel_run(self, run_id: str) -> Run:
        """Cancels a run; returns when it has ended. Raises RunNotFound."""
        return await self._connection.call("POST", path("runs", run_id, "cancel"), Run, is_repeatable=True)

    async def retry_run(self, run_id: str, *, fork: bool = False, idempotency_key: str | None = None) -> Run:
        """Continues a failed or cancelled run from where it ended; with `fork`, as a new run in a fork of its session.

        idempotency_key: the same key retries once, also from another process; generated by default.
        Raises RunNotFound, NotRetryable, SessionBusy.
        """
        return await self._connection.call(
            "POST",
            path("runs", run_id, "retry"),
            Run,
            body={"fork": fork},
            headers={"idempotency-key": idempotency_key or uuid4().hex},
            is_repeatable=True,
        )

    async def retry_runs(
        self,
        *,
        app_name: str | None = None,
        user_id: str | None = None,
        session_id: str | None = None,
        status: Iterable[Literal["failed", "cancelled"]] = ("failed",),
        error_code: str | None = None,
        created_from: float | None = None,
        created_before: float | None = None,
        fork: bool = False,
        limit: int = 100,
        page_token: str | None = None,
    ) -> RetryRunsResponse:
        """Retries each run of a page of those that the filter selects, newest first, and says which were refused."""
        request = RetryRunsRequest(
            app_name=app_name,
            user_id=user_id,
            session_id=session_id,
            status=list(status),
            error_code=error_code,
            created_from=created_from,
            created_before=created_before,
            fork=fork,
            limit=limit,
            page_token=page_token,
        )
        return await self._connection.call("POST", "/runs/retry", RetryRunsResponse, body=request)

    # webhooks of runs

    async def list_webhooks(self, run_id: str) -> list[RunWebhook]:
        """The webhooks of a run, with those of its app. Raises RunNotFound."""
        listed = await self._connection.call("GET", path("runs", run_id, "webhooks"), ListRunWebhooksResponse)
        return listed.webhooks

    async def add_webhook(self, run_id: str, webhook: Webhook) -> RunWebhook:
        """Adds a webhook, or replaces the one with its id. It receives the present state too. Raises RunNotFound."""
        at = path("runs", run_id, "webhooks")
        return await self._connection.call("POST", at, RunWebhook, body=webhook, is_repeatable=bool(webhook.id))

    async def delete_webhook(self, run_id: str, webhook_id: str) -> None:
        """Removes a webhook, with its deliveries. Raises RunNotFound, NotFound."""
        await self._connection.send("DELETE", path("runs", run_id, "webhooks", webhook_id))

    async def list_deliveries(self, run_id: str, webhook_id: str, *, limit: int | None = None) -> list[WebhookDelivery]:
        """The messages to a webhook of a run, newest first, 100 unless `limit` says otherwise."""
        at = path("runs", run_id, "webhooks", webhook_id, "deliveries")
        listed = await self._connection.call("GET", at, ListDeliveriesResponse, query={"limit": limit})
        return listed.deliveries

    async def redeliver(self, run_id: str, webhook_id: str, delivery_id: str) -> WebhookDelivery:
        """Sends a message once more, and returns it with that try. Raises RunNotFound, NotFound."""
        at = path("runs", run_id, "webhooks", webhook_id, "deliveries", delivery_id, "redeliver")
        return await self._connection.call("POST", at, WebhookDelivery)

    async def test_webhook(self, run_id: str, webhook_id: str) -> WebhookDelivery:
        """Sends `webhook.test` once, and returns it with that try. Raises RunNotFound, NotFound."""
        at = path("runs", run_id, "webhooks", webhook_id, "test")
        return await self._connection.call("POST", at, WebhookDelivery)

    # webhooks of apps

    async def list_app_webhooks(self, *, app_name: str) -> list[AppWebhook]:
        """The webhooks of an app: those of its code, and those that clients have stored."""
        listed = await self._connection.call("GET", path("apps", app_name, "webhooks"), ListAppWebhooksResponse)
        return listed.webhooks

    async def get_app_webhook(self, *, app_name: str, webhook_id: str) -> AppWebhook:
        """Raises NotFound."""
        return await self._connection.call("GET", path("apps", app_name, "webhooks", webhook_id), AppWebhook)

    async def put_app_webhook(self, webhook: Webhook, *, app_name: str) -> AppWebhook:
        """Stores a webhook, over an earlier one with its id; runs that begin from now on have it.

        Raises WebhookConflict for the id of a webhook of the app's code.
        """
        if not webhook.id:
            raise InvalidRequest("A webhook of an app needs an id", location=("id",))
        at = path("apps", app_name, "webhooks", webhook.id)
        return await self._connection.call("PUT", at, AppWebhook, body=webhook, is_repeatable=True)

    async def delete_app_webhook(self, *, app_name: str, webhook_id: str) -> None:
        """Runs that have begun keep the webhook. Raises NotFound, WebhookConflict."""
        await self._connection.send("DELETE", path("apps", app_name, "webhooks", webhook_id))

    async def signal_run(
        self, run_id: str, name: str, value: JsonValue = None, *, idempotency_key: str | None = None
    ) -> Run:
        """Sends a signal to a run, which continues with its value when it waits for it.

        idempotency_key: the run receives one of the signals with the same key; by default a new one. Raises
        RunNotFound, NotWaiting for a run that is over, and SignalsFull.
        """
        at = path("runs", run_id, "signals", name)
        headers = {"idempotency-key": idempotency_key or uuid4().hex}
        return await self._connection.call("POST", at, Run, body=value, headers=headers, is_repeatable=True)

    # feedback

    async def give_feedback(
        self,
        name: str,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        event_id: str,
        score: bool | float | None = None,
        label: str | None = None,
        comment: str | None = None,
    ) -> Feedback:
        """Gives feedback on an event: at least one of score, label and comment. It replaces the caller's earlier one of
        this name.

        name: what is judged, such as `helpful`.
        Raises SessionNotFound, NotFound, InvalidRequest, TooMuchFeedback.
        """
        given = FeedbackRequest(name=name, score=score, label=label, comment=comment)
        at = _session(app_name, user_id, session_id, "events", event_id, "feedback")
        return await self._connection.call("POST", at, Feedback, body=given, is_repeatable=True)

    async def delete_feedback(
        self, *, app_name: str, user_id: str, session_id: str, event_id: str, name: str | None = None
    ) -> None:
        """Deletes the caller's feedback on an event: of one name, or all. Raises SessionNotFound, NotFound."""
        at = _session(app_name, user_id, session_id, "events", event_id, "feedback")
        await self._connection.send("DELETE", at, query={"name": name})

    async def list_feedback(
        self,
        *,
        app_name: str,
        user_id: str | None = None,
        session_id: str | None = None,
        event_id: str | None = None,
        name: str | None = None,
        label: str | None = None,
        source: FeedbackSource | None = None,
        min_score: float | None = None,
        max_score: float | None = None,
        created_from: float | None = None,
        created_before: float | None = None,
        limit: int | None = None,
        page_token: str | None = None,
    ) -> ListFeedbackResponse:
        """Feedback that the caller may see, newest first, 100 at a time: of an app, of a user's sessions or of one
        session.

        min_score, max_score: both included; true counts as 1, and false as 0. created_from, created_before: Unix
        seconds. Raises AppNotFound, SessionNotFound.
        """
        query: dict[str, str | float | None] = {
            "event_id": event_id,
            "name": name,
            "label": label,
            "source": source,
            "min_score": min_score,
            "max_score": max_score,
            "created_from": created_from,
            "created_before": created_before,
            "limit": limit,
            "page_token": page_token,
        }
        if session_id is None:
            at = path("apps", app_name, "feedback")
            query["user_id"] = user_id
        else:
            if user_id is None:
                raise ValueError("list_feedback() needs the user_id of the session")
            at = _session(app_name, user_id, session_id, "feedback")
        return await self._connection.call("GET", at, ListFeedbackResponse, query=query)

    # evaluation

    async def make_case(
        self,
        eval_set_id: str,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        event_id: str,
        expected_response: str | None = None,
    ) -> AddCasesResponse:
        """Adds an answer to an evaluation set, with the feedback on it. The set is created if it doesn't exist.

        expected_response: the answer that is expected; by default, only comments count.
        Raises AppNotFound, SessionNotFound, NotFound, NotOffered for an app that isn't in a folder.
        """
        body = MakeCaseRequest(eval_set_id=eval_set_id, expected_response=expected_response)
        at = _session(app_name, user_id, session_id, "events", event_id, "case")
        return await self._connection.call("POST", at, AddCasesResponse, body=body, is_repeatable=True)

    async def add_feedback_cases(
        self,
        eval_set_id: str,
        *,
        app_name: str,
        user_id: str | None = None,
        name: str | None = None,
        label: str | None = None,
        source: FeedbackSource | None = None,
        min_score: float | None = None,
        max_score: float | None = None,
        created_from: float | None = None,
        created_before: float | None = None,
        limit: int = MAX_ANSWERS,
        page_token: str | None = None,
    ) -> AddCasesResponse:
        """Adds the answers with such feedback to an evaluation set, which is created if it doesn't exist.

        The arguments are those of `list_feedback`; `limit` is at most 100. Answers that have a case already are
        skipped. Raises AppNotFound, NotOffered for an app that isn't in a folder.
        """
        body = AddFeedbackRequest(
            user_id=user_id,
            name=name,
            label=label,
            source=source,
            min_score=min_score,
            max_score=max_score,
            created_from=created_from,
            created_before=created_before,
            limit=limit,
            page_token=page_token,
        )
        at = path("dev", "apps", app_name, "eval-sets", eval_set_id, "add-feedback")
        return await self._connection.call("POST", at, AddCasesResponse, body=body, is_repeatable=True)

    async def list_eval_set_versions(self, eval_set_id: str, *, app_name: str) -> list[EvalSetVersion]:
        """The versions of an evaluation set, oldest first. Raises AppNotFound, NotFound."""
        at = path("dev", "apps", app_name, "eval-sets", eval_set_id, "versions")
        return (await self._connection.call("GET", at, ListEvalSetVersionsResponse)).versions

    # memories and settings

    async def list_memories(
        self,
        *,
        app_name: str,
        user_id: str,
        query: str | None = None,
        limit: int | None = None,
        page_token: str | None = None,
    ) -> ListMemoriesResponse:
        """A user's memories, 100 at a time, in the order in which they were added; with a query the best matches, best
        first.
        """
        at = path("apps", app_name, "users", user_id, "memories")
        wanted = {"query": query, "limit": limit, "page_token": page_token}
        return await self._connection.call("GET", at, ListMemoriesResponse, query=wanted)

    async def change_memory(
        self,
        content: Content | str,
        *,
        app_name: str,
        user_id: str,
        memory_id: str,
        custom_metadata: JsonObject | None = None,
    ) -> MemoryEntry:
        """Replaces the content of a memory, and its metadata if some is given. Raises NotFound, InvalidRequest."""
        new_content = UserContent(content) if isinstance(content, str) else content
        body = ChangeMemoryRequest(content=new_content, custom_metadata=custom_metadata)
        at = path("apps", app_name, "users", user_id, "memories", memory_id)
        return await self._connection.call("PUT", at, MemoryEntry, body=body, is_repeatable=True)

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str) -> None:
        """Deletes a memory, if there is one with this id."""
        await self._connection.send("DELETE", path("apps", app_name, "users", user_id, "memories", memory_id))

    async def list_settings(self) -> list[SettingInfo]:
        """The settings of the server in effect, without secrets. Raises Forbidden."""
        return (await self._connection.call("GET", "/settings", ListSettingsResponse)).settings

    # budgets

    async def list_budgets(
        self, *, app_name: str, user_id: str | None = None, key_id: str | None = None
    ) -> ListBudgetsResponse:
        """The budgets of an app that are in effect, and their use, as far as the caller may see them; with user_id or
        key_id those of this user or API key. Raises AppNotFound.
        """
        query = {"user_id": user_id, "key_id": key_id}
        return await self._connection.call("GET", path("apps", app_name, "budgets"), ListBudgetsResponse, query=query)

    async def put_budget(self, budget: Budget, *, app_name: str) -> Budget:
        """Stores a budget, in place of the one with the same owner and window. Raises AppNotFound, Forbidden."""
        at = path("apps", app_name, "budgets")
        return await self._connection.call("PUT", at, Budget, body=budget, is_repeatable=True)

    async def delete_budget(self, budget: Budget, *, app_name: str) -> None:
        """Deletes the stored budget with this owner and window. Raises NotFound, Forbidden."""
        query = {"per": budget.per, "window": budget.window, "user_id": budget.user_id, "key_id": budget.key_id}
        await self._connection.send("DELETE", path("apps", app_name, "budgets"), query=query)

    # keys, service accounts and roles

    async def get_me(self) -> Me:
        """The caller's user and permissions."""
        return await self._connection.call("GET", "/me", Me)

    async def list_keys(
        self,
        *,
        user_id: str | None = None,
        service_account: str | None = None,
        limit: int | None = None,
        page_token: str | None = None,
    ) -> ListApiKeysResponse:
        """API keys that the caller may administrate, newest first, 100 at a time."""
        query = {"user_id": user_id, "service_account": service_account, "limit": limit, "page_token": page_token}
        return await self._connection.call("GET", "/keys", ListApiKeysResponse, query=query)

    async def create_key(self, request: CreateApiKeyRequest) -> CreatedApiKey:
        """Creates an API key, which can't be shown again. Raises Forbidden, InvalidRequest, NotFound."""
        return await self._connection.call("POST", "/keys", CreatedApiKey, body=request)

    async def get_key(self, key_id: str) -> ApiKeyInfo:
        """Raises NotFound."""
        return await self._connection.call("GET", path("keys", key_id), ApiKeyInfo)

    async def revoke_key(self, key_id: str, *, force: bool = False) -> ApiKeyInfo:
        """force: also if then no key could administrate all apps any more. Raises NotFound, AccessConflict."""
        query = {"force": "true"} if force else {}
        return await self._connection.call("DELETE", path("keys", key_id), ApiKeyInfo, query=query, is_repeatable=True)

    async def list_service_accounts(self) -> list[ServiceAccount]:
        """The service accounts that the caller may administrate."""
        return (await self._connection.call("GET", "/service-accounts", ListServiceAccountsResponse)).service_accounts

    async def get_service_account(self, name: str) -> ServiceAccount:
        """Raises NotFound."""
        return await self._connection.call("GET", path("service-accounts", name), ServiceAccount)

    async def put_service_account(
        self, name: str, account: ServiceAccountRequest, *, force: bool = False
    ) -> ServiceAccount:
        """Creates or replaces a service account. force: as for `revoke_key`. Raises Forbidden, AccessConflict."""
        at = path("service-accounts", name)
        query = {"force": "true"} if force else {}
        return await self._connection.call("PUT", at, ServiceAccount, body=account, query=query, is_repeatable=True)

    async def delete_service_account(self, name: str, *, force: bool = False) -> None:
        """Deletes an account and revokes its keys. force: as for `revoke_key`. Raises NotFound, AccessConflict."""
        query = {"force": "true"} if force else {}
        await self._connection.send("DELETE", path("service-accounts", name), query=query)

    async def list_roles(self) -> list[Role]:
        """The built-in roles and the others."""
        return (await self._connection.call("GET", "/roles", ListRolesResponse)).roles

    async def put_role(self, name: str, role: RoleRequest, *, force: bool = False) -> Role:
        """Creates or replaces a role. force: as for `revoke_key`. Raises Forbidden, AccessConflict."""
        query = {"force": "true"} if force else {}
        return await self._connection.call("PUT", path("roles", name), Role, body=role, query=query, is_repeatable=True)

    async def delete_role(self, name: str) -> None:
        """Raises NotFound, AccessConflict for a role that is in use."""
        await self._connection.send("DELETE", path("roles", name))

    # schedules

    async def create_schedule(self, schedule: Schedule, *, app_name: str) -> Schedule:
        """Stores a schedule, and returns it as it is stored. With an `id`, a retry is safe.

        Raises AppNotFound, InvalidRequest, ScheduleConflict, TooManySchedules.
        """
        return await self._connection.call("POST", path("apps", app_name, "schedules"), Schedule, body=schedule)

    async def next_times(self, schedule: Schedule, *, app_name: str, limit: int | None = None) -> list[float]:
        """The next times of a schedule, which need not be stored, in Unix seconds and without jitter: 5 by default, 20
        at most.
        """
        at = path("apps", app_name, "schedules", "preview")
        found = await self._connection.call(
            "POST", at, ScheduleTimes, body=schedule, query={"limit": limit}, is_repeatable=True
        )
        return found.times

    async def list_schedules(
        self, *, app_name: str, user_id: str | None = None, limit: int | None = None, page_token: str | None = None
    ) -> ListSchedulesResponse:
        """Schedules that the caller may see, newest first, 100 at a time."""
        query = {"user_id": user_id, "limit": limit, "page_token": page_token}
        at = path("apps", app_name, "schedules")
        return await self._connection.call("GET", at, ListSchedulesResponse, query=query)

    async def get_schedule(self, *, app_name: str, schedule_id: str) -> Schedule:
        """Raises ScheduleNotFound."""
        return await self._connection.call("GET", path("apps", app_name, "schedules", schedule_id), Schedule)

    async def replace_schedule(self, schedule: Schedule, *, app_name: str, schedule_id: str) -> Schedule:
        """Changes a schedule; its next run is the first after now. Raises ScheduleNotFound, ScheduleConflict."""
        at = path("apps", app_name, "schedules", schedule_id)
        return await self._connection.call("PUT", at, Schedule, body=schedule, is_repeatable=True)

    async def delete_schedule(self, *, app_name: str, schedule_id: str) -> None:
        """Deletes a schedule with its history; its runs stay. Raises ScheduleNotFound, ScheduleConflict."""
        await self._connection.send("DELETE", path("apps", app_name, "schedules", schedule_id))

    async def pause_schedule(self, *, app_name: str, schedule_id: str) -> Schedule:
        """Starts no runs of a schedule until it is resumed. Raises ScheduleNotFound."""
        at = path("apps", app_name, "schedules", schedule_id, "pause")
        return await self._connection.call("POST", at, Schedule, is_repeatable=True)

    async def resume_schedule(self, *, app_name: str, schedule_id: str) -> Schedule:
        """Starts runs of a schedule again, the first one after now. Raises ScheduleNotFound."""
        at = path("apps", app_name, "schedules", schedule_id, "resume")
        return await self._connection.call("POST", at, Schedule, is_repeatable=True)

    async def run_schedule(self, *, app_name: str, schedule_id: str) -> Run:
        """Starts a run of a schedule now, once. Raises ScheduleNotFound, and what `run` does."""
        at = path("apps", app_name, "schedules", schedule_id, "run")
        headers = {"idempotency-key": uuid4().hex}
        return await self._connection.call("POST", at, Run, headers=headers, is_repeatable=True)

    async def list_schedule_runs(
        self, *, app_name: str, schedule_id: str, limit: int | None = None
    ) -> list[ScheduleRun]:
        """The history of a schedule, newest first, 100 entries by default. Raises ScheduleNotFound."""
        at = path("apps", app_name, "schedules", schedule_id, "runs")
        listed = await self._connection.call("GET", at, ListScheduleRunsResponse, query={"limit": limit})
        return listed.runs

    # published versions

    async def publish_version(self, *, app_name: str, message: str = "") -> PublishedVersion:
        """Publishes the present code of an app; code that was published before is that version.

        Raises AppNotFound, AppLoadError, NotOffered, TooLarge, TooManyVersions.
        """
        at = path("apps", app_name, "versions")
        body = PublishVersionRequest(message=message)
        return await self._connection.call("POST", at, PublishedVersion, body=body, is_repeatable=True)

    async def list_app_versions(self, *, app_name: str) -> ListVersionsResponse:
        """The published versions of an app, newest first, with their shares of its sessions."""
        return await self._connection.call("GET", path("apps", app_name, "versions"), ListVersionsResponse)

    async def get_app_version(self, *, app_name: str, name: str) -> PublishedVersion:
        """A published version with its agents and the names of its files. Raises NotFound."""
        return await self._connection.call("GET", path("apps", app_name, "versions", name), PublishedVersion)

    async def compare_app_versions(self, first: str, second: str, *, app_name: str) -> VersionComparison:
        """The differences from one version to another, such as `v3` and `v4`; `source` is the present code.

        Raises NotFound.
        """
        at = path("apps", app_name, "versions", first, "compare", second)
        return await self._connection.call("GET", at, VersionComparison)

    async def get_version_scores(self, *, app_name: str, baseline: str | None = None) -> ListVersionScoresResponse:
        """Failures, feedback, times and tokens of the newest runs of each version.

        baseline: the version with which the others are compared; by default the one with the greatest share.
        """
        at = path("apps", app_name, "versions", "scores")
        return await self._connection.call("GET", at, ListVersionScoresResponse, query={"baseline": baseline})

    async def set_traffic(self, shares: Mapping[str, int], *, app_name: str) -> Traffic:
        """Sets the percentages of an app's sessions that versions serve, such as `{"v3": 90, "v4": 10}`. Empty: the
        present code serves all.

        Raises InvalidRequest, NotFound.
        """
        at = path("apps", app_name, "traffic")
        body = Traffic(shares=dict(shares))
        return await self._connection.call("PUT", at, Traffic, body=body, is_repeatable=True)

    async def delete_app_version(self, *, app_name: str, name: str) -> None:
        """Deletes a version that serves no sessions. Raises NotFound, VersionInUse."""
        await self._connection.send("DELETE", path("apps", app_name, "versions", name))

    # requests to people

    async def list_audit_entries(
        self,
        *,
        action: Iterable[AuditAction] = (),
        outcome: AuditOutcome | None = None,
        subject: str | None = None,
        app_name: str | None = None,
        user_id: str | None = None,
        session_id: str | None = None,
        run_id: str | None = None,
        time_from: float | None = None,
        time_before: float | None = None,
        limit: int | None = None,
        page_token: str | None = None,
    ) -> ListAuditResponse:
        """Entries of the audit trail, newest first, 100 at a time. Times are Unix seconds."""
        query = {
            "action": list(action),
            "outcome": outcome,
            "subject": subject,
            "app_name": app_name,
            "user_id": user_id,
            "session_id": session_id,
            "run_id": run_id,
            "time_from": time_from,
            "time_before": time_before,
            "limit": limit,
            "page_token": page_token,
        }
        return await self._connection.call("GET", "/audit", ListAuditResponse, query=query)

    async def list_requests(
        self,
        *,
        app_name: str | None = None,
        user_id: str | None = None,
        kind: Iterable[RequestKind] = (),
        tool: str | None = None,
        mine: bool = False,
        approver: str | None = None,
        limit: int | None = None,
        page_token: str | None = None,
    ) -> ListRequestsResponse:
        """Open requests of all sessions that the caller may see, newest first, 100 at a time.

        mine: only those that the caller itself may answer now. approver: those that this user may answer now.
        """
        query = {
            "app_name": app_name,
            "user_id": user_id,
            "kind": list(kind),
            "tool": tool,
            "mine": "true" if mine else None,
            "approver": approver,
            "limit": limit,
            "page_token": page_token,
        }
        return await self._connection.call("GET", "/requests", ListRequestsResponse, query=query)

    async def get_request(self, request_id: str) -> HumanRequest:
        """A request to people, open or closed. Raises RequestNotFound."""
        return await self._connection.call("GET", path("requests", request_id), HumanRequest)

    async def answer_request(
        self,
        request_id: str,
        *,
        confirmed: bool | None = None,
        payload: JsonValue = None,
        response: JsonValue = None,
        comment: str | None = None,
        user_id: str | None = None,
    ) -> AnswerRequestResponse:
        """Answers a request; its run continues. confirmed, payload: of an approval. response: of other requests.

        user_id: who answers, for callers that act for all users of the app.
        Raises RequestNotFound, RequestClosed, NotApprover, InvalidRequest.
        """
        answer = RequestAnswer(
            confirmed=confirmed, payload=payload, response=response, comment=comment, user_id=user_id
        )
        at = path("requests", request_id, "answer")
        return await self._connection.call("POST", at, AnswerRequestResponse, body=answer)

    async def delegate_request(
        self, request_id: str, user_id: str, *, comment: str | None = None, from_user_id: str | None = None
    ) -> HumanRequest:
        """Lets `user_id` answer in place of the caller, or of the user for whom it acts.

        Raises RequestNotFound, RequestClosed, NotApprover, InvalidRequest.
        """
        delegation = DelegateRequest(user_id=user_id, from_user_id=from_user_id, comment=comment)
        return await self._connection.call(
            "POST", path("requests", request_id, "delegate"), HumanRequest, body=delegation
        )

    async def get_session_of_request(self, request_id: str) -> Session:
        """The session of a request, if its policy lets those who answer read it. Raises RequestNotFound, Forbidden."""
        return await self._connection.call("GET", path("requests", request_id, "session"), Session)

    # logins

    async def list_credentials(self, *, app_name: str, user_id: str) -> list[GrantedLogin]:
        """The logins that the user granted to the app's tools."""
        return await self._connection.call("GET", _user(app_name, user_id, "credentials"), list[GrantedLogin])

    async def revoke_credential(self, *, app_name: str, user_id: str, credential_key: str) -> None:
        """Deletes a login. The tool requests it again on its next use."""
        await self._connection.send("DELETE", _user(app_name, user_id, "credentials", credential_key))

    # artifacts

    async def list_artifacts(self, *, app_name: str, user_id: str, session_id: str) -> list[str]:
        """Names of the session's artifacts and of the user's (`user:…`)."""
        return await self._connection.call("GET", _session(app_name, user_id, session_id, "artifacts"), list[str])

    async def save_artifact(
        self, *, app_name: str, user_id: str, session_id: str, filename: str, artifact: Part
    ) -> ArtifactVersion:
        """Saves a new version. artifact: with inline data, text or a file reference."""
        artifacts = _session(app_name, user_id, session_id, "artifacts")
        body = {"filename": filename, "artifact": artifact}
        return await self._connection.call("POST", artifacts, ArtifactVersion, body=body)

    async def load_artifact(
        self, *, app_name: str, user_id: str, session_id: str, filename: str, version: int | None = None
    ) -> Part | None:
        """Loads the newest version, or the given one; None if there is none."""
        saved = _session(app_name, user_id, session_id, "artifacts", filename)
        try:
            return await self._connection.call("GET", saved, Part, query={"version": version})
        except ArtifactNotFound:
            return None

    async def list_versions(self, *, app_name: str, user_id: str, session_id: str, filename: str) -> list[int]:
        versions = _session(app_name, user_id, session_id, "artifacts", filename, "versions")
        return await self._connection.call("GET", versions, list[int])

    async def delete_artifact(self, *, app_name: str, user_id: str, session_id: str, filename: str) -> None:
        await self._connection.send("DELETE", _session(app_name, user_id, session_id, "artifacts", filename))

    # memory

    async def add_session_to_memory(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Adds a session's events to memory. Raises SessionNotFound."""
        memory = _user(app_name, user_id, "memory")
        await self._connection.send("PATCH", memory, body={"sessionId": session_id}, is_repeatable=True)


def _user(app_name: str, user_id: str, *more: str) -> str:
    return path("apps", app_name, "users", user_id, *more)


def _session(app_name: str, user_id: str, session_id: str, *more: str) -> str:
    return _user(app_name, user_id, "sessions", session_id, *more)
