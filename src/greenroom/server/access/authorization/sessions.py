"""Sessions, limited to the caller's permissions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from greenroom.records.base import JsonObject
from greenroom.records.event import Event
from greenroom.records.session import Session, SessionKey
from greenroom.redaction.rules import Redaction
from greenroom.server.access.authorization.authorized import Authorized, reading, writing
from greenroom.server.access.authorization.permissions import Permissions
from greenroom.sessions.service import BaseSessionService


class AuthorizedSessions(Authorized[BaseSessionService]):
    __slots__ = ("_redaction_of",)

    def __init__(
        self,
        service: BaseSessionService,
        permissions: Permissions,
        redaction_of: Callable[[str], Awaitable[Redaction | None]],
    ) -> None:
        """redaction_of: `RunEngine.redaction_of`."""
        super().__init__(service, permissions)
        self._redaction_of = redaction_of

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: JsonObject | None = None,
        session_id: str | None = None,
        events: Sequence[Event] = (),
    ) -> Session:
        """`BaseSessionService.create_session`, with the state and the events as the app's rules let them be stored."""
        owner = {"app_name": app_name, "user_id": user_id}
        self._check("write", (), {**owner, "state": state, "events": events})
        redaction = await self._redaction_of(app_name) if state or events else None
        if redaction is not None:
            state = await redaction.redact_state(state) if state else state
            for event in events:
                await redaction.redact_event(event)

        session = await self._watched_result(
            self._service.create_session(**owner, state=state, session_id=session_id, events=events)
        )
        await self._permissions.record("session.created", **owner, session_id=session.id)
        return session

    get_session = reading(BaseSessionService.get_session)
    list_sessions = reading(BaseSessionService.list_sessions)
    list_events = reading(BaseSessionService.list_events)
    seq_of_event = reading(BaseSessionService.seq_of_event)
    fork_session = writing(BaseSessionService.fork_session, "session.forked")
    delete_session = writing(BaseSessionService.delete_session, "session.deleted")
    append = writing(BaseSessionService.append, "session.changed")

    def new_key(self, key_of: Callable[[str], SessionKey]) -> SessionKey:
        """The key of a session that is to be created with a new random id, of those that this server runs."""
        return self._service.new_key(key_of)

    def as_service(self) -> BaseSessionService:
        """Returns this object as a `BaseSessionService` for lower layers, which know nothing of callers. They can only
        call the methods above.
        """
        return cast("BaseSessionService", self)
