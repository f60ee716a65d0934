"""Forks share events and nothing else; a session can be read as it was after any event."""

from __future__ import annotations

import time

import pytest

from greenroom.errors import InvalidRequest, NotFound, SessionExists, SessionNotFound
from greenroom.records.base import JsonObject
from greenroom.records.session import GetSessionConfig, Session
from greenroom.records.state import REMOVED
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


async def _session_of_five(service: BaseSessionService) -> Session:
    session = await _opened(
        service,
        state={"mood": "good", "count": 0, "gone": [1], "user:name": "Ann"},
    )
    for number in range(1, 6):
        delta: JsonObject = {
            "count": number,
            f"k{number}": {"n": number},
            "user:last": number,
            "app:last": number,
        }
        delta |= {3: {"gone": REMOVED}, 5: {"gone": "again"}}.get(number, {})
        await service.append(session, _event(str(number), at=float(number), delta=delta))

    return session


_STATES: list[JsonObject] = [
    {"mood": "good", "count": 0, "gone": [1]},
    {"mood": "good", "count": 1, "gone": [1], "k1": {"n": 1}},
    {"mood": "good", "count": 2, "gone": [1], "k1": {"n": 1}, "k2": {"n": 2}},
    {"mood": "good", "count": 3, "k1": {"n": 1}, "k2": {"n": 2}, "k3": {"n": 3}},
    {"mood": "good", "count": 4, "k1": {"n": 1}, "k2": {"n": 2}, "k3": {"n": 3}, "k4": {"n": 4}},
    {"mood": "good", "count": 5, "gone": "again", **{f"k{n}": {"n": n} for n in range(1, 6)}},
]  # fmt: skip
_SHARED: JsonObject = {"user:name": "Ann", "user:last": 5, "app:last": 5}


async def _check_past(service: BaseSessionService, session_id: str) -> None:
    for seq in range(4):
        past = await _loaded(service, session_id, GetSessionConfig(until_seq=seq))
        assert (past.state, len(past.events)) == ({**_STATES[seq], **_SHARED}, seq)


async def _fork(
    service: BaseSessionService,
    seq: int | None,
    new_id: str = "f-1",
    of: str = "s-1",
) -> Session:
    return await service.fork_session(**_OWNER, session_id=of, seq=seq, new_session_id=new_id)


@pytest.mark.parametrize("seq", [0, 1, 2, 3, 4, 5, 9])
@requires("past states")
async def test_a_session_is_read_as_it_was_after_an_event(
    session_service: BaseSessionService,
    seq: int,
) -> None:
    session = await _session_of_five(session_service)
    past = await _loaded(session_service, config=GetSessionConfig(until_seq=seq))
    assert _ids(past) == _ids(session)[:seq]
    assert past.state == {**_STATES[min(seq, 5)], **_SHARED}
    recent = await _loaded(
        session_service,
        config=GetSessionConfig(until_seq=seq, num_recent_events=2),
    )
    assert (_ids(recent), recent.state) == (_ids(past)[-2:], past.state)


@pytest.mark.parametrize("seq", [0, 2, 3, 5, None])
@requires("forks")
async def test_a_fork_has_the_log_and_the_state_up_to_an_event(
    session_service: BaseSessionService, seq: int | None
) -> None:
    session = await _session_of_five(session_service)
    before = time.time()
    fork = await _fork(session_service, seq)
    last = 5 if seq is None else seq
    assert (fork.id, fork.app_name, fork.user_id, list(fork.events)) == ("f-1", "concierge", "ann", [])
    assert fork.state == {**_STATES[last], **_SHARED}
    assert before - 1 <= fork.last_update_time <= time.time() + 1
    loaded = await _loaded(session_service, "f-1")
    assert (_ids(loaded), loaded.state) == (_ids(session)[:last], fork.state)
    page = await session_service.list_events(**_OWNER, session_id="f-1", after=1, limit=3)
    assert ([event.id for event in page.events], page.last_seq) == (_ids(session)[:last][1:4], last)
    listed = await session_service.list_sessions(**_OWNER)
    assert sorted(one.id for one in listed.sessions) == ["f-1", "s-1"]


@requires("forks")
async def test_a_fork_and_its_parent_continue_apart(session_service: BaseSessionService) -> None:
    session = await _session_of_five(session_service)
    fork = await _fork(session_service, 3)
    assert await _appended(session_service, fork, _event("x", at=10.0, delta={"count": "x", "k1": REMOVED})) == [4]
    assert await _appended(session_service, session, _event("y", at=11.0, delta={"mood": "bad"})) == [6]
    assert fork.state["count"] == "x"
    loaded = await _loaded(session_service, "f-1")
    parent = await _loaded(session_service)
    assert _ids(loaded) == [*_ids(session)[:3], fork.events[-1].id]
    assert _ids(parent) == _ids(session)
    own: JsonObject = {"mood": "good", "count": "x", "k2": {"n": 2}, "k3": {"n": 3}}
    assert loaded.state == {**own, **_SHARED}
    assert parent.state == {**_STATES[5], "mood": "bad", **_SHARED}
    assert (loaded.last_update_time, parent.last_update_time) == (10.0, 11.0)
    window = await _loaded(
        session_service,
        "f-1",
        GetSessionConfig(num_recent_events=2, after_timestamp=3.0),
    )
    assert [event.timestamp for event in window.events] == [3.0, 10.0]
    await _check_past(session_service, "f-1")


