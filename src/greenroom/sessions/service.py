"""The contract of a session store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias

from greenroom.errors import NotFound, NotOffered, SessionNotFound
from greenroom.records.base import JsonObject
from greenroom.records.event import Event
from greenroom.records.identifiers import new_session_id
from greenroom.records.session import (
    GetSessionConfig,
    ListEventsResponse,
    ListSessionsResponse,
    Session,
    SessionFilter,
    SessionKey,
)
from greenroom.records.state import USER_PREFIX
from greenroom.sessions.adk_methods import with_imported_log, with_pages, with_partial_logs
from greenroom.sessions.arguments import check_limit
from greenroom.sessions.caller_session import append_own, is_partial
from greenroom.sessions.prepared_event import prepare

if TYPE_CHECKING:
    from greenroom.usage.store import UsageStore


class StoredEvent(NamedTuple):
    """An event that was appended, or was in the log already."""

    seq: int
    """The event's sequence number in its session's log."""

    json: bytes | None
    """The event as the store encoded it; None when the store keeps no JSON."""


SessionCapability: TypeAlias = Literal["forks", "past states", "search by text", "several events in one step"]


_ADK_METHODS = {
    "create_session": with_imported_log,
    "get_session": with_partial_logs,
    "list_sessions": with_pages,
}
_BEYOND_ADK: frozenset[SessionCapability] = frozenset(
    ("forks", "past states", "search by text", "several events in one step")
)


class BaseSessionService(ABC):
    """Keeps sessions, their logs and their state.

    A stored event is never changed. Sequence numbers (`seq`) in a log count from 1 without gaps. State is kept in three
    scopes: of the app (`app:`), of the user in the app (`user:`), of the session; `temp:` keys are never stored.
    The value `REMOVED` in a delta removes its key. All operations are atomic, and raise StorageError when the store
    fails.

    Methods that are not abstract have a default, which raises NotOffered if only the store itself can implement it. A
    store without `append` was written for ADK: it is called with the parameters that ADK's methods have, and stores
    events in `append_event`, which updates the given session by calling this class's.
    """

    not_offered: ClassVar[frozenset[SessionCapability]] = frozenset()
    """Capabilities that the store lacks: calls that need them raise NotOffered."""

    is_remote: ClassVar[bool] = False
    """True for a service that others run, which keeps sessions only."""

    server_database: str | None = None
    """The SQLite file in which a server keeps runs, credentials and traces, and usage of a remote service; None: they
    are kept in memory, or in the PostgreSQL database of the sessions."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.append is not BaseSessionService.append:
            return
        if "not_offered" not in vars(cls):
            cls.not_offered = _BEYOND_ADK
        for name, with_all_parameters in _ADK_METHODS.items():
            if name in vars(cls):
                setattr(cls, name, with_all_parameters(vars(cls)[name]))

    def new_key(self, key_of: Callable[[str], SessionKey]) -> SessionKey:
        """The key of a session that is to be created with a new random id, of those that this process runs.

        key_of: makes the key with an id.
        """
        return key_of(new_session_id())

    def key_or_new(self, app_name: str, user_id: str, session_id: str | None) -> SessionKey:
        """The key with the trimmed id; with a new one if it is blank."""
        given = (session_id or "").strip()
        if given:
            return SessionKey(app_name, user_id, given)
        return self.new_key(lambda new_id: SessionKey(app_name, user_id, new_id))

    @cached_property
    def usage(self) -> UsageStore:
        """Usage of models by the runs in these sessions. In memory, unless the service keeps it with the sessions."""
        from greenroom.usage.in_memory import InMemoryUsageStore  # with sqlite3

        return InMemoryUsageStore()

    @abstractmethod
    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: JsonObject | None = None,
        session_id: str | None = None,
        events: Sequence[Event] = (),
    ) -> Session:
        """Opens a session. The id is trimmed; without one, or with a blank one, an id is generated.

        events: complete events, an exported log, stored with their deltas as `append` does, in one transaction. Raises
        SessionExists.
        """

    @abstractmethod
    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """The session, its own copy; None when there is none. Takes constant time for a session in use."""

    @abstractmethod
    async def list_sessions(
        self,
        *,
        app_name: str,
        user_id: str | None = None,
        where: SessionFilter | None = None,
        limit: int | None = None,
        page_token: str | None = None,
    ) -> ListSessionsResponse:
        """Sessions with state and without events.

        All of them come as ADK lists them: oldest update first; ties by user, then id. limit: the size of a page,
        newest update first, in the reverse of that order; `next_page_token` then names the next page.
        """

    async def list_events(
        self, *, app_name: str, user_id: str, session_id: str, after: int = 0, limit: int | None = None
    ) -> ListEventsResponse:
        """The events after sequence number `after`. Raises SessionNotFound."""
        check_limit(limit)
        session = await self._existing(SessionKey(app_name, user_id, session_id))
        first = max(after, 0)
        end = None if limit is None else first + limit
        return ListEventsResponse(events=session.events[first:end], last_seq=len(session.events))

    async def list_apps(self) -> list[str]:
        """The apps that have sessions, sorted."""
        raise NotOffered(f"{type(self).__name__} can't list its apps")

    async def seq_of_event(self, *, app_name: str, user_id: str, session_id: str, event_id: str) -> int:
        """The sequence number of an event in a session's log. Raises SessionNotFound, NotFound."""
        session = await self._existing(SessionKey(app_name, user_id, session_id))
        for seq, event in enumerate(session.events, 1):
            if event.id == event_id:
                return seq
        raise NotFound(f"Event not found: {event_id!r} in session {session_id!r}")

    async def fork_session(
        self, *, app_name: str, user_id: str, session_id: str, seq: int | None = None, new_session_id: str | None = None
    ) -> Session:
        """Creates a session of the same user that continues the log of another one after its event `seq`.

        Both share the events up to `seq` (default: all; 0: none), which takes neither time nor space; the new session
        has its own copy of the session's state as it was after that event. Neither sees what the other does later, also
        its deletion. The time of the new session's last update is now. Returned without its events.
        Raises SessionNotFound, SessionExists, and InvalidRequest for a `seq` that the log doesn't have.
        """
        raise NotOffered(f"{type(self).__name__} can't fork sessions")

    @abstractmethod
    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Removes a session and its log; the state of app and user stays. Does nothing if the session doesn't exist.

        Events that forks of it have, too, are kept for these, until the last of them is deleted.
        """

    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        """Removes all sessions of a user in an app, with their logs, and the user's state. App state stays."""
        raise NotOffered(f"{type(self).__name__} can't delete a user's sessions and state together")

    async def append(self, session: Session, *events: Event) -> list[StoredEvent]:
        """Stores complete events and their state deltas in this order, in one transaction.

        `session` is brought up to date: the events, their deltas, and whatever others appended meanwhile. `temp:` keys
        of a delta reach `session.state` and are taken out of the event. An event whose id is already in the log is not
        stored again; its sequence number is returned. Raises SessionNotFound.

        By default each event is passed to `append_event`, which may raise after some of them.
        """
        stored: list[StoredEvent] = []
        for event in events:
            await self.append_event(session, event)
            if not session.events or session.events[-1].id != event.id:
                append_own(session, prepare([event]))  # a store that has not called `append_event` of this class
            seq = len(session.events)
            if is_partial(session):
                seq = await self.seq_of_event(**session.key._asdict(), event_id=event.id)
            stored.append(StoredEvent(seq, None))
        return stored

    async def append_event(self, session: Session, event: Event) -> Event:
        """ADK's form of `append`: a partial event is returned as it is.

        In a store written for ADK, it only updates the given session: its events, and its state by the event's delta.
        """
        if event.partial:
            return event
        if type(self).append is BaseSessionService.append:
            append_own(session, prepare([event]))
        else:
            await self.append(session, event)
        return event

    async def get_user_state(self, *, app_name: str, user_id: str) -> JsonObject:
        """The user's state (`user:` keys, without the prefix) as the newest of the user's sessions shows it."""
        newest = (await self.list_sessions(app_name=app_name, user_id=user_id, limit=1)).sessions
        state = newest[0].state if newest else {}
        return {key.removeprefix(USER_PREFIX): value for key, value in state.items() if key.startswith(USER_PREFIX)}

    async def flush(self) -> None:
        """Returns when all that was appended is stored; nothing to wait for where `append` returns only then."""

    async def _existing(self, key: SessionKey) -> Session:
        session = await self.get_session(**key._asdict())
        if session is None:
            raise SessionNotFound(*key)
        return session

    async def close_session(self, session: Session) -> None:
        """Releases the service's memory for a session that is no longer in use.

        The session stays stored and can be read and appended to as before. Does nothing for a session that isn't
        stored, and in services without a cache.
        """

    async def close(self) -> None:
        """Finishes writing, and closes files and connections."""
