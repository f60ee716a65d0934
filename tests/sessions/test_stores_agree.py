"""After any operations, a store in memory and one in a file return the same."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenroom.errors import GreenroomError
from greenroom.records import wire
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.session import GetSessionConfig, Session
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.sessions.service import BaseSessionService
from greenroom.sessions.sqlite import SqliteSessionService

_users = st.sampled_from(["ann", "bob"])
_ids = st.sampled_from(["s-1", "s-2", "s-3"])
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
_deltas = st.dictionaries(st.sampled_from(["k", "j", "app:k", "user:k", "temp:k"]), _json, max_size=3)
_several = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9), _deltas), min_size=1, max_size=3)
_operations = st.lists(
    st.one_of(
        st.tuples(st.just("create"), _users, _ids, _deltas),
        st.tuples(st.just("get"), _users, _ids, st.none() | st.integers(-1, 3), st.none() | st.integers(0, 9)),
        st.tuples(st.just("append"), st.integers(0, 9), _several),
        st.tuples(st.just("append"), st.integers(0, 9), _several),
        st.tuples(st.just("delete"), _users, _ids),
        st.tuples(st.just("delete user"), _users),
        st.tuples(st.just("fork"), _users, _ids, _ids, st.none() | st.integers(-1, 4)),
        st.tuples(st.just("get as of"), _users, _ids, st.integers(0, 4)),
        st.tuples(st.just("find"), _users, _ids, st.integers(0, 30)),
        st.tuples(st.just("list"), st.none() | _users, st.none() | st.integers(1, 3)),
        st.tuples(st.just("events"), _users, _ids, st.integers(0, 4), st.none() | st.integers(1, 3)),
    ),
    max_size=25,
)


def _plain(session: Session | None) -> Any:
    if session is None:
        return None
    has_time = any(True for _ in session.events)
    return (
        session.user_id,
        session.id,
        session.state,
        wire.to_plain(session.events),
        session.last_update_time if has_time else None,
    )


async def _replay(service: BaseSessionService, operations: list[Any]) -> list[Any]:
    outcomes: list[Any] = []
    held: list[Session] = []
    for operation in operations:
        try:
            outcomes.append(await _perform(service, held, *operation))
        except GreenroomError as error:
            outcomes.append((type(error).__name__, error.detail))
        outcomes.append([_plain(session) for session in held])
    return outcomes


async def _perform(service: BaseSessionService, held: list[Session], kind: str, *given: Any) -> Any:
    if kind == "create":
        user, session_id, state = given
        held.append(await service.create_session(app_name="a", user_id=user, session_id=session_id, state=state))
        return _plain(held[-1])
    if kind == "get":
        user, session_id, recent, after = given
        config = GetSessionConfig(num_recent_events=recent, after_timestamp=after)
        session = await service.get_session(app_name="a", user_id=user, session_id=session_id, config=config)
        held.extend([session] if session else [])
        return _plain(session)
    if kind == "fork":
        user, session_id, new_id, seq = given
        return _plain(
            await service.fork_session(
                app_name="a", user_id=user, session_id=session_id, new_session_id=new_id, seq=seq
            )
        )
    if kind == "get as of":
        user, session_id, seq = given
        config = GetSessionConfig(until_seq=seq)
        session = await service.get_session(app_name="a", user_id=user, session_id=session_id, config=config)
        return session and (session.state, wire.to_plain(session.events))
    if kind == "find":
        return await service.seq_of_event(app_name="a", user_id=given[0], session_id=given[1], event_id=f"e-{given[2]}")
    if kind == "delete user":
        return await service.delete_user(app_name="a", user_id=given[0])
    if kind == "append":
        which, several = given
        if not held:
            return None
        events: list[Event] = []
        for number, at, delta in several:
            content = Content(parts=[Part(text="\u2028")])
            events.append(Event(id=f"e-{number}", author="u", timestamp=float(at), content=content))
            events[-1].actions.state_delta = dict(delta)
        stored = await service.append(held[which % len(held)], *events)
        return [one.seq for one in stored], [event.actions.state_delta for event in events]
    if kind == "delete":
        return await service.delete_session(app_name="a", user_id=given[0], session_id=given[1])
    if kind == "list":
        listed = await service.list_sessions(app_name="a", user_id=given[0], limit=given[1])
        return [_plain(session) for session in listed.sessions], listed.next_page_token is None
    user, session_id, after, limit = given
    return wire.to_plain(
        await service.list_events(app_name="a", user_id=user, session_id=session_id, after=after, limit=limit)
    )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(operations=_operations, cache_bytes=st.sampled_from([0, 5_000, 1 << 26]))
def test_the_stores_agree(operations: list[Any], cache_bytes: int) -> None:
    async def compare() -> None:
        with tempfile.TemporaryDirectory() as folder:
            service = SqliteSessionService(Path(folder) / "x.db", cache_bytes=cache_bytes)
            try:
                in_file = await _replay(service, operations)
            finally:
                await service.close()
        assert in_file == await _replay(InMemorySessionService(), operations)

    asyncio.run(compare())
