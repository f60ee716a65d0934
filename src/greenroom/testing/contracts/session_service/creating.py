"""Creating, listing and deleting sessions."""

from __future__ import annotations

import time
from functools import partial

import pytest

from greenroom.errors import InvalidRequest, SessionExists, SessionNotFound
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.session import GetSessionConfig, Session
from greenroom.records.state import REMOVED
from greenroom.sessions.service import BaseSessionService
from greenroom.testing.contracts.capabilities import requires
from greenroom.testing.contracts.paging import pages

_OWNER: JsonObject = {"app_name": "concierge", "user_id": "ann"}


def _event(
    text: str = "hello",
    *,
    at: float | None = None,
    delta: JsonObject | None = None,
) -> Event:
    event = Event(author="ann", content=Content(role="user", parts=[Part(text=text)]))
    if at is not None:
        event.timestamp = at
    event.actions.state_delta = delta or {}
    return event


async def _opened(
    service: BaseSessionService,
    session_id: str = "s-1",
    state: JsonObject | None = None,
) -> Session:
    return await service.create_session(**_OWNER, session_id=session_id, state=state)


async def _loaded(
    service: BaseSessionService, session_id: str = "s-1", config: GetSessionConfig | None = None
) -> Session:
    session = await service.get_session(**_OWNER, session_id=session_id, config=config)
    assert session is not None
    return session


def _ids(session: Session) -> list[str]:
    return [event.id for event in session.events]


def _said(session: Session) -> list[str]:  # pyright: ignore[reportUnusedFunction]
    return [event.content.text() for event in session.events if event.content]


async def _appended(service: BaseSessionService, session: Session, *events: Event) -> list[int]:
    return [stored.seq for stored in await service.append(session, *events)]


_ODD_IDS = [
    "a/b", 'it\'s "quoted"', "sm\u00f8rrebr\u00f8d \U0001f95e", "%41?x=#", "x" * 10_000, "' OR 1=1 --", "..",
    "a\u2028b",
]  # fmt: skip


async def test_a_new_session_has_state_and_no_events(session_service: BaseSessionService) -> None:
    before = time.time()
    session = await _opened(session_service, state={"mood": "good"})
    assert (session.app_name, session.user_id, session.id) == ("concierge", "ann", "s-1")
    assert session.state == {"mood": "good"}
    assert list(session.events) == []
    assert before - 1 <= session.last_update_time <= time.time() + 1
    again = await _loaded(session_service)
    assert (again.state, list(again.events), again.last_update_time) == ({"mood": "good"}, [], session.last_update_time)
    page = await session_service.list_events(**_OWNER, session_id="s-1")
    assert (page.events, page.last_seq) == ([], 0)


@pytest.mark.parametrize("blank_id", [None, "", " \t\n"])
async def test_a_blank_id_is_replaced_by_a_new_one(
    session_service: BaseSessionService,
    blank_id: str | None,
) -> None:
    first = await session_service.create_session(**_OWNER, session_id=blank_id)
    second = await session_service.create_session(**_OWNER, session_id=blank_id)
    assert first.id.strip() == first.id != ""
    assert first.id != second.id


async def test_an_id_is_trimmed_and_refused_if_it_is_taken(session_service: BaseSessionService) -> None:
    assert (await _opened(session_service, "  s-1 ", state={"mood": "good"})).id == "s-1"
    with pytest.raises(SessionExists) as caught:
        await _opened(session_service, " s-1", state={"mood": "bad", "user:name": "Bob"})
    assert (caught.value.app_name, caught.value.user_id, caught.value.session_id) == ("concierge", "ann", "s-1")
    assert (await _loaded(session_service)).state == {"mood": "good"}


async def test_users_and_apps_have_their_own_sessions(session_service: BaseSessionService) -> None:
    await _opened(session_service, state={"mood": "good"})
    await session_service.create_session(
        app_name="concierge",
        user_id="bob",
        session_id="s-1",
        state={"mood": "bad"},
    )
    await session_service.create_session(app_name="porter", user_id="ann", session_id="s-1")
    assert (await _loaded(session_service)).state == {"mood": "good"}
    other = await session_service.get_session(app_name="porter", user_id="ann", session_id="s-1")
    assert other is not None
    assert other.state == {}
    assert await session_service.get_session(app_name="porter", user_id="bob", session_id="s-1") is None


@pytest.mark.parametrize("session_id", _ODD_IDS, ids=range(len(_ODD_IDS)))
async def test_ids_may_hold_any_characters(
    session_service: BaseSessionService,
    session_id: str,
) -> None:
    owner: JsonObject = {"app_name": session_id, "user_id": session_id}
    session = await session_service.create_session(
        **owner,
        session_id=session_id,
        state={f"user:{session_id}": 1},
    )
    await session_service.append(session, _event())
    again = await session_service.get_session(**owner, session_id=session_id)
    assert again is not None
    assert (again.app_name, again.user_id, again.id) == (session_id, session_id, session_id)
    assert again.state == {f"user:{session_id}": 1}
    (listed,) = (await session_service.list_sessions(**owner)).sessions
    assert listed.id == session_id
    await session_service.delete_session(**owner, session_id=session_id)
    assert await session_service.get_session(**owner, session_id=session_id) is None


async def test_an_id_with_nul_is_stored_or_refused(session_service: BaseSessionService) -> None:
    try:
        await session_service.create_session(**_OWNER, session_id="a\x00b")
    except InvalidRequest:
        assert (await session_service.list_sessions(**_OWNER)).sessions == []
    else:
        assert (await _loaded(session_service, "a\x00b")).id == "a\x00b"


