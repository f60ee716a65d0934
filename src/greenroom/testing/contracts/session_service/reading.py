"""Reads of a session: its events, its state by scope, and copies for each reader."""

from __future__ import annotations

import pytest

from greenroom.errors import InvalidRequest
from greenroom.records.base import JsonObject
from greenroom.records.session import GetSessionConfig
from greenroom.records.state import REMOVED
from greenroom.sessions.service import BaseSessionService
from greenroom.testing.contracts.session_service.creating import _OWNER, _appended, _event, _loaded, _opened, _said


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

    loaded = await _loaded(
        session_service,
        config=GetSessionConfig(num_recent_events=2, after_timestamp=2.0),
    )
    assert [event.timestamp for event in loaded.events] == [4.0]


@pytest.mark.parametrize("config", [GetSessionConfig(num_recent_events=-1), GetSessionConfig(until_seq=-1)], ids=str)
async def test_negative_numbers_are_refused(
    session_service: BaseSessionService,
    config: GetSessionConfig,
) -> None:
    await _opened(session_service)
    with pytest.raises(InvalidRequest):
        await _loaded(session_service, config=config)


@pytest.mark.parametrize("recent", [0, 2])
async def test_a_filtered_holder_gets_only_what_it_appends(
    session_service: BaseSessionService,
    recent: int,
) -> None:
    session = await _opened(session_service)
    for number in range(5):
        await session_service.append(session, _event(str(number)))

    part = await _loaded(session_service, config=GetSessionConfig(num_recent_events=recent))
    assert await _appended(session_service, part, _event("mine", delta={"a": 1, "temp:b": 2})) == [6]
    assert len(part.events) == recent + 1
    assert part.state == {"a": 1, "temp:b": 2}
    assert len((await _loaded(session_service)).events) == 6


async def test_a_page_of_the_log_is_listed(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    events = [_event(str(number)) for number in range(5)]
    for event in events:
        await session_service.append(session, event)

    for after, limit in ((0, None), (2, None), (2, 2), (4, 9), (5, None), (9, 1), (0, 1)):
        page = await session_service.list_events(
            **_OWNER,
            session_id="s-1",
            after=after,
            limit=limit,
        )
        end = None if limit is None else after + limit
        assert page.events == events[after:end]
        assert page.last_seq == 5


async def test_what_a_holder_does_to_its_copy_stays_there(session_service: BaseSessionService) -> None:
    session = await _opened(session_service, state={"list": [1], "user:map": {"a": {"b": 1}}})
    await session_service.append(session, _event())
    own_copy = await _loaded(session_service)
    own_copy.state["list"].append(2)
    own_copy.state["user:map"]["a"]["b"] = 2
    own_copy.state["new"] = 1
    own_copy.events.append(_event("private"))
    del own_copy.events[0]
    session.state["list"].append(3)
    await session_service.append(await _loaded(session_service), _event("two"))
    again = await _loaded(session_service)
    assert again.state == {"list": [1], "user:map": {"a": {"b": 1}}}
    assert _said(again) == ["hello", "two"]
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


async def test_the_state_of_a_user_is_read_without_a_session(session_service: BaseSessionService) -> None:
    """Row 6.1.14 of ADK."""
    for user_id, state in (("ann", {"user:home": "Oslo", "own": 1, "app:open": True}), ("bob", {"own": 2})):
        await session_service.create_session(app_name="concierge", user_id=user_id, state=state)
    await session_service.flush()
    assert await session_service.get_user_state(app_name="concierge", user_id="ann") == {"home": "Oslo"}
    assert await session_service.get_user_state(app_name="concierge", user_id="bob") == {}
    assert await session_service.get_user_state(app_name="concierge", user_id="eve") == {}


async def test_state_is_shared_by_its_scope(session_service: BaseSessionService) -> None:
    state = {"app:motto": "be kind", "user:name": "Ann", "mood": "good", "temp:trace": 1}
    session = await _opened(session_service, state=state)
    assert session.state == {"app:motto": "be kind", "user:name": "Ann", "mood": "good"}
    assert (await _opened(session_service, "s-2")).state == {"app:motto": "be kind", "user:name": "Ann"}
    bob = await session_service.create_session(
        app_name="concierge",
        user_id="bob",
        session_id="s-3",
    )
    assert bob.state == {"app:motto": "be kind"}
    await session_service.append(bob, _event(delta={"app:motto": "be quick", "user:name": "Bob"}))
    assert (await _loaded(session_service)).state == {"app:motto": "be quick", "user:name": "Ann", "mood": "good"}
    other_app = await session_service.create_session(app_name="porter", user_id="ann")
    assert other_app.state == {}


async def test_a_delta_changes_its_keys_only_and_removes_them(session_service: BaseSessionService) -> None:
    kept_state: JsonObject = {"b": {"deep": [1]}, "user:k": 3}
    state = {**kept_state, "a": 1, "user:b": 2, "app:c": 3, "changed": 1}
    session = await _opened(session_service, state={**state, "none": REMOVED})
    assert session.state == state
    new: JsonObject = {"changed": 2, "d": "new", "app:e": True}
    delta: JsonObject = {**new, **dict.fromkeys(("a", "user:b", "app:c", "absent"), REMOVED)}
    await session_service.append(session, _event(delta=dict(delta)))
    again = await _loaded(session_service)
    assert session.state == again.state == {**kept_state, **new}
    assert again.events[0].actions.state_delta == delta


async def test_a_null_is_a_value(session_service: BaseSessionService) -> None:
    session = await _opened(
        session_service,
        state={"a": 1, "created": None, "user:b": 2, "app:c": None},
    )
    delta: JsonObject = {"a": None, "user:b": None, "new": None}
    await session_service.append(session, _event(delta=dict(delta)))
    again = await _loaded(session_service)
    assert session.state == again.state == dict.fromkeys(("a", "created", "user:b", "app:c", "new"))
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
async def test_state_values_come_back_as_they_were(
    session_service: BaseSessionService,
    value: object,
) -> None:
    session = await _opened(session_service, state={"created": value})
    await session_service.append(session, _event(delta={"appended": value}))
    assert (await _loaded(session_service)).state == {"created": value, "appended": value}
