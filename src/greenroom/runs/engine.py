"""The contract of a run engine: it owns the runs, so they outlive the connections that started them."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Collection, Mapping
from typing import NamedTuple, Protocol

from greenroom.credentials.service import BaseCredentialService
from greenroom.event_streams.stream import LiveItem, StreamItem
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.records.event import Event
from greenroom.records.inbox import Answerer, HumanRequest, ListRequestsResponse, RequestAnswer, RequestFilter
from greenroom.records.replica import ReplicaStatus
from greenroom.records.retention import RetentionPreview
from greenroom.records.run import (
    AgentRunRequest,
    Caller,
    ListRunsResponse,
    Run,
    RunConfig,
    RunFilter,
    RunWebhook,
    Webhook,
)
from greenroom.records.session import Session, SessionKey
from greenroom.records.wake_up import SentSignal
from greenroom.redaction.rules import Redaction
from greenroom.runs.app_budgets import AppBudgets
from greenroom.runs.app_webhooks import AppWebhooks
from greenroom.runs.feedback import SessionFeedback
from greenroom.runs.ownership import Replicas
from greenroom.runs.push_notifications import PushNotifications
from greenroom.runs.schedules import Schedules
from greenroom.runs.store import RunLoad, RunStore, StoreLoad
from greenroom.runs.versions import Versions
from greenroom.runs.watch import RunWatch
from greenroom.runs.webhooks import Webhooks
from greenroom.sessions.service import BaseSessionService
from greenroom.statistics.store import StatisticsStore


class Attachment(Protocol):
    """A reader of a run, or of a whole session. It yields the events stored after its
    sequence number, live partial events, and `RunEnded` at the end of a run. Closing it doesn't stop the run."""

    async def next_batch(self, *, idle_seconds: float | None = None) -> list[LiveItem]:
        """Returns all items that are ready, in order. Empty after `idle_seconds` without one, or if it was closed."""
        ...

    def close(self) -> None: ...


class ForwardedRequest(NamedTuple):
    """A request that another server has forwarded, and that it may send again if it gets no response."""

    run_id: str
    """The id of the run that it starts, unless it continues an earlier run."""

    is_repeated: bool


class OpenCall(NamedTuple):
    """A long-running call that a time, a signal or a person answers."""

    id: str

    signal: SentSignal | None = None
    """The signal that answers it."""

    answerer: Answerer | None = None
    """The person who answers it."""


