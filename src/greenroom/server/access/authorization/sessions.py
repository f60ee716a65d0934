"""Sessions, limited to the caller's permissions."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from greenroom.records.session import SessionKey
from greenroom.server.access.authorization.authorized import Authorized, reading, writing
from greenroom.sessions.service import BaseSessionService


class AuthorizedSessions(Authorized[BaseSessionService]):
    __slots__ = ()

    create_session = writing(BaseSessionService.create_session, "session.created")
    get_session = reading(BaseSessionService.get_session)
    list_sessions = reading(BaseSessionService.list_sessions)
    list_events = reading(BaseSessionService.list_events)
    seq_of_event = reading(BaseSessionService.seq_of_event)
    fork_session = writing(BaseSessionService.fork_session, "session.forked")
    delete_session = writing(BaseSessionService.delete_session, "session.deleted")
    delete_user = writing(BaseSessionService.delete_user)
    append = writing(BaseSessionService.append, "session.changed")

    def new_key(self, key_of: Callable[[str], SessionKey]) -> SessionKey:
        """The key of a session that is to be created with a new random id, of those that this server runs."""
        return self._service.new_key(key_of)

    def as_service(self) -> BaseSessionService:
        """Returns this object as a `BaseSessionService` for lower layers, which know nothing of callers. They can only
        call the methods above.
        """
        return cast("BaseSessionService", self)