@requires("several events in one step")
async def test_a_log_is_brought_along(session_service: BaseSessionService) -> None:
    events = [
        _event("one", at=100.0, delta={"a": 1, "user:b": [2], "app:c": 3, "temp:d": 4}),
        _event("two", at=200.0, delta={"a": REMOVED, "e": {"f": 5}}),
    ]
    session = await session_service.create_session(
        **_OWNER, session_id="s-1", state={"a": 0, "user:b": 0, "g": 1}, events=[*events, events[0]]
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


@requires("several events in one step")
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


async def test_deleting_removes_the_session_and_its_log(session_service: BaseSessionService) -> None:
    session = await _opened(
        session_service,
        state={"mood": "good", "user:name": "Ann", "app:motto": "be kind"},
    )
    await _opened(session_service, "s-2")
    await session_service.append(session, _event())
    await session_service.delete_session(**_OWNER, session_id="s-1")
    assert await session_service.get_session(**_OWNER, session_id="s-1") is None
    assert [one.id for one in (await session_service.list_sessions(**_OWNER)).sessions] == ["s-2"]
    with pytest.raises(SessionNotFound):
        await session_service.list_events(**_OWNER, session_id="s-1")

    again = await _opened(session_service)
    assert again.state == {"user:name": "Ann", "app:motto": "be kind"}
    assert list((await _loaded(session_service)).events) == []
    assert await _appended(session_service, again, _event()) == [1]


async def test_deleting_what_is_not_there_does_nothing(session_service: BaseSessionService) -> None:
    await _opened(session_service)
    await session_service.delete_session(**_OWNER, session_id="nope")
    await session_service.delete_session(app_name="porter", user_id="ann", session_id="s-1")
    assert (await _loaded(session_service)).id == "s-1"


async def test_appending_to_a_deleted_session_is_refused(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    await session_service.append(session, _event())
    await session_service.delete_session(**_OWNER, session_id="s-1")
    event = _event(delta={"mood": "good", "app:motto": "x", "temp:a": 1})
    with pytest.raises(SessionNotFound) as caught:
        await session_service.append(session, event)

    assert caught.value.session_id == "s-1"
    assert (len(session.events), session.state) == (1, {})
    assert event.actions.state_delta == {"mood": "good", "app:motto": "x", "temp:a": 1}
    assert (await _opened(session_service)).state == {}


async def test_all_sessions_are_listed_oldest_update_first(session_service: BaseSessionService) -> None:
    for user, session_id, at in (("bob", "b", 30.0), ("ann", "z", 20.0), ("ann", "a", 20.0), ("cy", "c", 10.0)):
        session = await session_service.create_session(
            app_name="concierge", user_id=user, session_id=session_id, state={"user:name": user, "own": session_id}
        )
        await session_service.append(session, _event(at=at, delta={"app:last": user}))

    every = await session_service.list_sessions(app_name="concierge")
    assert [(one.user_id, one.id) for one in every.sessions] == [("cy", "c"), ("ann", "a"), ("ann", "z"), ("bob", "b")]
    assert every.next_page_token is None
    assert [list(one.events) for one in every.sessions] == [[], [], [], []]
    assert every.sessions[1].state == {"user:name": "ann", "own": "a", "app:last": "cy"}
    ann = await session_service.list_sessions(**_OWNER)
    assert [one.id for one in ann.sessions] == ["a", "z"]
    assert (await session_service.list_sessions(app_name="porter")).sessions == []


@pytest.mark.parametrize("user_id", [None, "ann"])
@pytest.mark.parametrize("limit", [1, 3, 7, 8])
async def test_pages_hold_every_session_once_newest_update_first(
    session_service: BaseSessionService, user_id: str | None, limit: int
) -> None:
    for number in range(7):
        session = await _opened(session_service, f"s-{number}")
        await session_service.append(session, _event(at=float(number // 2)))

    listing = partial(
        session_service.list_sessions,
        app_name="concierge",
        user_id=user_id,
        limit=limit,
    )
    read = await pages(lambda token: listing(page_token=token))
    assert all(len(page.sessions) <= limit for page in read)
    assert [one.id for page in read for one in page.sessions] == [f"s-{number}" for number in reversed(range(7))]


async def test_a_page_token_that_is_not_ours_is_refused(session_service: BaseSessionService) -> None:
    for token in ("nonsense", "\u00e9", "W10"):
        with pytest.raises(InvalidRequest):
            await session_service.list_sessions(**_OWNER, page_token=token)


async def test_a_closed_session_stays_stored_and_can_be_used_again(session_service: BaseSessionService) -> None:
    session = await _opened(session_service, state={"mood": "good", "user:name": "Ann"})
    await session_service.append(session, _event("one", delta={"step": 1}))
    await session_service.close_session(session)
    again = await _loaded(session_service)
    assert _said(again) == ["one"]
    assert again.state == {"mood": "good", "user:name": "Ann", "step": 1}

    await session_service.close_session(again)
    assert await _appended(session_service, session, _event("two", delta={"step": 2})) == [2]
    assert await _appended(session_service, again, _event("three")) == [3]
    assert _said(session) == ["one", "two"]
    assert _said(again) == _said(await _loaded(session_service)) == ["one", "two", "three"]


async def test_closing_a_session_that_is_not_stored_does_nothing(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    await session_service.delete_session(**_OWNER, session_id="s-1")
    await session_service.close_session(session)
    await session_service.close_session(Session(id="never", app_name="concierge", user_id="ann"))
    assert await session_service.get_session(**_OWNER, session_id="s-1") is None
