"""What the tests begin with. Imported under private names, so that a star import takes the tests only."""

from __future__ import annotations

from greenroom.records.base import JsonObject
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.session import GetSessionConfig, Session
from greenroom.sessions.service import BaseSessionService

OWNER: JsonObject = {"app_name": "concierge", "user_id": "ann"}


def an_event(text: str = "hello", *, at: float | None = None, delta: JsonObject | None = None) -> Event:
    event = Event(author="ann", content=Content(role="user", parts=[Part(text=text)]))
    if at is not None:
        event.timestamp = at
    event.actions.state_delta = delta or {}
    return event


async def opened(service: BaseSessionService, session_id: str = "s-1", state: JsonObject | None = None) -> Session:
    return await service.create_session(**OWNER, session_id=session_id, state=state)


async def loaded(
    service: BaseSessionService, session_id: str = "s-1", config: GetSessionConfig | None = None
) -> Session:
    session = await service.get_session(**OWNER, session_id=session_id, config=config)
    assert session is not None
    return session


def ids(session: Session) -> list[str]:
    return [event.id for event in session.events]


async def appended(service: BaseSessionService, session: Session, *events: Event) -> list[int]:
    return [stored.seq for stored in await service.append(session, *events)]
