"""A session begins: its id, whose it is, and a log that it may bring along."""

from __future__ import annotations

import time

import pytest

from greenroom.errors import SessionExists
from greenroom.records.base import JsonObject
from greenroom.sessions.service import BaseSessionService
from greenroom.testing.contracts.session_service.given import OWNER as _OWNER
from greenroom.testing.contracts.session_service.given import an_event as _event
from greenroom.testing.contracts.session_service.given import appended as _appended
from greenroom.testing.contracts.session_service.given import ids as _ids
from greenroom.testing.contracts.session_service.given import loaded as _loaded
from greenroom.testing.contracts.session_service.given import opened as _opened

_ODD_IDS = [
    "a/b",
    'it\'s "quoted"',
    "sm\u00f8rrebr\u00f8d \U0001f95e",
    "%41?x=#",
    "x" * 10_000,
    "' OR 1=1 --",
    "a\x00b",
    "..",
    "a\u2028b",
]


async def test_a_new_session_has_state_and_no_events(session_service: BaseSessionService) -> None:
    before = time.time()
    session = await _opened(session_service, state={"mood": "good"})
    assert (session.app_name, session.user_id, session.id) == ("concierge", "ann", "s-1")
    assert session.state == {"mood": "good"}
    assert list(session.events) == []
    assert before - 1 <= session.last_update_time <= time.time() + 1
    again = await _loaded(session_service)
    assert (again.state, list(again.events), again.last_update_time) == ({"mood": "good"}, [], session.last_update_time)


@pytest.mark.parametrize("given", [None, "", " \t\n"])
async def test_a_blank_id_is_replaced_by_a_new_one(session_service: BaseSessionService, given: str | None) -> None:
    first = await session_service.create_session(**_OWNER, session_id=given)
    second = await session_service.create_session(**_OWNER, session_id=given)
    assert first.id.strip() == first.id != ""
    assert first.id != second.id


async def test_an_id_is_trimmed(session_service: BaseSessionService) -> None:
    assert (await _opened(session_service, "  s-1 ")).id == "s-1"
    assert (await _loaded(session_service, "s-1")).id == "s-1"


async def test_an_id_that_is_taken_is_refused(session_service: BaseSessionService) -> None:
    await _opened(session_service, state={"mood": "good"})
    with pytest.raises(SessionExists) as caught:
        await _opened(session_service, " s-1", state={"mood": "bad", "user:name": "Bob"})
    assert (caught.value.app_name, caught.value.user_id, caught.value.session_id) == ("concierge", "ann", "s-1")
    assert (await _loaded(session_service)).state == {"mood": "good"}


async def test_users_and_apps_have_their_own_sessions(session_service: BaseSessionService) -> None:
    await _opened(session_service, state={"mood": "good"})
    await session_service.create_session(app_name="concierge", user_id="bob", session_id="s-1", state={"mood": "bad"})
    await session_service.create_session(app_name="porter", user_id="ann", session_id="s-1")
    assert (await _loaded(session_service)).state == {"mood": "good"}
    other = await session_service.get_session(app_name="porter", user_id="ann", session_id="s-1")
    assert other is not None
    assert other.state == {}
    assert await session_service.get_session(app_name="porter", user_id="bob", session_id="s-1") is None


async def test_a_session_that_is_not_there_is_none(session_service: BaseSessionService) -> None:
    assert await session_service.get_session(**_OWNER, session_id="nope") is None


@pytest.mark.parametrize("session_id", _ODD_IDS, ids=range(len(_ODD_IDS)))
async def test_ids_may_hold_any_characters(session_service: BaseSessionService, session_id: str) -> None:
    owner: JsonObject = {"app_name": session_id, "user_id": session_id}
    session = await session_service.create_session(**owner, session_id=session_id, state={f"user:{session_id}": 1})
    await session_service.append(session, _event())
    again = await session_service.get_session(**owner, session_id=session_id)
    assert again is not None
    assert (again.app_name, again.user_id, again.id) == (session_id, session_id, session_id)
    assert again.state == {f"user:{session_id}": 1}
    (listed,) = (await session_service.list_sessions(**owner)).sessions
    assert listed.id == session_id
    await session_service.delete_session(**owner, session_id=session_id)
    assert await session_service.get_session(**owner, session_id=session_id) is None


async def test_a_log_is_brought_along(session_service: BaseSessionService) -> None:
    events = [
        _event("one", at=100.0, delta={"a": 1, "user:b": [2], "app:c": 3, "temp:d": 4}),
        _event("two", at=200.0, delta={"a": None, "e": {"f": 5}}),
    ]
    session = await session_service.create_session(
        **_OWNER, session_id="s-1", state={"a": 0, "user:b": 0, "g": 1}, events=events
    )
    expected: JsonObject = {"user:b": [2], "app:c": 3, "e": {"f": 5}, "g": 1}
    assert (_ids(session), session.state, session.last_update_time) == ([one.id for one in events], expected, 200.0)
    again = await _loaded(session_service)
    assert (_ids(again), again.state, again.last_update_time) == (_ids(session), expected, 200.0)
    page = await session_service.list_events(**_OWNER, session_id="s-1", after=1)
    assert (page.events[0].id, page.last_seq) == (events[1].id, 2)
    other = await _opened(session_service, "s-2")
    assert other.state == {"user:b": [2], "app:c": 3}
    assert await _appended(session_service, session, _event("three", at=300.0)) == [3]


async def test_an_event_that_comes_twice_is_brought_along_once(session_service: BaseSessionService) -> None:
    event = _event("one")
    session = await session_service.create_session(**_OWNER, session_id="s-1", events=[event, event])
    assert _ids(session) == [event.id]


async def test_a_log_is_brought_along_whole_or_not_at_all(session_service: BaseSessionService) -> None:
    events = [_event("one", delta={"user:a": 1}), _event("two", delta={"b": 2})]
    unfit = _event("three")
    unfit.actions.state_delta = {"b": object()}  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises((TypeError, NotImplementedError)):
        await session_service.create_session(**_OWNER, session_id="s-1", events=[*events, unfit])
    assert await session_service.get_session(**_OWNER, session_id="s-1") is None
    assert (await _opened(session_service)).state == {}
    # A session of this id is there: nothing of the log is added to it.
    with pytest.raises(SessionExists):
        await session_service.create_session(**_OWNER, session_id="s-1", events=events)
    session = await _loaded(session_service)
    assert (_ids(session), session.state) == ([], {})
