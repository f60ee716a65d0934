"""The contract of a session store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from greenroom.records.base import JsonObject
from greenroom.records.event import Event
from greenroom.records.session import GetSessionConfig, ListEventsResponse, ListSessionsResponse, Session


class StoredEvent(NamedTuple):
    """seq: the event's sequence number in its session's log. json: the event as the store encoded it, None when the
    store keeps no JSON."""

    seq: int
    json: bytes | None


class BaseSessionService(ABC):
    """Keeps sessions, their logs and their state.

    A stored event is never changed. Sequence numbers (`seq`) in a log count from 1 without gaps. State is kept in three
    scopes: of the app (`app:`), of the user in the app (`user:`), of the session; `temp:` keys are never stored. A null
    in a delta removes its key. All operations are atomic, and raise StorageError when the store fails.
    """

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
        """Open a session. The id is trimmed; a blank one counts as none, and one is made.

        events: complete ones, an exported log, stored with their deltas as `append` does, in one transaction.
        Raises SessionExists.
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
        limit: int | None = None,
        page_token: str | None = None,
    ) -> ListSessionsResponse:
        """Sessions with state and without events, oldest update first; ties by user, then id.

        limit: at most so many, then `next_page_token` names the next page; None means all.
        """

    @abstractmethod
    async def list_events(
        self, *, app_name: str, user_id: str, session_id: str, after: int = 0, limit: int | None = None
    ) -> ListEventsResponse:
        """The events after sequence number `after`. Raises SessionNotFound."""

    @abstractmethod
    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Remove a session and its log; state of app and user stays. Does nothing when there is no such session."""

    @abstractmethod
    async def append(self, session: Session, *events: Event) -> list[StoredEvent]:
        """Stores complete events and their state deltas in this order, in one transaction.

        `session` is brought up to date: the events, their deltas, and whatever others appended meanwhile. `temp:` keys
        of a delta reach `session.state` and are taken out of the event. An event whose id is already in the log is not
        stored again; its sequence number is returned. Raises SessionNotFound.
        """

    async def append_event(self, session: Session, event: Event) -> Event:
        """ADK's form of `append`: a partial event is returned as it is."""
        if not event.partial:
            await self.append(session, event)
        return event

    async def close_session(self, session: Session) -> None:
        """Hint that the session is not needed soon. Optional."""

    async def close(self) -> None:
        """Finishes writing, and closes files and connections."""
