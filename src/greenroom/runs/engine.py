"""The contract of what owns runs: a run belongs to the engine, not to the connection that asked for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol

from greenroom.credentials.service import BaseCredentialService
from greenroom.event_streams.stream import LiveItem
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.records.event import Event
from greenroom.records.run import AgentRunRequest, Caller, ListRunsResponse, Run, RunConfig, RunFilter
from greenroom.records.session import Session, SessionKey
from greenroom.runs.store import RunStore
from greenroom.sessions.service import BaseSessionService


class Attachment(Protocol):
    """A reader of a run, or of a whole session. It sees the stored events behind the place it gave, partial events as
    they come, and `RunEnded` at the end of a run. Close it when done; the run goes on."""

    async def next_batch(self, *, idle_seconds: float | None = None) -> list[LiveItem]:
        """Whatever is ready, in order; empty when nothing came for `idle_seconds`, or when it was closed."""
        ...

    def close(self) -> None: ...


class RunLoad(NamedTuple):
    """How many runs are going on now, and how many wait until the one before them in their session ends."""

    running: int
    queued: int


class RunEngine(ABC):
    @abstractmethod
    async def start(
        self,
        request: AgentRunRequest,
        *,
        idempotency_key: str | None = None,
        attach: bool = True,
        traceparent: str | None = None,
        caller: Caller | None = None,
    ) -> tuple[Run, Attachment | None]:
        """Begin a run, or put it in line behind the one going on in its session, as `multitask_strategy` says.

        The record is stored when this returns, so the run survives a crash from here on. The same idempotency key gives
        the same run. Who is attached doesn't get the user's own events. traceparent: the caller's trace, as W3C has it.
        caller: as authenticated; None without authentication.
        Raises AppNotFound, AppLoadError, SessionNotFound, InvalidRequest, SessionBusy, SessionFull,
        IdempotencyConflict, TooManyRuns, Unavailable; nothing has then happened.
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
        """Begin a live run, or put it in line; it holds up its session's other runs until `requests` is closed, or the
        model ends it.

        A live run that is going on in the session has its queue closed. after: what is stored in the session behind
        this place is read first, whichever run it is of; what is no place yet counts as the end. A live run ends with
        its process: it can't be taken up again.
        Raises AppNotFound, AppLoadError, SessionNotFound, SessionFull, TooManyRuns, Unavailable; nothing has then
        happened.
        """

    @abstractmethod
    async def attach(self, run_id: str, *, after: int | None = None, with_user_events: bool = True) -> Attachment:
        """Read a run, from its first event or from behind a place in its session's log. Raises RunNotFound."""

    @abstractmethod
    def attach_to_session(self, key: SessionKey, *, after: int) -> Attachment:
        """Read a session's log from behind a place, and then whatever happens in it."""

    @abstractmethod
    async def append(self, session: Session, event: Event) -> None:
        """Store an event that belongs to no run, and show it to whoever reads the session. Raises SessionNotFound."""

    @abstractmethod
    async def cancel(self, run_id: str, *, reason: str) -> Run:
        """Stop a run and wait until it has stopped; one that is over is left alone. Raises RunNotFound."""

    @abstractmethod
    async def get(self, run_id: str) -> Run:
        """Raises RunNotFound."""

    @abstractmethod
    async def list_runs(
        self, where: RunFilter, *, limit: int | None = 100, page_token: str | None = None
    ) -> ListRunsResponse:
        """Runs, newest first. Raises InvalidRequest for a limit below 1 and a page token of another list."""

    @abstractmethod
    async def delete_session(self, key: SessionKey) -> None:
        """Delete a session with all that belongs to it: its log, artifacts, run records and credential requests.

        Its runs are cancelled first. State and artifacts of the app and of the user stay.
        """

    @abstractmethod
    def load(self) -> dict[str, RunLoad]:
        """What this process has to do, by app; without the apps that have nothing to do."""

    @abstractmethod
    async def recover(self) -> int:
        """Resumes the runs that a crash left behind; returns how many. Called once, before the first start.

        Raises StoreInUse when another server owns the runs of this store.
        """

    @abstractmethod
    async def close(self, *, grace_seconds: float = 5.0) -> None:
        """Let runs end for a while; what is then still going on is left for the next process to take up."""


def run_store_beside(sessions: BaseSessionService) -> RunStore:
    """In the same database where there is one, so that a run and its events are written in one order."""
    from greenroom.sessions.sqlite import SqliteSessionService

    if isinstance(sessions, SqliteSessionService):
        from greenroom.runs.sqlite_store import SqliteRunStore

        return SqliteRunStore(sessions.path)
    from greenroom.runs.memory_store import InMemoryRunStore

    return InMemoryRunStore()


def credential_service_beside(sessions: BaseSessionService) -> BaseCredentialService:
    """In the same database where there is one, so that pending requests are known after a restart."""
    from greenroom.sessions.sqlite import SqliteSessionService

    if isinstance(sessions, SqliteSessionService):
        from greenroom.credentials.sqlite import SqliteCredentialService

        return SqliteCredentialService(sessions.path)
    from greenroom.credentials.in_memory import InMemoryCredentialService

    return InMemoryCredentialService()
