"""What every session store must do.

Star-import these tests into a test file that has a fixture `session_service`: a new, empty store for each test. Needs
pytest with pytest-asyncio in auto mode.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from greenroom.errors import InvalidRequest, SessionExists, SessionNotFound
from greenroom.records.base import JsonObject
from greenroom.records.content import Blob, Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event, EventActions
from greenroom.records.session import GetSessionConfig, Session
from greenroom.sessions.service import BaseSessionService

_OWNER: JsonObject = {"app_name": "concierge", "user_id": "ann"}
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


def _event(text: str = "hello", *, at: float | None = None, delta: JsonObject | None = None) -> Event:
    event = Event(author="ann", content=Content(role="user", parts=[Part(text=text)]))
    if at is not None:
        event.timestamp = at
    event.actions.state_delta = delta or {}
    return event


async def _opened(service: BaseSessionService, session_id: str = "s-1", state: JsonObject | None = None) -> Session:
    return await service.create_session(**_OWNER, session_id=session_id, state=state)


async def _loaded(
    service: BaseSessionService, session_id: str = "s-1", config: GetSessionConfig | None = None
) -> Session:
    session = await service.get_session(**_OWNER, session_id=session_id, config=config)
    assert session is not None
    return session


def _ids(session: Session) -> list[str]:
    return [event.id for event in session.events]


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


async def test_append_tells_the_place_from_one_on(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    events = [_event(str(number)) for number in range(3)]
    assert [await session_service.append(session, event) for event in events] == [1, 2, 3]
    assert _ids(session) == [event.id for event in events]
    assert _ids(await _loaded(session_service)) == _ids(session)


async def test_the_last_update_is_the_time_of_the_last_event(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    await session_service.append(session, _event(at=1234.5))
    assert session.last_update_time == 1234.5
    assert (await _loaded(session_service)).last_update_time == 1234.5
    (listed,) = (await session_service.list_sessions(**_OWNER)).sessions
    assert listed.last_update_time == 1234.5


async def test_an_event_comes_back_as_it_was(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    event = Event(
        author="agent",
        invocation_id="e-1",
        timestamp=1234.25,
        content=Content(
            role="model",
            parts=[
                Part(text="line\u2028paragraph\u2029next\u0085nul\x00 \U0001f600 \u202e"),
                Part(inline_data=Blob(data=bytes(range(256)), mime_type="application/octet-stream")),
                Part(function_call=FunctionCall(id="c-1", name="f", args={"x": [1, None, {"y": "\u2028"}]})),
                Part(function_response=FunctionResponse(id="c-1", name="f", response={"result": None})),
                Part(text="", thought=True, thought_signature=b"\x00\xff"),
            ],
        ),
        actions=EventActions(artifact_delta={"a.txt": 0}, agent_state={"step": 1}, escalate=True),
        long_running_tool_ids=["c-1"],
        custom_metadata={"k": "v"},
        branch="a.b",
    )
    await session_service.append(session, event)
    assert list((await _loaded(session_service)).events) == [event]
    stretch = await session_service.list_events(**_OWNER, session_id="s-1")
    assert stretch.events == [event]


async def test_a_partial_event_is_returned_and_not_stored(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    event = _event(delta={"mood": "good"})
    event.partial = True
    assert await session_service.append_event(session, event) is event
    assert (_ids(session), session.state) == ([], {})
    again = await _loaded(session_service)
    assert (_ids(again), again.state) == ([], {})


async def test_an_event_is_stored_once(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    event = _event("first", delta={"count": 1})
    assert await session_service.append(session, event) == 1
    assert await session_service.append(session, _event("second", delta={"count": 2})) == 2
    assert await session_service.append(session, event) == 1
    assert len(session.events) == 2
    stale = await _loaded(session_service)
    assert (len(stale.events), stale.state) == (2, {"count": 2})


async def test_an_event_appended_twice_at_once_is_stored_once(session_service: BaseSessionService) -> None:
    session, other = await _opened(session_service), await _loaded(session_service)
    event = _event()
    places = await asyncio.gather(*(session_service.append(holder, event) for holder in (session, other, session)))
    assert places == [1, 1, 1]
    for holder in (session, other, await _loaded(session_service)):
        assert _ids(holder) == [event.id]


async def test_a_stale_holder_is_brought_up_to_date(session_service: BaseSessionService) -> None:
    stale = await _opened(session_service)
    held = stale.state
    other = await _loaded(session_service)
    await session_service.append(other, _event("theirs", delta={"theirs": [1], "both": "theirs"}))
    assert await session_service.append(stale, _event("ours", delta={"ours": 1, "both": "ours"})) == 2
    assert _ids(stale) == _ids(await _loaded(session_service))
    assert stale.state is held
    assert stale.state == {"theirs": [1], "ours": 1, "both": "ours"}
    assert len(other.events) == 1


async def test_a_stale_holder_that_repeats_an_event_gets_the_others(session_service: BaseSessionService) -> None:
    stale = await _opened(session_service)
    event = _event()
    await session_service.append(await _loaded(session_service), event)
    await session_service.append(await _loaded(session_service), _event(delta={"theirs": 1}))
    assert await session_service.append(stale, event) == 1
    assert len(stale.events) == 2
    assert stale.state == {"theirs": 1}


async def test_concurrent_appends_keep_the_order_of_the_calls(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    events = [_event(str(number), delta={"last": number}) for number in range(200)]
    places = await asyncio.gather(*(session_service.append(session, event) for event in events))
    assert places == list(range(1, 201))
    again = await _loaded(session_service)
    assert _ids(again) == _ids(session) == [event.id for event in events]
    assert again.state == session.state == {"last": 199}


async def test_concurrent_appends_of_many_sessions_do_not_mix(session_service: BaseSessionService) -> None:
    sessions = [await _opened(session_service, f"s-{number}") for number in range(20)]
    await asyncio.gather(
        *(
            session_service.append(session, _event(f"{session.id}/{number}", delta={f"{number}": session.id}))
            for number in range(10)
            for session in sessions
        )
    )
    for session in sessions:
        again = await _loaded(session_service, session.id)
        texts = [event.content.text() for event in again.events if event.content]
        assert texts == [f"{session.id}/{number}" for number in range(10)]
        assert again.state == session.state == {f"{number}": session.id for number in range(10)}


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


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (None, [1, 2, 3, 4, 5]),
        (GetSessionConfig(), [1, 2, 3, 4, 5]),
        (GetSessionConfig(num_recent_events=0), []),
        (GetSessionConfig(num_recent_events=2), [4, 5]),
        (GetSessionConfig(num_recent_events=9), [1, 2, 3, 4, 5]),
        (GetSessionConfig(after_timestamp=3.0), [3, 4, 5]),
        (GetSessionConfig(after_timestamp=3.5), [4, 5]),
        (GetSessionConfig(after_timestamp=0), [1, 2, 3, 4, 5]),
        (GetSessionConfig(after_timestamp=9.0), []),
        (GetSessionConfig(num_recent_events=4, after_timestamp=4.0), [4, 5]),
        (GetSessionConfig(num_recent_events=1, after_timestamp=1.0), [5]),
    ],
    ids=str,
)
async def test_events_are_filtered_by_number_and_time(
    session_service: BaseSessionService, config: GetSessionConfig | None, expected: list[int]
) -> None:
    session = await _opened(session_service)
    for number in range(1, 6):
        await session_service.append(session, _event(at=float(number), delta={"last": number}))
    loaded = await _loaded(session_service, config=config)
    assert [event.timestamp for event in loaded.events] == expected
    assert (loaded.state, loaded.last_update_time) == ({"last": 5}, 5.0)


async def test_the_newest_are_taken_before_the_time_is_looked_at(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    for at in (5.0, 1.0, 4.0):
        await session_service.append(session, _event(at=at))
    loaded = await _loaded(session_service, config=GetSessionConfig(num_recent_events=2, after_timestamp=2.0))
    assert [event.timestamp for event in loaded.events] == [4.0]


async def test_a_negative_number_of_events_is_refused(session_service: BaseSessionService) -> None:
    await _opened(session_service)
    with pytest.raises(InvalidRequest):
        await _loaded(session_service, config=GetSessionConfig(num_recent_events=-1))


@pytest.mark.parametrize("recent", [0, 2])
async def test_a_filtered_holder_gets_only_what_it_appends(session_service: BaseSessionService, recent: int) -> None:
    session = await _opened(session_service)
    for number in range(5):
        await session_service.append(session, _event(str(number)))
    part = await _loaded(session_service, config=GetSessionConfig(num_recent_events=recent))
    assert await session_service.append(part, _event("mine", delta={"a": 1, "temp:b": 2})) == 6
    assert len(part.events) == recent + 1
    assert part.state == {"a": 1, "temp:b": 2}
    assert len((await _loaded(session_service)).events) == 6


async def test_sessions_are_listed_oldest_update_first(session_service: BaseSessionService) -> None:
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
async def test_pages_hold_every_session_once(
    session_service: BaseSessionService, user_id: str | None, limit: int
) -> None:
    for number in range(7):
        session = await _opened(session_service, f"s-{number}")
        await session_service.append(session, _event(at=float(number // 2)))
    seen: list[str] = []
    token: str | None = None
    for _ in range(10):
        page = await session_service.list_sessions(app_name="concierge", user_id=user_id, limit=limit, page_token=token)
        assert len(page.sessions) <= limit
        seen += [session.id for session in page.sessions]
        token = page.next_page_token
        if token is None:
            break
    assert seen == [f"s-{number}" for number in range(7)]


async def test_a_page_token_that_is_not_ours_is_refused(session_service: BaseSessionService) -> None:
    for token in ("nonsense", "\u00e9", "W10"):
        with pytest.raises(InvalidRequest):
            await session_service.list_sessions(**_OWNER, page_token=token)


async def test_a_stretch_of_the_log_is_listed(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    events = [_event(str(number)) for number in range(5)]
    for event in events:
        await session_service.append(session, event)
    for after, limit in ((0, None), (2, None), (2, 2), (4, 9), (5, None), (9, 1), (0, 1)):
        stretch = await session_service.list_events(**_OWNER, session_id="s-1", after=after, limit=limit)
        end = None if limit is None else after + limit
        assert stretch.events == events[after:end]
        assert stretch.last_seq == 5


async def test_the_log_of_a_session_that_is_not_there_is_not_found(session_service: BaseSessionService) -> None:
    with pytest.raises(SessionNotFound):
        await session_service.list_events(**_OWNER, session_id="nope")
    await _opened(session_service)
    empty = await session_service.list_events(**_OWNER, session_id="s-1")
    assert (empty.events, empty.last_seq) == ([], 0)


async def test_deleting_removes_the_session_and_its_log(session_service: BaseSessionService) -> None:
    session = await _opened(session_service, state={"mood": "good", "user:name": "Ann", "app:motto": "be kind"})
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
    assert await session_service.append(again, _event()) == 1


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


async def test_an_append_whose_awaiter_is_cancelled_leaves_the_log_whole(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    tasks = [asyncio.create_task(session_service.append(session, _event(str(n)))) for n in range(10)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    last = await session_service.append(session, _event("last"))
    again = await _loaded(session_service)
    assert last == len(again.events) >= 6
    assert _ids(session) == _ids(again)


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
    assert await session_service.append(session, _event("three", at=300.0)) == 3


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