class RunEngine(ABC):
    push_notifications: PushNotifications
    """Reports the states of runs to clients of gates."""

    webhooks: Webhooks
    """Sends messages about runs to webhooks."""

    app_webhooks: AppWebhooks
    """The webhooks of apps."""

    versions: Versions
    """Published versions of apps."""

    budgets: AppBudgets
    """The budgets of apps."""

    schedules: Schedules
    """Starts runs at their times."""

    feedback: SessionFeedback
    """Feedback of users and services on events."""

    statistics: StatisticsStore | None
    """None where runs aren't counted."""

    @property
    def replicas(self) -> Replicas | None:
        """The servers that share the store, after `recover`; None if this is the only one."""
        return None

    @abstractmethod
    async def start(
        self,
        request: AgentRunRequest,
        *,
        idempotency_key: str | None = None,
        attach: bool = True,
        traceparent: str | None = None,
        caller: Caller | None = None,
        forwarded: ForwardedRequest | None = None,
        open_call: OpenCall | None = None,
    ) -> tuple[Run, Attachment | None]:
        """Starts a run, or queues it after the session's active run, depending on `multitask_strategy`.

        With `start_at` or `delay_seconds`, a later time, the run is only stored: at that time it starts as by a request
        that comes then, or fails if that is refused.

        The record is stored when this returns, so the run survives a crash. The same idempotency key returns the same
        run. The attached reader doesn't get the user's own events. traceparent: the caller's trace, as W3C has it.
        caller: as authenticated; None without authentication. A forwarded request that is repeated returns the run that
        it has started or continued. open_call: the long-running call that the message answers, if it may do so only
        while the run waits and the call is open.
        Raises AppNotFound, AppLoadError, SessionNotFound, InvalidRequest, SessionBusy, SessionFull, NotWaiting,
        IdempotencyConflict, TooManyRuns, Unavailable, all without side effects.
        """

    @abstractmethod
    async def start_live(
        self,
        key: SessionKey,
        requests: LiveRequestQueue,
        *,
        run_config: RunConfig,
        after: int | None = None,
        traceparent: str | None = None,
        caller: Caller | None = None,
    ) -> tuple[Run, Attachment]:
        """Starts a live run, or queues it; it blocks its session's other runs until `requests` is closed, or the model
        ends it.

        Closes the request queue of an earlier live run of the session. after: events of any run that are stored after
        this sequence number are read first; one past the end of the log counts as the end. A live run can't be
        resumed by another process.
        Raises AppNotFound, AppLoadError, SessionNotFound, SessionFull, TooManyRuns, Unavailable, all without
        side effects.
        """

    @abstractmethod
    async def attach(self, run_id: str, *, after: int | None = None, with_user_events: bool = True) -> Attachment:
        """Reads a run, from its first event or after a sequence number of its session's log. Raises RunNotFound."""

    @abstractmethod
    def attach_to_session(self, key: SessionKey, *, after: int) -> Attachment:
        """Reads a session's log after a sequence number, and then its live events."""

    @abstractmethod
    async def append(self, session: Session, event: Event) -> None:
        """Stores an event that belongs to no run, and publishes it to the session's readers. Raises SessionNotFound."""

    @abstractmethod
    async def cancel(self, run_id: str, *, reason: str) -> Run:
        """Stops a run and waits for its end; does nothing to a run that is over. Raises RunNotFound."""

    @abstractmethod
    async def add_webhook(self, run_id: str, webhook: Webhook) -> RunWebhook:
        """Adds a webhook to a run, in place of one with the same id. It receives the run's present status, too.

        Raises RunNotFound, InvalidRequest.
        """

    @abstractmethod
    async def delete_webhook(self, run_id: str, webhook_id: str) -> None:
        """Removes a webhook from a run, with its messages; does nothing when there is none. Raises RunNotFound."""

    @abstractmethod
    async def signal(self, run_id: str, signal: SentSignal, *, while_waiting: bool = True) -> Run:
        """Continues a run that waits for this signal, and returns its record. Another run stores the signal, and takes
        it when it waits for it; it is stored when this returns.

        while_waiting: whether a run that waits for something else stores it. Raises RunNotFound, NotWaiting for a run
        that is over, SignalRepeated, SignalsFull, and what `start` does.
        """

    @abstractmethod
    async def retry(
        self,
        run_id: str,
        *,
        fork: bool = False,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        caller: Caller | None = None,
        forwarded: ForwardedRequest | None = None,
    ) -> Run:
        """Continues a failed or cancelled run from where it ended, and returns its record when that is stored.

        What ended it stays in the log and counts no longer. Stored responses to calls stay; calls that were cut off or
        failed are made again or reported as their tools' `on_interrupt` says. fork: a new run continues it in a fork of
        its session, which is left as it is.
        Raises RunNotFound, NotRetryable, SessionBusy, SessionFull, AppNotFound, AppLoadError,
        IdempotencyConflict, NotOffered, TooManyRuns, Unavailable.
        """

    @abstractmethod
    async def rewind(self, key: SessionKey, before_run: str) -> StreamItem:
        """Takes a session back to where a run began, and returns the stored rewind.

        Waiting runs that are taken back are cancelled. Raises SessionNotFound, RunNotFound, SessionBusy, SessionFull.
        """

    @abstractmethod
    async def get_request(self, request_id: str) -> HumanRequest:
        """A request to people, open or closed. Raises RequestNotFound."""

    @abstractmethod
    async def list_requests(
        self, where: RequestFilter, *, limit: int = 100, page_token: str | None = None
    ) -> ListRequestsResponse:
        """Open requests, newest first. Raises InvalidRequest as `list_runs` does."""

    @abstractmethod
    async def answer_request(
        self, request_id: str, answer: RequestAnswer, *, answerer: Answerer
    ) -> tuple[HumanRequest, Run]:
        """Answers a request. Returns it and its run, which continues with the function response if that decides it.

        Raises RequestNotFound, RequestClosed, NotApprover, InvalidRequest, and what `start` does.
        """

    @abstractmethod
    async def delegate_request(self, request_id: str, to_user_id: str, *, answerer: Answerer) -> HumanRequest:
        """Lets another person answer in place of the one who may. Raises RequestNotFound, RequestClosed, NotApprover,
        InvalidRequest.
        """

    @abstractmethod
    async def get(self, run_id: str) -> Run:
        """Raises RunNotFound."""

    @abstractmethod
    async def list_runs(
        self, where: RunFilter, *, limit: int | None = 100, page_token: str | None = None
    ) -> ListRunsResponse:
        """Runs, newest first. Raises InvalidRequest for a limit below 1 and a page token of another list."""

    @abstractmethod
    async def watch_runs(self, where: RunFilter) -> RunWatch:
        """Changes of run records from now on, of all servers on the store. Close it in the end."""

    @abstractmethod
    async def delete_session(self, key: SessionKey) -> None:
        """Deletes a session with all that belongs to it: its log, artifacts, run records and credential requests.

        Its runs are cancelled first. State and artifacts of the app and of the user stay.
        """

    @abstractmethod
    def delete_user(self, *, app_name: str, user_id: str) -> AsyncGenerator[SessionKey]:
        """Deletes all that an app stores of a user: sessions as `delete_session` does, the user's schedules, state,
        artifacts, credentials, memories, and feedback on sessions of others. Usage becomes nobody's. Yields the key of
        each deleted session.

        Raises NotOffered if one of the stores can't, and OwnershipLost when only sessions are left that other servers
        run; then something has been deleted already.
        """

    @abstractmethod
    async def redaction_of(self, app_name: str) -> Redaction | None:
        """The rules of an app for what is stored; None for an app without rules, or that isn't served.

        Raises AppLoadError.
        """
        return None

    @abstractmethod
    def delete_expired_sessions(self) -> AsyncGenerator[SessionKey]:
        """Deletes the sessions of this process that exceeded `session_ttl_seconds` of their apps, and have no
        unfinished runs. Yields the key of each.
        """

    @abstractmethod
    async def preview_expiry(self, app_name: str) -> RetentionPreview:
        """The sessions of all servers that would be deleted now. Raises AppNotFound, AppLoadError."""

    @abstractmethod
    def load(self) -> dict[str, RunLoad]:
        """Running and queued runs of this process by app; only apps that have some."""

    @abstractmethod
    async def store_load(self) -> StoreLoad | None:
        """The unfinished runs of all servers on a database; None where this server has its store for itself.

        Raises StorageError.
        """

    @abstractmethod
    async def count_requests(self) -> Mapping[str, int]:
        """The number of open requests to people by app, of all servers on the store. Raises StorageError."""

    @abstractmethod
    async def list_replicas(self, app_names: Collection[str] | None) -> list[ReplicaStatus]:
        """The servers on the store, of which this is one. app_names: only runs of these apps count; None: of all.

        Raises StorageError.
        """

    @abstractmethod
    async def recover(self) -> int:
        """Resumes the runs that a crash interrupted; returns their number. Called once, before the first start.

        Raises StoreInUse when another server owns the runs of this store.
        """

    async def drain(self) -> bool:
        """Hands the sessions over to the other servers on the store: those without a run at once, the others when their
        runs have ended. This server takes no others.

        Returns True when it has none left, and False when no other server runs: then it keeps them.
        """
        return False

    @abstractmethod
    async def close(self, *, grace_seconds: float = 5.0) -> None:
        """Waits up to `grace_seconds` for runs to end; the next process resumes the others."""


