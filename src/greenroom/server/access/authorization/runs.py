"""Runs, limited to the caller's permissions."""

from __future__ import annotations

import contextlib
from http import HTTPStatus
from typing import Any

from greenroom.errors import (
    AppNotFound,
    Forbidden,
    GreenroomError,
    OwnershipLost,
    RunNotFound,
    SignalRepeated,
)
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.replica import ReplicaStatus
from greenroom.records.retention import RetentionPreview
from greenroom.records.run import (
    AgentRunRequest,
    ListRunsResponse,
    RefusedRetry,
    RetryRunsResponse,
    Run,
    RunConfig,
    RunFilter,
)
from greenroom.records.session import SessionKey
from greenroom.records.wake_up import SentSignal
from greenroom.runs.engine import Attachment, RunEngine
from greenroom.runs.signals import check_receives
from greenroom.runs.watch import RunWatch
from greenroom.server.access.authorization.authorized import Authorized, reading, writing
from greenroom.server.signal_urls import SignalTicket

_decode_run = wire.decoder(Run)
_decode_problem = wire.decoder(JsonObject)


class AuthorizedRuns(Authorized[RunEngine]):
    """`RunEngine` for one caller, whose identity is stored with the runs that it starts."""

    __slots__ = ()

    attach_to_session = reading(RunEngine.attach_to_session)
    append = writing(RunEngine.append, "session.changed")
    delete_session = writing(RunEngine.delete_session, "session.deleted")
    rewind = writing(RunEngine.rewind, "session.rewound")

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
        await self._permissions.record("run.cancelled", **names_of(run))
        return run

    async def signal(self, run_id: str, signal: SentSignal) -> Run:
        """A signal that the run has received before has no effect. Raises RunNotFound, also for another user's run, and
        NotWaiting, SignalsFull.
        """
        run = await self.get(run_id)
        self._permissions.check("write", run.app_name, run.user_id)
        with contextlib.suppress(SignalRepeated):
            run = await self._watched_result(self._service.signal(run_id, signal))
            await self._permissions.record("run.signaled", **names_of(run), target=signal.name)
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
        await self._permissions.record("run.signaled", **names_of(run), target=signal.name)
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

    async def preview_expiry(self, app_name: str) -> RetentionPreview:
        """For callers that act for all users of the app. Raises Forbidden, AppNotFound, AppLoadError."""
        self._permissions.check("read", app_name, None)
        return await self._service.preview_expiry(app_name)

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

    def _naming_own_apps(self, error: AppNotFound) -> AppNotFound:
        """The error with only the apps that the caller may access."""
        apps = self._identity.apps
        return error if apps is None else AppNotFound(error.app_name, sorted(apps - {error.app_name}))


def names_of(run: Run) -> dict[str, Any]:
    return {"app_name": run.app_name, "user_id": run.user_id, "session_id": run.session_id, "run_id": run.id}
