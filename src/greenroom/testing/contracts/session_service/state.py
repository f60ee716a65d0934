"""State: its scopes, and what an event changes in it."""

from __future__ import annotations

import pytest

from greenroom.records.base import JsonObject
from greenroom.sessions.service import BaseSessionService
from greenroom.testing.contracts.session_service.given import an_event as _event
from greenroom.testing.contracts.session_service.given import loaded as _loaded
from greenroom.testing.contracts.session_service.given import opened as _opened


async def test_state_is_shared_by_its_scope(session_service: BaseSessionService) -> None:
    state = {"app:motto": "be kind", "user:name": "Ann", "mood": "good", "temp:trace": 1}
    session = await _opened(session_service, state=state)
    assert session.state == {"app:motto": "be kind", "user:name": "Ann", "mood": "good"}
    assert (await _opened(session_service, "s-2")).state == {"app:motto": "be kind", "user:name": "Ann"}
    bob = await session_service.create_session(app_name="concierge", user_id="bob", session_id="s-1")
    assert bob.state == {"app:motto": "be kind"}
    await session_service.append(bob, _event(delta={"app:motto": "be quick", "user:name": "Bob"}))
    assert (await _loaded(session_service)).state == {"app:motto": "be quick", "user:name": "Ann", "mood": "good"}
    other_app = await session_service.create_session(app_name="porter", user_id="ann")
    assert other_app.state == {}


async def test_a_delta_changes_its_keys_only(session_service: BaseSessionService) -> None:
    session = await _opened(session_service, state={"a": 1, "b": {"deep": [1]}, "user:c": 3})
    await session_service.append(session, _event(delta={"a": 2, "d": "new", "app:e": True}))
    expected = {"a": 2, "b": {"deep": [1]}, "user:c": 3, "d": "new", "app:e": True}
    assert session.state == expected
    assert (await _loaded(session_service)).state == expected


async def test_a_null_removes_its_key(session_service: BaseSessionService) -> None:
    session = await _opened(session_service, state={"a": 1, "none": None, "user:b": 2, "app:c": 3})
    assert session.state == {"a": 1, "user:b": 2, "app:c": 3}
    delta: JsonObject = {"a": None, "user:b": None, "app:c": None, "absent": None}
    await session_service.append(session, _event(delta=dict(delta)))
    assert session.state == {}
    again = await _loaded(session_service)
    assert again.state == {}
    assert again.events[0].actions.state_delta == delta


async def test_temp_keys_reach_the_holder_and_are_not_stored(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    held = session.state
    event = _event(delta={"temp:step": 3, "mood": "good"})
    await session_service.append(session, event)
    assert session.state is held
    assert session.state == {"temp:step": 3, "mood": "good"}
    assert event.actions.state_delta == {"mood": "good"}
    again = await _loaded(session_service)
    assert again.state == {"mood": "good"}
    assert again.events[0].actions.state_delta == {"mood": "good"}


@pytest.mark.parametrize("value", ["", "text\u2028\x00\u0085", 0, -1.5, True, [], {}, [1, {"a": [None]}], 2**53])
async def test_state_values_come_back_as_they_were(session_service: BaseSessionService, value: object) -> None:
    session = await _opened(session_service, state={"created": value})
    await session_service.append(session, _event(delta={"appended": value}))
    assert (await _loaded(session_service)).state == {"created": value, "appended": value}
