"""Events are appended: each once, in order, and whole."""

from __future__ import annotations

import asyncio

import pytest

from greenroom.records import wire
from greenroom.records.content import Blob, Content, FunctionCall, FunctionResponse, FunctionResponsePart, Part
from greenroom.records.event import Event, EventActions
from greenroom.sessions.service import BaseSessionService
from greenroom.testing.contracts.capabilities import requires
from greenroom.testing.contracts.session_service.creating import (
    _OWNER,
    _appended,
    _event,
    _ids,
    _loaded,
    _opened,
    _said,
)


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
    again = await _loaded(session_service)
    assert list(again.events) == [event]
    (listed,) = (await session_service.list_sessions(**_OWNER)).sessions
    assert [holder.last_update_time for holder in (session, again, listed)] == [event.timestamp] * 3
    page = await session_service.list_events(**_OWNER, session_id="s-1")
    assert page.events == [event]


async def test_large_inline_data_comes_back_as_it_was(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    large = bytes(range(256)) * 400
    other = b"x" * 70_000
    for text in ("one", "two"):
        event = _event(text)
        assert event.content is not None
        response = FunctionResponse(
            id="c-1", name="f", parts=[FunctionResponsePart(inline_data=Blob(data=other, mime_type="image/png"))]
        )
        event.content.parts = [
            Part(inline_data=Blob(data=b"", mime_type="text/plain")),
            Part(inline_data=Blob(data=large, mime_type="image/png", display_name="a.png")),
            Part(text=text * 40_000),
            Part(function_response=response),
            Part(inline_data=Blob(data=large, mime_type="image/jpeg")),
        ]
        await session_service.append(session, event)

    assert list((await _loaded(session_service)).events) == list(session.events)

    if "forks" in session_service.not_offered:
        return

    await session_service.fork_session(**_OWNER, session_id="s-1", seq=1, new_session_id="f-1")
    await session_service.delete_session(**_OWNER, session_id="s-1")
    fork = await _loaded(session_service, "f-1")
    assert list(fork.events) == list(session.events)[:1]
    page = await session_service.list_events(**_OWNER, session_id="f-1")
    assert page.events == list(fork.events)


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
    assert await _appended(session_service, session, event) == [1]
    assert await _appended(session_service, session, _event("second", delta={"count": 2})) == [2]
    assert await _appended(session_service, session, event) == [1]
    assert len(session.events) == 2
    stale = await _loaded(session_service)
    assert (len(stale.events), stale.state) == (2, {"count": 2})


@requires("several events in one step")
async def test_events_appended_in_one_call_are_stored_together(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    events = [
        _event("one", delta={"a": 1, "user:b": 2, "temp:c": 3}),
        _event("two", delta={"a": 4}),
        _event("three"),
    ]
    assert await _appended(session_service, session, *events) == [1, 2, 3]
    assert _ids(session) == [event.id for event in events]
    assert session.state == {"a": 4, "user:b": 2, "temp:c": 3}
    again = await _loaded(session_service)
    assert (list(again.events), again.state) == (events, {"a": 4, "user:b": 2})
    assert await _appended(session_service, session, events[2], _event("four"), events[0]) == [3, 4, 1]
    assert _ids(session) == _ids(await _loaded(session_service))


async def test_of_events_appended_in_one_call_all_or_none_are_stored(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    events = [_event("one", delta={"a": 1, "temp:b": 2}), _event("two", delta={"c": [object()]})]
    with pytest.raises((TypeError, NotImplementedError)):
        await session_service.append(session, *events)
    assert events[0].actions.state_delta == {"a": 1, "temp:b": 2}
    for holder in (session, await _loaded(session_service)):
        assert (_ids(holder), holder.state) == ([], {})


@requires("several events in one step")
async def test_several_events_reach_a_stale_holder_after_those_of_others(session_service: BaseSessionService) -> None:
    stale = await _opened(session_service)
    first = _event("first", delta={"first": 1})
    await session_service.append(stale, first)
    await session_service.append(
        await _loaded(session_service),
        _event("theirs", delta={"theirs": 1}),
    )
    assert await _appended(session_service, stale, first) == [1]
    assert stale.state == {"first": 1, "theirs": 1}
    await session_service.append(
        await _loaded(session_service),
        _event("later", delta={"theirs": 2}),
    )
    assert await _appended(session_service, stale, _event("x", delta={"x": 1}), _event("y", delta={"y": 2})) == [4, 5]
    assert _ids(stale) == _ids(await _loaded(session_service))
    assert stale.state == {"first": 1, "theirs": 2, "x": 1, "y": 2}


async def test_the_returned_json_is_the_stored_event(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    event = _event("\u2028", delta={"a": [1], "temp:b": 2})
    [stored] = await session_service.append(session, event)
    assert stored.json in (None, wire.encode(event))


async def test_an_event_appended_twice_at_once_is_stored_once(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    other = await _loaded(session_service)
    event = _event()
    seqs = await asyncio.gather(*(_appended(session_service, holder, event) for holder in (session, other, session)))
    assert seqs == [[1], [1], [1]]
    for holder in (session, other, await _loaded(session_service)):
        assert _ids(holder) == [event.id]


async def test_a_stale_holder_is_brought_up_to_date(session_service: BaseSessionService) -> None:
    stale = await _opened(session_service)
    held = stale.state
    other = await _loaded(session_service)
    await session_service.append(other, _event("theirs", delta={"theirs": [1], "both": "theirs"}))
    assert await _appended(session_service, stale, _event("ours", delta={"ours": 1, "both": "ours"})) == [2]
    assert _ids(stale) == _ids(await _loaded(session_service))
    assert stale.state is held
    assert stale.state == {"theirs": [1], "ours": 1, "both": "ours"}
    assert len(other.events) == 1


async def test_concurrent_appends_keep_the_order_of_the_calls(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    events = [_event(str(number), delta={"last": number}) for number in range(200)]
    seqs = await asyncio.gather(*(_appended(session_service, session, event) for event in events))
    assert seqs == [[seq] for seq in range(1, 201)]
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
        assert _said(again) == [f"{session.id}/{number}" for number in range(10)]
        assert again.state == session.state == {f"{number}": session.id for number in range(10)}


async def test_an_append_whose_awaiter_is_cancelled_leaves_the_log_whole(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    tasks = [asyncio.create_task(session_service.append(session, _event(str(n)))) for n in range(10)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()

    await asyncio.gather(*tasks, return_exceptions=True)
    [last] = await _appended(session_service, session, _event("last"))
    again = await _loaded(session_service)
    assert last == len(again.events) >= 6
    assert _ids(session) == _ids(again)