def run_store_beside(sessions: BaseSessionService, *, address: str | None = None) -> RunStore:
    """A run store in the sessions' database, if they have one, so that runs and events are written in one order.

    address: the URL at which other servers on the database reach this one; None if it shares the database with none.
    """
    if sessions.server_database is not None:
        from greenroom.runs.sqlite_store import SqliteRunStore

        return SqliteRunStore(sessions.server_database)
    if (uri := postgres_uri_of(sessions)) is not None:
        from greenroom.runs.postgres_store import PostgresRunStore

        return PostgresRunStore(uri, address=address)
    from greenroom.runs.memory_store import InMemoryRunStore

    return InMemoryRunStore()


def credential_service_beside(sessions: BaseSessionService) -> BaseCredentialService:
    """Returns a credential store in the sessions' database, if they have one, so that pending requests survive a
    restart.
    """
    if sessions.server_database is not None:
        from greenroom.credentials.sql import SqliteCredentialService

        return SqliteCredentialService(sessions.server_database)
    if (uri := postgres_uri_of(sessions)) is not None:
        from greenroom.credentials.sql import PostgresCredentialService

        return PostgresCredentialService(uri)
    from greenroom.credentials.in_memory import InMemoryCredentialService

    return InMemoryCredentialService()


def postgres_uri_of(sessions: BaseSessionService) -> str | None:
    """The database of sessions in PostgreSQL."""
    if "greenroom.sessions.postgres" not in sys.modules:  # then `sessions` can't be its service
        return None
    from greenroom.sessions.postgres import PostgresSessionService

    return sessions.uri if isinstance(sessions, PostgresSessionService) else None