@requires("forks")
async def test_an_inherited_event_is_not_stored_again(session_service: BaseSessionService) -> None:
    session = await _session_of_five(session_service)
    await _fork(session_service, 3)
    fork = await _loaded(session_service, "f-1")
    fourth = session.events[3]
    assert await _appended(session_service, fork, session.events[1], _event("new"), fourth) == [2, 4, 5]
    assert len((await _loaded(session_service, "f-1")).events) == 5


@requires("forks")
async def test_forks_of_forks_have_the_whole_log(session_service: BaseSessionService) -> None:
    session = await _session_of_five(session_service)
    first = await _fork(session_service, 3)
    for number in range(2):
        await session_service.append(first, _event(f"first {number}", delta={"first": number}))

    second = await _fork(session_service, 4, "f-2", of="f-1")
    await session_service.append(second, _event("second", delta={"second": 1}))
    third = await _fork(session_service, 2, "f-3", of="f-2")
    await session_service.append(third, _event("third"))
    texts = [_said(await _loaded(session_service, one)) for one in ("f-1", "f-2", "f-3")]
    assert texts == [["1", "2", "3", "first 0", "first 1"], ["1", "2", "3", "first 0", "second"], ["1", "2", "third"]]

    for seq, expected in ((2, _STATES[2]), (4, {**_STATES[3], "first": 0})):
        past = await _loaded(session_service, "f-2", GetSessionConfig(until_seq=seq))
        assert past.state == {**expected, **_SHARED}

    assert (await _loaded(session_service, "f-3")).state == {**_STATES[2], **_SHARED}
    assert await session_service.seq_of_event(**_OWNER, session_id="f-3", event_id=session.events[1].id) == 2


@requires("forks")
async def test_forks_outlive_what_they_were_forked_from(session_service: BaseSessionService) -> None:
    session = await _session_of_five(session_service)
    first = await _fork(session_service, 3)
    await session_service.append(first, _event("first", delta={"first": 1}))
    await _fork(session_service, 4, "f-2", of="f-1")
    await session_service.delete_session(**_OWNER, session_id="s-1")
    await session_service.delete_session(**_OWNER, session_id="f-1")
    assert await session_service.get_session(**_OWNER, session_id="s-1") is None
    assert [one.id for one in (await session_service.list_sessions(**_OWNER)).sessions] == ["f-2"]
    again = await _opened(session_service)
    assert (list(again.events), await _appended(session_service, again, _event("new"))) == ([], [1])
    fork = await _loaded(session_service, "f-2")
    assert _ids(fork) == [*_ids(session)[:3], first.events[-1].id]
    assert fork.state == {**_STATES[3], "first": 1, **_SHARED}
    await _check_past(session_service, "f-2")
    last = await _fork(session_service, 1, "f-3", of="f-2")
    await session_service.delete_session(**_OWNER, session_id="f-2")
    loaded = await _loaded(session_service, "f-3")
    assert (_ids(loaded), loaded.state) == (_ids(session)[:1], last.state)
    assert last.state == {**_STATES[1], **_SHARED}


@requires("forks")
async def test_a_fork_that_can_not_be_made_is_refused(session_service: BaseSessionService) -> None:
    await _session_of_five(session_service)

    for seq in (-1, 6):
        with pytest.raises(InvalidRequest):
            await _fork(session_service, seq)

    with pytest.raises(SessionExists):
        await _fork(session_service, 1, "s-1")

    with pytest.raises(SessionNotFound):
        await _fork(session_service, 1, of="nope")

    assert len((await session_service.list_sessions(**_OWNER)).sessions) == 1
    fork = await session_service.fork_session(**_OWNER, session_id="s-1")
    assert fork.id not in ("", "s-1")


async def test_an_event_is_found_by_its_id(session_service: BaseSessionService) -> None:
    session = await _session_of_five(session_service)
    assert await session_service.seq_of_event(**_OWNER, session_id="s-1", event_id=session.events[2].id) == 3
    with pytest.raises(NotFound):
        await session_service.seq_of_event(**_OWNER, session_id="s-1", event_id="nope")
    with pytest.raises(SessionNotFound):
        await session_service.seq_of_event(**_OWNER, session_id="nope", event_id="nope")
