"""Authorization: the services that a handler can reach, limited to the caller's permissions.

Handlers reach services only through these wrappers, so no handler can skip a check. Checks use only the caller's
identity and the names in the request, so a refusal does not reveal which resources exist. Runs are addressed by id
alone, so another user's run is reported as not found.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, cast

import msgspec

from greenroom.apps.app import App
from greenroom.apps.loader import AppLoader
from greenroom.artifacts.service import BaseArtifactService
from greenroom.audit.store import AuditStore
from greenroom.credentials.service import BaseCredentialService
from greenroom.errors import (
    AppLoadError,
    AppNotFound,
    Forbidden,
    GreenroomError,
    OwnershipLost,
    RequestNotFound,
    RunNotFound,
    ScheduleNotFound,
    SignalRepeated,
)
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.memory.service import BaseMemoryService
from greenroom.records import wire
from greenroom.records.audit import AuditAction, AuditFilter, ListAuditResponse
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.event import Event
from greenroom.records.feedback import (
    Feedback,
    FeedbackFilter,
    FeedbackRequest,
    FeedbackSource,
    ListFeedbackResponse,
)
from greenroom.records.inbox import (
    Answerer,
    DelegateRequest,
    HumanRequest,
    ListRequestsResponse,
    Reader,
    RequestAnswer,
    RequestFilter,
    may_answer,
)
from greenroom.records.replica import ReplicaStatus
from greenroom.records.run import (
    AgentRunRequest,
    ListRunsResponse,
    PushConfig,
    RefusedRetry,
    RetryRunsResponse,
    Run,
    RunConfig,
    RunFilter,
    RunWebhook,
    Webhook,
)
from greenroom.records.schedule import ListScheduleRunsResponse, ListSchedulesResponse, Schedule, ScheduleTimes
from greenroom.records.session import Session, SessionKey
from greenroom.records.state import APP_PREFIX
from greenroom.records.wake_up import SentSignal
from greenroom.records.webhook_delivery import AppWebhook, WebhookDelivery
from greenroom.runs.engine import Attachment, RunEngine
from greenroom.runs.feedback import SessionFeedback
from greenroom.runs.schedules import Schedules
from greenroom.runs.signals import check_receives
from greenroom.runs.watch import RunWatch
from greenroom.server.access.audit import RequestAudit
from greenroom.server.access.identity import Access, Identity
from greenroom.server.exchange import Exchange
from greenroom.server.signal_urls import SignalTicket
from greenroom.sessions.service import BaseSessionService
from greenroom.telemetry.span_record import SpanRecord
from greenroom.traces.store import TraceStore
from greenroom.usage.store import UsageStore

if TYPE_CHECKING:
    from greenroom.apps.agent_files import AgentFiles

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")

Operation = Literal["read", "write"]

_ACCESSES: Mapping[Operation, frozenset[Access]] = {
    "read": frozenset({"read", "run", "manage", "debug"}),
    "write": frozenset({"run", "manage"}),
}


_decode_run = wire.decoder(Run)
_decode_problem = wire.decoder(JsonObject)


@dataclass(slots=True)
class Permissions:
    """An identity, limited by the endpoint's access: open endpoints can't read, and reading ones can't write."""

    identity: Identity
    access: Access
    exchange: Exchange | None = None
    """Learns that a service has refused a call, without effect, since another server runs the session. None where
    one server runs all sessions."""
    audit: RequestAudit | None = None
    """None where the audit trail is off."""

    def check(self, operation: Operation, app_name: str, user_id: str | None) -> None:
        """Raises Forbidden."""
        if self.audit is None:
            self._check(operation, app_name, user_id)
            return
        try:
            self._check(operation, app_name, user_id)
        except Forbidden as error:
            self.audit.note_refusal(error)
            raise
        if operation == "read":
            self.audit.note_access(self.identity, app_name, user_id)

    async def record(self, action: AuditAction, **names: Any) -> None:
        """Records what was done in the audit trail, if there is one."""
        if self.audit is not None:
            await self.audit.record(action, **names)

    def _check(self, operation: Operation, app_name: str, user_id: str | None) -> None:
        if self.access not in _ACCESSES[operation]:
            raise Forbidden(f"This endpoint's scope, {self.access!r}, does not allow to {operation}")
        if not self.identity.is_unlimited:
            self.identity.check_reach(app_name, user_id)


