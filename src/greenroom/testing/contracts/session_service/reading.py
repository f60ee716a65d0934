"""A log is read in part: the newest events, those since a time, a stretch."""

from __future__ import annotations

import pytest

from greenroom.errors import InvalidRequest, SessionNotFound
from greenroom.records.session import GetSessionConfig
from greenroom.sessions.service import BaseSessionService
from greenroom.testing.contracts.session_service.given import OWNER as _OWNER
from greenroom.testing.contracts.session_service.given import an_event as _event
from greenroom.testing.contracts.session_service.given import appended as _appended
from greenroom.testing.contracts.session_service.given import loaded as _loaded
from greenroom.testing.contracts.session_service.given import opened as _opened


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
    assert await _appended(session_service, part, _event("mine", delta={"a": 1, "temp:b": 2})) == [6]
    assert len(part.events) == recent + 1
    assert part.state == {"a": 1, "temp:b": 2}
    assert len((await _loaded(session_service)).events) == 6


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
