"""What somebody holds is a copy: changes to it reach neither the store nor others."""

from __future__ import annotations

from greenroom.sessions.service import BaseSessionService
from greenroom.testing.contracts.session_service.given import OWNER as _OWNER
from greenroom.testing.contracts.session_service.given import an_event as _event
from greenroom.testing.contracts.session_service.given import loaded as _loaded
from greenroom.testing.contracts.session_service.given import opened as _opened


async def test_what_a_holder_does_to_its_copy_stays_there(session_service: BaseSessionService) -> None:
    session = await _opened(session_service, state={"list": [1], "user:map": {"a": {"b": 1}}})
    await session_service.append(session, _event())
    mine = await _loaded(session_service)
    mine.state["list"].append(2)
    mine.state["user:map"]["a"]["b"] = 2
    mine.state["new"] = 1
    mine.events.append(_event("private"))
    del mine.events[0]
    session.state["list"].append(3)
    again = await _loaded(session_service)
    assert again.state == {"list": [1], "user:map": {"a": {"b": 1}}}
    assert len(again.events) == 1
    (listed,) = (await session_service.list_sessions(**_OWNER)).sessions
    listed.state["list"].append(4)
    assert (await _loaded(session_service)).state["list"] == [1]


async def test_a_value_changed_after_the_append_is_not_stored(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    value = [1]
    event = _event(delta={"list": value})
    await session_service.append(session, event)
    value.append(2)
    again = await _loaded(session_service)
    assert again.state == {"list": [1]}
    assert again.events[0].actions.state_delta == {"list": [1]}


async def test_a_private_event_of_a_holder_does_not_reach_others(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    await session_service.append(session, _event("one"))
    holder = await _loaded(session_service)
    holder.events.append(_event("private"))
    await session_service.append(session, _event("two"))
    texts = [event.content.text() for event in (await _loaded(session_service)).events if event.content]
    assert texts == ["one", "two"]
