"""The contract between the cache of sessions and their backend: a database, or a hosted service."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from greenroom.records import wire
from greenroom.records.event import Event
from greenroom.records.session import GetSessionConfig, SessionFilter, SessionKey
from greenroom.records.state import ScopedDelta
from greenroom.sessions.cached_session import CachedSession
from greenroom.sessions.prepared_event import PreparedEvent

TRUSTED_SECONDS = 0.05
"""Time for which a cached session counts as current before a check for writes of other processes."""

Stored: TypeAlias = list[tuple[int, bool]]
"""Of each event the sequence number, and whether it is new in the log."""


class Created(NamedTuple):
    session: CachedSession
    """Without its events. `epoch` and `checked_at` are those of its creation."""

    stored: Stored
    """Of the events with which it was created."""


class SessionPage(NamedTuple):
    sessions: Sequence[CachedSession]
    """Without their logs."""

    next_page_token: str | None
    """None on the last page."""


class LogPage(NamedTuple):
    events: list[Event]

    last_seq: int
    """The sequence number of the log's last event, also when that is on a later page."""


class SessionBackend(Protocol):
    """Reads and writes sessions where they are stored; keeps none in memory.

    `CachedSessionService` makes a session store of it: it checks arguments, prepares events, caches sessions, and
    brings the sessions that callers hold up to date.

    Each write is atomic, and is completed also when its awaiter is cancelled. Appends of this process to one session
    are stored in the order of the calls. after_commit: called with the result of each commit, in the order of the
    commits, before the method returns; it may be called in another thread. Each read sees one snapshot of a session.
    All methods raise StorageError if the store fails, and NotOffered for unsupported operations.
    """

    epoch: int = 0
    """Counts the writes of other processes that were noticed, where the database's driver notices them."""

    @abstractmethod
    def create(
        self,
        key: SessionKey,
        now: float,
        delta: ScopedDelta,
        prepared: Sequence[PreparedEvent],
        after_commit: Callable[[Created], None],
    ) -> Awaitable[Created]:
        """Writes a session, its first state with that of its user and app, and its first events.

        Raises SessionExists.
        """

    @abstractmethod
    async def fork(self, key: SessionKey, new_key: SessionKey, seq: int | None, now: float) -> CachedSession:
        """Writes a session that shares the events of another one up to `seq`, None: all. Returns it without its log.

        Raises SessionNotFound, SessionExists, and InvalidRequest for a `seq` that the log doesn't have.
        """

    @abstractmethod
    def append(
        self, key: SessionKey, prepared: Sequence[PreparedEvent], after_commit: Callable[[Stored], None]
    ) -> Awaitable[Stored]:
        """Writes events to the log, their deltas to the states, and the session's time of the last update.

        An event whose id is in the log is not written again. Raises SessionNotFound.
        """

    @abstractmethod
    def delete(self, key: SessionKey, after_commit: Callable[[], None]) -> Awaitable[None]:
        """Deletes a session with its own state and the events that no fork shares; nothing when it isn't there."""

    @abstractmethod
    async def delete_user(
        self, app_name: str, user_id: str, after_commit: Callable[[Sequence[SessionKey]], None]
    ) -> None:
        """Deletes a user's sessions and state, in one or several transactions.

        after_commit: called for each, with the sessions that it deleted.
        """

    @abstractmethod
    async def read(
        self, key: SessionKey, *, known_number: int = 0, known_events: int = 0, from_compaction: bool = False
    ) -> CachedSession | None:
        """Reads a session with its state and its log, which the caller may keep and append to; None if there is none.

        known_number, known_events: if the session still has this number, its log is read without that many events from
        the start. from_compaction: a backend may leave out the events that a run doesn't need since the newest
        compaction.
        """

    @abstractmethod
    async def read_part(self, key: SessionKey, config: GetSessionConfig) -> CachedSession | None:
        """Reads a session with the requested part of its log, and its state after the last event of that part's log:
        that of `config.until_seq`, else the newest."""

    @abstractmethod
    async def read_events(self, key: SessionKey, after: int, limit: int | None) -> LogPage | None:
        """Reads at most `limit` events after a sequence number; None if there is no such session."""

    @abstractmethod
    async def read_later(self, key: SessionKey, last_id: str | None, known: int) -> list[Event] | None:
        """Reads the events after sequence number `known`, if that belongs to the event `last_id`, or is zero."""

    @abstractmethod
    async def find_event(self, key: SessionKey, event_id: str) -> int | None:
        """Reads the sequence number of an event. Raises SessionNotFound."""

    @abstractmethod
    async def list_sessions(
        self, app_name: str, user_id: str | None, where: SessionFilter, limit: int | None, page_token: str | None
    ) -> SessionPage:
        """Reads sessions with their states: all, oldest update first, or a page of `limit`, newest update first."""

    @abstractmethod
    async def list_apps(self) -> list[str]:
        """Reads the names of the apps that have sessions, sorted."""

    @abstractmethod
    async def is_current(self, cached: CachedSession) -> bool:
        """False when another process has changed the session, or the state of its user or app, since it was read.

        May be True for `TRUSTED_SECONDS` after such a change.
        """


def is_trusted(cached: CachedSession, now: float) -> bool:
    """True if a session was checked just now, and this process has not written its user's or app's state since."""
    return now - cached.checked_at < TRUSTED_SECONDS and cached.app.version >= 0 and cached.user.version >= 0


def first_page(sessions: Sequence[CachedSession], limit: int | None) -> SessionPage:
    """The first `limit` of the sessions found, newest update first; more than that are the begin of the next page."""
    if limit is None or len(sessions) <= limit:
        return SessionPage(sessions, None)
    last = sessions[limit - 1]
    token = wire.write_page_token(last.update_time, last.key.user_id, last.key.session_id)
    return SessionPage(sessions[:limit], token)