class Authorized(Generic[T]):
    """A service for one caller. Subclasses list the methods that handlers may call, and the permission for each."""

    __slots__ = ("_permissions", "_service")

    def __init__(self, service: T, permissions: Permissions) -> None:
        self._service = service
        self._permissions = permissions

    def _check(self, operation: Operation, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """The app and the user are those of the first argument, else the keyword arguments; without `user_id`, the
        call concerns all users. Raises Forbidden."""
        permissions = self._permissions
        if args:
            permissions.check(operation, args[0].app_name, args[0].user_id)
        else:
            permissions.check(operation, named["app_name"], named.get("user_id"))
        if operation == "write" and not permissions.identity.is_unlimited and _writes_app_state(args, named):
            permissions.identity.check("manage")

    def _watched(self, method: Callable[P, R], *args: P.args, **named: P.kwargs) -> R:
        """Calls a method of the service, and notes in the exchange if it was refused."""
        try:
            result = method(*args, **named)
        except OwnershipLost as error:
            self._note_lost(error)
            raise
        if asyncio.iscoroutine(result):
            return cast("R", self._watched_result(result))
        return result

    async def _watched_result(self, result: Awaitable[Any]) -> Any:
        try:
            return await result
        except OwnershipLost as error:
            self._note_lost(error)
            raise

    async def _audited(self, action: AuditAction, result: Awaitable[Any], names: Mapping[str, Any]) -> Any:
        """Awaits a call of the service, and records it."""
        done = await result
        await self._permissions.record(action, **names)
        return done

    def _note_lost(self, error: OwnershipLost) -> None:
        if self._permissions.exchange is not None:
            self._permissions.exchange.note_lost(error)


def _reading(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[Authorized[T], P], R]:
    """The method of a service, for callers that may read."""
    return _checked("read", method)


def _writing(
    method: Callable[Concatenate[T, P], R], action: AuditAction | None = None
) -> Callable[Concatenate[Authorized[T], P], R]:
    """The method of a service, for callers that may write. action: of the audit trail; then the method is async."""
    return _checked("write", method, action)


def _checked(
    operation: Operation, method: Callable[Concatenate[T, P], R], action: AuditAction | None = None
) -> Callable[Concatenate[Authorized[T], P], R]:
    name = method.__name__

    def authorized(self: Authorized[T], *args: P.args, **named: P.kwargs) -> R:
        self._check(operation, args, named)
        of_service: Callable[P, R] = getattr(self._service, name)
        if self._permissions.exchange is None:
            result = of_service(*args, **named)
        else:
            result = self._watched(of_service, *args, **named)
        if action is None or self._permissions.audit is None:
            return result
        return cast("R", self._audited(action, cast("Awaitable[Any]", result), _names_in(args, named)))

    return authorized


def _names_in(args: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """The names of an entry of the audit trail that the arguments of a call have."""
    names = {name: named[name] for name in ("app_name", "user_id", "session_id") if name in named}
    if args:
        first = args[0]
        names = {"app_name": first.app_name, "user_id": first.user_id}
        names["session_id"] = first.id if isinstance(first, Session) else getattr(first, "session_id", None)
    target = next((named[name] for name in ("filename", "credential_key") if name in named), None)
    return {**names, "target": target}


def _names_of(run: Run) -> dict[str, Any]:
    return {"app_name": run.app_name, "user_id": run.user_id, "session_id": run.session_id, "run_id": run.id}


def _writes_app_state(args: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    """App state needs its own scope, because agents of all users read it."""
    if _has_app_key(named.get("state")):
        return True
    if args and _has_app_key(getattr(args[0], "state_delta", None)):
        return True
    for one in (*args[1:], *named.get("events", ())):
        if isinstance(one, Event) and _has_app_key(one.actions.state_delta):
            return True
    return False


def _has_app_key(delta: Mapping[str, object] | None) -> bool:
    return bool(delta) and any(key.startswith(APP_PREFIX) for key in delta)


class AuthorizedSessions(Authorized[BaseSessionService]):
    __slots__ = ()

    create_session = _writing(BaseSessionService.create_session, "session.created")
    get_session = _reading(BaseSessionService.get_session)
    list_sessions = _reading(BaseSessionService.list_sessions)
    list_events = _reading(BaseSessionService.list_events)
    seq_of_event = _reading(BaseSessionService.seq_of_event)
    fork_session = _writing(BaseSessionService.fork_session, "session.forked")
    delete_session = _writing(BaseSessionService.delete_session, "session.deleted")
    delete_user = _writing(BaseSessionService.delete_user)
    append = _writing(BaseSessionService.append, "session.changed")

    def new_key(self, key_of: Callable[[str], SessionKey]) -> SessionKey:
        """The key of a session that is to be created with a new random id, of those that this server runs."""
        return self._service.new_key(key_of)

    def as_service(self) -> BaseSessionService:
        """Returns this object as a `BaseSessionService` for lower layers, which know nothing of callers. They can only
        call the methods above.
        """
        return cast("BaseSessionService", self)


class AuthorizedArtifacts(Authorized[BaseArtifactService]):
    __slots__ = ()

    save_artifact = _writing(BaseArtifactService.save_artifact, "artifact.changed")
    load_artifact = _reading(BaseArtifactService.load_artifact)
    list_artifact_keys = _reading(BaseArtifactService.list_artifact_keys)
    list_versions = _reading(BaseArtifactService.list_versions)
    list_artifact_versions = _reading(BaseArtifactService.list_artifact_versions)
    get_artifact_version = _reading(BaseArtifactService.get_artifact_version)
    delete_artifact = _writing(BaseArtifactService.delete_artifact, "artifact.deleted")
    upload_artifact = _writing(BaseArtifactService.upload_artifact, "artifact.changed")
    download_artifact = _reading(BaseArtifactService.download_artifact)


class AuthorizedMemory(Authorized[BaseMemoryService]):
    __slots__ = ()

    add_session_to_memory = _writing(BaseMemoryService.add_session_to_memory, "memory.changed")
    search_memory = _reading(BaseMemoryService.search_memory)


class AuthorizedCredentials(Authorized[BaseCredentialService]):
    __slots__ = ()

    list_credentials = _reading(BaseCredentialService.list_credentials)
    delete_credential = _writing(BaseCredentialService.delete_credential, "credential.revoked")


class AuthorizedUsage(Authorized[UsageStore]):
    __slots__ = ()

    query_usage = _reading(UsageStore.query_usage)


class AuthorizedAudit(Authorized[AuditStore]):
    """The audit trail for one caller: that of the apps which it may access, with all their users. Entries about no app,
    such as those about keys, are for callers that may access all apps."""

    __slots__ = ()

    async def list_entries(self, where: AuditFilter, *, limit: int, page_token: str | None = None) -> ListAuditResponse:
        """Raises Forbidden, InvalidRequest."""
        identity = self._permissions.identity
        identity.check("audit")
        for app in where.app_names or ():
            identity.check_app(app)
        if where.app_names is None and identity.apps is not None:
            where.app_names = sorted(identity.apps)
        return await self._service.list_entries(where, limit=limit, page_token=page_token)


class AuthorizedRuns(Authorized[RunEngine]):
    """`RunEngine` for one caller, whose identity is stored with the runs that it starts."""

    __slots__ = ()

    attach_to_session = _reading(RunEngine.attach_to_session)
    append = _writing(RunEngine.append, "session.changed")
    delete_session = _writing(RunEngine.delete_session, "session.deleted")
    rewind = _writing(RunEngine.rewind, "session.rewound")

    async def delete_user(self, *, app_name: str, user_id: str) -> AsyncGenerator[SessionKey]:
        self._permissions.check("write", app_name, user_id)
        try:
            async for key in self._service.delete_user(app_name=app_name, user_id=user_id):
                yield key
        except OwnershipLost as error:
            self._note_lost(error)
            raise
        await self._permissions.record("user.deleted", app_name=app_name, user_id=user_id)

    async def start(
        self,
        request: AgentRunRequest,
        *,
        idempotency_key: str | None = None,
        attach: bool = True,
        traceparent: str | None = None,
    ) -> tuple[Run, Attachment | None]:
        self._check("write", (request,), {})
        if request.priority is not None and request.priority > 0:  # it comes before the runs of other users
            self._identity.check("manage")
        exchange = self._permissions.exchange
        try:
            return await self._service.start(
                request,
                idempotency_key=idempotency_key,
                attach=attach,
                traceparent=traceparent,
                caller=self._identity.caller,
                forwarded=exchange and exchange.take_forwarded(),
            )
        except AppNotFound as error:
            raise self._naming_own_apps(error) from None
        except OwnershipLost as error:
            self._note_lost(error)
            raise

    async def start_live(
        self,
        key: SessionKey,
        requests: LiveRequestQueue,
        *,
        run_config: RunConfig,
        after: int | None = None,
        traceparent: str | None = None,
    ) -> tuple[Run, Attachment]:
        self._check("write", (key,), {})
        try:
            return await self._service.start_live(
                key,
                requests,
                run_config=run_config,
                after=after,
                traceparent=traceparent,
                caller=self._identity.caller,
            )
        except AppNotFound as error:
            raise self._naming_own_apps(error) from None
        except OwnershipLost as error:
            self._note_lost(error)
            raise

    async def get(self, run_id: str) -> Run:
        """Raises RunNotFound, also for another user's run."""
        run = await self._watched_result(self._service.get(run_id))
        try:
            self._permissions.check("read", run.app_name, run.user_id)
        except Forbidden:
            raise RunNotFound(run_id) from None
        return run

    async def attach(self, run_id: str, *, after: int | None = None) -> Attachment:
        """Raises RunNotFound, also for another user's run."""
        await self.get(run_id)
        return await self._watched_result(self._service.attach(run_id, after=after))

    async def cancel(self, run_id: str, *, reason: str) -> Run:
        """Raises RunNotFound, also for another user's run."""
        run = await self.get(run_id)
        self._permissions.check("write", run.app_name, run.user_id)
        run = await self._watched_result(self._service.cancel(run_id, reason=reason))
        await self._permissions.record("run.cancelled", **_names_of(run))
        return run

    async def add_webhook(self, run_id: str, webhook: Webhook) -> RunWebhook:
        """Raises RunNotFound, also for another user's run, and InvalidRequest."""
        run = await self.get(run_id)
        self._permissions.check("write", run.app_name, run.user_id)
        added = await self._watched_result(self._service.add_webhook(run_id, webhook))
        await self._permissions.record("run.webhook.changed", **_names_of(run), target=added.id)
        return added

    async def delete_webhook(self, run_id: str, webhook_id: str) -> None:
        """Raises RunNotFound, also for another user's run."""
        run = await self.get(run_id)
        self._permissions.check("write", run.app_name, run.user_id)
        await self._watched_result(self._service.delete_webhook(run_id, webhook_id))
        await self._permissions.record("run.webhook.deleted", **_names_of(run), target=webhook_id)

    async def list_deliveries(
        self, *, app_name: str, webhook_id: str, run_id: str | None, limit: int
    ) -> list[WebhookDelivery]:
        """Messages about one run, or about those of all users. Raises RunNotFound, Forbidden."""
        if run_id is None:
            self._permissions.check("read", app_name, None)
        else:
            await self.get(run_id)
        return await self._service.webhooks.run_store.list_deliveries(
            app_name=app_name, webhook_id=webhook_id, run_id=run_id, limit=limit
        )

    async def get_delivery(self, *, app_name: str, delivery_id: str) -> WebhookDelivery | None:
        """None also for a message about another app's run. Raises Forbidden for another user's."""
        delivery = await self._service.webhooks.run_store.get_delivery(delivery_id)
        if delivery is None or delivery.app_name != app_name:
            return None
        self._permissions.check("read", app_name, delivery.user_id)
        return delivery

    async def redeliver(self, delivery: WebhookDelivery) -> WebhookDelivery:
        """Raises Forbidden."""
        self._permissions.check("write", delivery.app_name, delivery.user_id)
        delivery = await self._watched_result(self._service.webhooks.redeliver(delivery))
        await self._permissions.record(
            "webhook.redelivered",
            app_name=delivery.app_name,
            user_id=delivery.user_id,
            run_id=delivery.run_id,
            target=delivery.webhook_id,
        )
        return delivery

    async def test_webhook(self, app_name: str, webhook: Webhook, run: Run | None = None) -> WebhookDelivery:
        """Raises Forbidden."""
        self._permissions.check("write", app_name, run.user_id if run is not None else None)
        delivery = await self._watched_result(self._service.webhooks.test(app_name, webhook, run))
        names = _names_of(run) if run is not None else {"app_name": app_name}
        await self._permissions.record("webhook.tested", **names, target=webhook.id)
        return delivery

    async def list_app_webhooks(self, app_name: str, of_code: Sequence[Webhook]) -> list[AppWebhook]:
        """Raises Forbidden."""
        self._permissions.check("read", app_name, None)
        return await self._service.app_webhooks.list(app_name, of_code)

    async def put_app_webhook(self, app_name: str, webhook: Webhook, of_code: Sequence[Webhook]) -> AppWebhook:
        """Raises Forbidden, WebhookConflict, InvalidRequest."""
        self._permissions.check("write", app_name, None)
        stored = await self._service.app_webhooks.put(app_name, webhook, of_code)
        await self._permissions.record("app.webhook.changed", app_name=app_name, target=stored.id)
        return stored

    async def delete_app_webhook(self, app_name: str, webhook_id: str, of_code: Sequence[Webhook]) -> None:
        """Raises Forbidden, WebhookConflict, NotFound."""
        self._permissions.check("write", app_name, None)
        await self._service.app_webhooks.delete(app_name, webhook_id, of_code)
        await self._permissions.record("app.webhook.deleted", app_name=app_name, target=webhook_id)

    async def signal(self, run_id: str, signal: SentSignal) -> Run:
        """A signal that the run has received before has no effect. Raises RunNotFound, also for another user's run, and
        NotWaiting, SignalsFull.
        """
        run = await self.get(run_id)
        self._permissions.check("write", run.app_name, run.user_id)
        with contextlib.suppress(SignalRepeated):
            run = await self._watched_result(self._service.signal(run_id, signal))
            await self._permissions.record("run.signaled", **_names_of(run), target=signal.name)
            return run
        return await self.get(run_id)

    async def check_ticket(self, ticket: SignalTicket) -> Run:
        """The run of a signed URL, which is the permission. Raises RunNotFound, NotWaiting and SignalRepeated if its
        signal can't be sent now.
        """
        run = await self._watched_result(self._service.get(ticket.run_id))
        check_receives(run, ticket.signal_with(ticket.value), while_waiting=False)
        return run

    async def use_ticket(self, ticket: SignalTicket, value: JsonValue) -> Run:
        """Sends the signal of a signed URL, which is the permission. Raises RunNotFound, NotWaiting, SignalRepeated and
        SignalsFull.
        """
        signal = ticket.signal_with(value)
        run = await self._watched_result(self._service.signal(ticket.run_id, signal, while_waiting=False))
        await self._permissions.record("run.signaled", **_names_of(run), target=signal.name)
        return run

    async def retry(
        self,
        run_id: str,
        *,
        fork: bool,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
    ) -> Run:
        """Raises RunNotFound, also for another user's run, NotRetryable, and what `start` does."""
        run = await self.get(run_id)
        self._permissions.check("write", run.app_name, run.user_id)
        exchange = self._permissions.exchange
        retrying = self._service.retry(
            run_id,
            fork=fork,
            idempotency_key=idempotency_key,
            traceparent=traceparent,
            caller=self._identity.caller,
            forwarded=exchange and exchange.take_forwarded(),
        )
        return await self._watched_result(retrying)

    async def list_requests(
        self,
        where: RequestFilter,
        *,
        approver: str | None,
        limit: int,
        page_token: str | None = None,
        run_ids: list[str] | None = None,
    ) -> ListRequestsResponse:
        """Open requests to people that the caller may see; with `approver` only those that this user may answer now.

        run_ids: only of these runs. Raises Forbidden.
        """
        reader = self._reader(approver)
        where = msgspec.structs.replace(where, run_ids=run_ids)
        if approver is not None:
            where.answered_by = reader
        listed = await self._service.list_requests(self._seen(where), limit=limit, page_token=page_token)
        for request in listed.requests:
            request.may_answer = may_answer(reader, request)
        return listed

    async def watch_requests(self, where: RequestFilter) -> RunWatch:
        """Changes of runs whose requests the filter may select. Their requests are read with `list_requests`."""
        apps = self._seen(msgspec.structs.replace(where)).app_names
        return await self._service.watch_runs(RunFilter(app_names=apps, user_id=where.user_id))

    def _seen(self, where: RequestFilter) -> RequestFilter:
        """Limits the filter to requests that the caller may see. Raises Forbidden for an app beyond its reach."""
        identity = self._identity
        for app in where.app_names or ():
            identity.check_app(app)
        if where.app_names is None and identity.apps is not None:
            where.app_names = sorted(identity.apps)
        if not identity.is_unlimited:
            where.seen_by = self._reader()
        return where

    def _reader(self, user_id: str | None = None) -> Reader:
        """The caller, or the user for whom it reads. Raises Forbidden."""
        identity = self._identity
        if user_id is not None and user_id != identity.subject:
            apps = ["*"] if identity.apps is None else sorted(identity.apps)
            if not all(identity.acts_for(app, user_id) for app in apps):
                raise Forbidden(f"These credentials don't act for user {user_id!r}")
            return Reader(user_id=user_id)
        return Reader(
            user_id=identity.subject, scopes=sorted(identity.scopes), all_users_of=sorted(identity.apps_of_all_users)
        )

    async def get_request(self, request_id: str) -> HumanRequest:
        """Raises RequestNotFound, also for a request that the caller may not see."""
        request = await self._watched_result(self._service.get_request(request_id))
        if not self._may_see(request):
            raise RequestNotFound(request_id)
        request.may_answer = may_answer(self._reader(), request)
        return request

    def _may_see(self, request: HumanRequest) -> bool:
        identity = self._identity
        if identity.acts_for(request.app_name, request.user_id):
            return True
        return identity.reaches(request.app_name) and request.concerns(identity.subject, sorted(identity.scopes))

    async def answer_request(self, request_id: str, answer: RequestAnswer) -> tuple[HumanRequest, Run | None]:
        """The run is None for callers who may not see it. Raises as `RunEngine.answer_request` and `get_request`."""
        request = await self.get_request(request_id)
        answerer = self._answerer(request, answer.user_id, answer.comment)
        answered, run = await self._watched_result(self._service.answer_request(request_id, answer, answerer=answerer))
        answered.may_answer = may_answer(self._reader(), answered)
        return answered, run if self._identity.acts_for(run.app_name, run.user_id) else None

    async def delegate_request(self, request_id: str, delegation: DelegateRequest) -> HumanRequest:
        """Raises as `RunEngine.delegate_request` and `get_request`."""
        request = await self.get_request(request_id)
        answerer = self._answerer(request, delegation.from_user_id, delegation.comment)
        changed = await self._watched_result(
            self._service.delegate_request(request_id, delegation.user_id, answerer=answerer)
        )
        changed.may_answer = may_answer(self._reader(), changed)
        return changed

    async def get_session_of_request(self, request_id: str) -> SessionKey:
        """The session of a request, for those who may read it. Raises RequestNotFound, Forbidden."""
        request = await self.get_request(request_id)
        is_shown = request.policy is not None and request.policy.sees == "session"
        if not is_shown and not self._identity.acts_for(request.app_name, request.user_id):
            raise Forbidden("Those who answer this request don't see its session")
        if self._permissions.audit is not None:
            self._permissions.audit.note_access(self._identity, request.app_name, request.user_id)
        return request.session_key

    def _answerer(self, request: HumanRequest, user_id: str | None, comment: str | None) -> Answerer:
        """The caller, or the user that it names. Raises Forbidden."""
        identity = self._identity
        if identity.caller is None:
            return Answerer(user_id=user_id or request.user_id, comment=comment)
        if user_id is None or user_id == identity.subject:
            return Answerer(user_id=identity.subject, scopes=sorted(identity.scopes), comment=comment)
        if not identity.acts_for(request.app_name, user_id):
            raise Forbidden(f"These credentials don't act for user {user_id!r} in app {request.app_name!r}")
        return Answerer(user_id=user_id, scopes=[], comment=comment)

    async def retry_runs(
        self, where: RunFilter, *, fork: bool, limit: int, page_token: str | None = None, traceparent: str | None = None
    ) -> RetryRunsResponse:
        """Retries each run of a page of those that the caller may see, or has the owner of its session retry it.

        Raises Forbidden.
        """
        page = await self.list_runs(where, limit=limit, page_token=page_token)
        result = RetryRunsResponse(next_page_token=page.next_page_token)
        for run in page.runs:
            try:
                self._permissions.check("write", run.app_name, run.user_id)
                caller = self._identity.caller
                try:
                    started = await self._service.retry(run.id, fork=fork, traceparent=traceparent, caller=caller)
                except OwnershipLost:
                    started = await self._retry_by_owner(run, fork=fork)
                if isinstance(started, Run):
                    result.started.append(started)
                else:
                    result.refused.append(started)
            except GreenroomError as error:
                result.refused.append(RefusedRetry(run_id=run.id, code=error.code, detail=error.detail))
        return result

    async def _retry_by_owner(self, run: Run, *, fork: bool) -> Run | RefusedRetry:
        """Raises OwnershipLost, Unavailable, StorageError."""
        exchange = self._permissions.exchange
        if exchange is None or exchange.ask_owner is None:
            raise OwnershipLost(*run.session_key)
        status, body = await exchange.ask_owner(
            run.session_key, own_path="/runs/retry", path=f"/runs/{run.id}/retry", body=wire.encode({"fork": fork})
        )
        if status == HTTPStatus.ACCEPTED:
            return _decode_run(body)
        problem = _decode_problem(body)
        return RefusedRetry(run_id=run.id, code=problem["code"], detail=problem["detail"])

    async def save_push_config(self, config: PushConfig) -> None:
        """Raises RunNotFound, also for another user's run, and InvalidRequest."""
        run = await self.get(config.run_id)
        self._permissions.check("write", run.app_name, run.user_id)
        await self._watched_result(self._service.push_notifications.save(run, config))
        await self._permissions.record("run.webhook.changed", **_names_of(run), target=config.id)

    async def list_push_configs(self, run_id: str) -> list[PushConfig]:
        """Raises RunNotFound, also for another user's run."""
        return await self._service.push_notifications.list((await self.get(run_id)).id)

    async def delete_push_config(self, run_id: str, config_id: str) -> None:
        """Raises RunNotFound, also for another user's run."""
        run = await self.get(run_id)
        self._permissions.check("write", run.app_name, run.user_id)
        await self._watched_result(self._service.push_notifications.delete(run, config_id))
        await self._permissions.record("run.webhook.deleted", **_names_of(run), target=config_id)

    async def list_runs(self, where: RunFilter, *, limit: int, page_token: str | None = None) -> ListRunsResponse:
        """Runs that the caller may see. Raises Forbidden."""
        return await self._service.list_runs(self._visible(where), limit=limit, page_token=page_token)

    async def list_replicas(self) -> list[ReplicaStatus]:
        """The servers of the store, with the numbers of their runs of apps that the caller may access."""
        return await self._service.list_replicas(self._identity.apps)

    async def watch_runs(self, where: RunFilter) -> RunWatch:
        """Changes of the runs that the caller may see. Raises Forbidden."""
        return await self._service.watch_runs(self._visible(where))

    def _visible(self, run_filter: RunFilter) -> RunFilter:
        """Limits the filter to runs of the caller's own user, unless it acts for all users.

        Raises Forbidden if the filter names an app or a user that the caller may not see.
        """
        identity = self._identity
        if run_filter.app_names is None and identity.apps is not None:
            run_filter.app_names = sorted(identity.apps)
        apps = run_filter.app_names if run_filter.app_names is not None else ["*"]
        if run_filter.user_id is None and not all(identity.acts_for(app, None) for app in apps):
            run_filter.user_id = identity.subject
        for app in apps:
            self._permissions.check("read", app, run_filter.user_id)
        return run_filter

    @property
    def _identity(self) -> Identity:
        return self._permissions.identity

    def _naming_own_apps(self, error: AppNotFound) -> AppNotFound:
        """The error with only the apps that the caller may access."""
        apps = self._identity.apps
        return error if apps is None else AppNotFound(error.app_name, sorted(apps - {error.app_name}))


class AuthorizedSchedules(Authorized[Schedules]):
    """`Schedules` for one caller: those of users that it may not act for are reported as not found.

    The runs of a schedule have the permissions of the caller who stored it last.
    """

    __slots__ = ()

    async def create(self, schedule: Schedule, *, app_name: str) -> Schedule:
        self._check_run(app_name, schedule)
        caller = self._permissions.identity.caller
        created = await self._watched_result(self._service.create(schedule, app_name=app_name, caller=caller))
        await self._record("schedule.created", created)
        return created

    def next_times(self, schedule: Schedule, *, app_name: str, limit: int) -> ScheduleTimes:
        """Raises Forbidden, InvalidRequest."""
        self._permissions.check("read", app_name, schedule.user_id)
        return self._service.next_times(schedule, limit=limit)

    async def get(self, app_name: str, schedule_id: str) -> Schedule:
        """Raises Forbidden, ScheduleNotFound."""
        self._permissions.identity.check_app(app_name)
        schedule = await self._service.get(app_name, schedule_id)
        try:
            self._permissions.check("read", app_name, schedule.user_id)
        except Forbidden:
            raise ScheduleNotFound(app_name, schedule_id) from None
        return schedule

    async def list(
        self, *, app_name: str, user_id: str | None, limit: int, page_token: str | None
    ) -> ListSchedulesResponse:
        """Schedules that the caller may see. Raises Forbidden, InvalidRequest."""
        identity = self._permissions.identity
        if user_id is None and not identity.acts_for(app_name, None):
            user_id = identity.subject
        self._permissions.check("read", app_name, user_id)
        return await self._service.list(app_name=app_name, user_id=user_id, limit=limit, page_token=page_token)

    async def replace(self, schedule: Schedule, *, app_name: str, schedule_id: str) -> Schedule:
        """Raises Forbidden, ScheduleNotFound, InvalidRequest, ScheduleConflict."""
        await self._get_to_write(app_name, schedule_id)
        self._check_run(app_name, schedule)
        caller = self._permissions.identity.caller
        replaced = await self._watched_result(
            self._service.replace(schedule, app_name=app_name, schedule_id=schedule_id, caller=caller)
        )
        await self._record("schedule.changed", replaced)
        return replaced

    async def set_paused(self, app_name: str, schedule_id: str, *, is_paused: bool) -> Schedule:
        """Raises Forbidden, ScheduleNotFound."""
        await self._get_to_write(app_name, schedule_id)
        schedule = await self._watched_result(self._service.set_paused(app_name, schedule_id, is_paused=is_paused))
        await self._record("schedule.paused" if is_paused else "schedule.resumed", schedule)
        return schedule

    async def delete(self, app_name: str, schedule_id: str) -> None:
        """Raises Forbidden, ScheduleNotFound, ScheduleConflict."""
        schedule = await self._get_to_write(app_name, schedule_id)
        await self._watched_result(self._service.delete(app_name, schedule_id))
        await self._record("schedule.deleted", schedule)

    async def run_now(self, app_name: str, schedule_id: str, *, idempotency_key: str | None) -> Run:
        """Raises Forbidden, ScheduleNotFound, and what `RunEngine.start` does."""
        schedule = await self._get_to_write(app_name, schedule_id)
        run = await self._watched_result(self._service.run_now(app_name, schedule_id, idempotency_key=idempotency_key))
        await self._record("schedule.started", schedule, run_id=run.id)
        return run

    async def list_runs(self, app_name: str, schedule_id: str, *, limit: int) -> ListScheduleRunsResponse:
        """Raises Forbidden, ScheduleNotFound."""
        await self.get(app_name, schedule_id)
        return await self._service.list_runs(app_name, schedule_id, limit=limit)

    async def _get_to_write(self, app_name: str, schedule_id: str) -> Schedule:
        """Raises Forbidden, ScheduleNotFound."""
        schedule = await self.get(app_name, schedule_id)
        self._permissions.check("write", app_name, schedule.user_id)
        return schedule

    async def _record(self, action: AuditAction, schedule: Schedule, *, run_id: str | None = None) -> None:
        await self._permissions.record(
            action, app_name=schedule.app_name, user_id=schedule.user_id, run_id=run_id, target=schedule.id
        )

    def _check_run(self, app_name: str, schedule: Schedule) -> None:
        """Raises Forbidden unless the caller may start the runs of a schedule itself."""
        of_app = msgspec.structs.replace(schedule, app_name=app_name)
        self._check("write", (of_app.run_request(schedule.session_id or ""),), {})


class AuthorizedFeedback(Authorized[SessionFeedback]):
    """`SessionFeedback` for one caller, who is the subject of what it gives and deletes."""

    __slots__ = ()

    async def save(self, request: FeedbackRequest, *, key: SessionKey, event_id: str) -> Feedback:
        """Raises Forbidden, and what `SessionFeedback.save` does."""
        self._check("write", (key,), {})
        subject = self._subject(key)
        source: FeedbackSource = "user" if subject == key.user_id else "service"
        return await self._watched_result(
            self._service.save(request, key=key, event_id=event_id, source=source, subject=subject)
        )

    async def delete(self, *, key: SessionKey, event_id: str, name: str | None) -> None:
        """Raises Forbidden, and what `SessionFeedback.delete` does."""
        self._check("write", (key,), {})
        await self._watched_result(
            self._service.delete(key=key, event_id=event_id, subject=self._subject(key), name=name)
        )

    async def list(self, where: FeedbackFilter, *, limit: int, page_token: str | None) -> ListFeedbackResponse:
        """Feedback on sessions that the caller may see. Raises Forbidden, InvalidRequest."""
        identity = self._permissions.identity
        if where.user_id is None and not identity.acts_for(where.app_name, None):
            where.user_id = identity.subject
        self._permissions.check("read", where.app_name, where.user_id)
        return await self._service.list(where, limit=limit, page_token=page_token)

    def _subject(self, key: SessionKey) -> str:
        identity = self._permissions.identity
        return key.user_id if identity.caller is None else identity.subject


class AuthorizedTraces(Authorized[TraceStore]):
    """`TraceStore` for one caller: traces that it may not see are reported as not found.

    Without an app_name, as in the paths of ADK's first servers, an unlimited caller reads traces of all apps; other
    callers read those of their own runs, or of the apps that they are limited to.
    """

    __slots__ = ()

    forget = _writing(TraceStore.forget)

    async def of_session(self, session_id: str, *, app_name: str | None) -> list[SpanRecord]:
        spans: list[SpanRecord] = []
        for app, user in self._owners(app_name):
            spans += await self._service.of_session(session_id, app_name=app, user_id=user)
        return spans

    async def of_event(self, event_id: str, *, app_name: str | None) -> SpanRecord | None:
        for app, user in self._owners(app_name):
            span = await self._service.of_event(event_id, app_name=app, user_id=user)
            if span is not None:
                return span
        return None

    def _owners(self, app_name: str | None) -> list[tuple[str | None, str | None]]:
        """Apps and users to look up; None: any. Raises Forbidden."""
        identity = self._permissions.identity
        if app_name is not None:
            user_id = None if identity.acts_for(app_name, None) else identity.subject
            self._permissions.check("read", app_name, user_id)
            return [(app_name, user_id)]
        if identity.is_unlimited:
            return [(None, None)]
        if identity.apps is None:
            return [(None, identity.subject)]
        return [owner for app in sorted(identity.apps) for owner in self._owners(app)]


class AuthorizedApps:
    """`AppLoader` for one caller. Apps that the caller may not access are not listed, and are refused before any
    lookup.
    """

    __slots__ = ("_apps", "_identity")

    def __init__(self, apps: AppLoader, identity: Identity) -> None:
        self._apps = apps
        self._identity = identity

    async def list_apps(self, *, max_age_seconds: float = 0.0) -> list[str]:
        """Lists the apps that the caller may access. Names in memory are used if they are at most `max_age_seconds`
        old.
        """
        names = await self._apps.list_apps_async(max_age_seconds=max_age_seconds)
        return [name for name in names if self._identity.reaches(name)]

    async def load(self, app_name: str) -> App:
        self._identity.check_app(app_name)
        try:
            return await self._apps.load_async(app_name)
        except AppNotFound as error:
            raise AppNotFound(app_name, [name for name in error.known if self._identity.reaches(name)]) from None

    async def check_exists(self, app_name: str) -> None:
        """Raises Forbidden, AppNotFound."""
        self._identity.check_app(app_name)
        if not await self._apps.has_app(app_name):
            raise AppNotFound(app_name, await self.list_apps(max_age_seconds=1.0))

    def problems(self) -> Mapping[str, AppLoadError]:
        return {name: error for name, error in self._apps.problems().items() if self._identity.reaches(name)}

    def language(self, app_name: str) -> str:
        self._identity.check_app(app_name)
        return self._apps.language(app_name)

    def folder(self, app_name: str) -> Path | None:
        self._identity.check_app(app_name)
        return self._apps.folder(app_name)

    def files(self, app_name: str) -> AgentFiles:
        """Raises NotOffered where apps have no folders to edit."""
        from greenroom.apps.agent_files import AgentFiles  # imports yaml

        self._identity.check_app(app_name)
        return AgentFiles(self._apps, app_name)

    async def readme(self, app_name: str) -> str | None:
        self._identity.check_app(app_name)
        return await asyncio.to_thread(self._apps.readme, app_name)
