"""The sessions in which runs take place."""

from __future__ import annotations

from greenroom.errors import SessionExists, SessionNotFound
from greenroom.event_streams.stream import ReadLog
from greenroom.records.event import Event
from greenroom.records.session import Session, SessionKey
from greenroom.runs.places import RunPlaces
from greenroom.sessions.service import BaseSessionService

LOG_PAGE = 500


class RunSessions:
    """may_make: a run of a session that isn't there makes it."""

    def __init__(self, service: BaseSessionService, places: RunPlaces, *, may_make: bool) -> None:
        self._service = service
        self._places = places
        self._may_make = may_make

    async def find(self, key: SessionKey) -> Session | None:
        """None where a run may make it. Raises SessionNotFound."""
        app_name, user_id, session_id = key
        session = await self._service.get_session(app_name=app_name, user_id=user_id, session_id=session_id)
        if session is None and not self._may_make:
            raise SessionNotFound(app_name, user_id, session_id)
        return session

    async def make(self, key: SessionKey) -> Session:
        """With a place kept for its run, so that none stays empty."""
        app_name, user_id, session_id = key
        self._places.take(key)
        try:
            return await self._service.create_session(app_name=app_name, user_id=user_id, session_id=session_id)
        except SessionExists:  # another run made it
            session = await self.find(key)
            if session is None:
                raise
            return session
        finally:
            self._places.give_back(key)

    async def open(self, key: SessionKey) -> Session:
        """As it is stored, or a new one where a run may make it. Raises SessionNotFound."""
        session = await self.find(key)
        return session if session is not None else await self.make(key)

    def log_reader(self, key: SessionKey) -> ReadLog:
        async def read(after: int) -> list[Event]:
            page = await self._service.list_events(
                app_name=key.app_name, user_id=key.user_id, session_id=key.session_id, after=after, limit=LOG_PAGE
            )
            return page.events

        return read
