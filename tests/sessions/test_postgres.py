"""Sessions in PostgreSQL keep the contract, hot or cold."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from greenroom.postgres.connection import Connection, connect
from greenroom.postgres.database import Database
from greenroom.postgres.ownership import take
from greenroom.records.base import JsonObject
from greenroom.records.event import Event, EventActions
from greenroom.records.session import SessionKey
from greenroom.records.shard import shard_of
from greenroom.sessions.backend import Stored
from greenroom.sessions.postgres import PostgresSessionService
from greenroom.sessions.postgres_append import Append, AppendBatch
from greenroom.sessions.prepared_event import prepare
from greenroom.testing.contracts.session_service import *  # noqa: F403


@pytest.fixture
async def session_service(cache_bytes: int, postgres_uri: str) -> AsyncIterator[PostgresSessionService]:
    service = PostgresSessionService(postgres_uri, cache_bytes=cache_bytes)
    yield service
    await service.close()


class _CountingConnection:
    """Counts round trips."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.queries = 0

    def __getattr__(self, name: str) -> Any:
        self.queries += 1
        return getattr(self._connection, name)


async def _append(connection: Connection, session_id: str, events: Sequence[Event]) -> tuple[Stored, int]:
    """Returns the results and the number of round trips."""
    counting = _CountingConnection(connection)
    prepared = prepare(events, encode=True)
    jsons = [(one.json or b"").decode() for one in prepared]
    row = Append(SessionKey("a", "u", session_id), prepared, jsons, None)
    (stored,) = await AppendBatch().write(cast("Connection", counting), [row])
    assert not isinstance(stored, Exception)
    return stored, counting.queries


async def test_one_event_at_a_time_is_stored_as_many_at_once(
    session_service: PostgresSessionService, postgres_uri: str
) -> None:
    """By two statements; each is one round trip, and only an event that is there already takes another."""
    deltas: list[JsonObject] = [{}, {"k": 1, "l": "x"}, {"k": None}, {"k": 2, "user:k": 3}, {"m": {"n": []}}, {}]
    events = [Event(author="u", actions=EventActions(state_delta=delta)) for delta in deltas]
    for session_id in ("one", "many"):
        state: JsonObject = {"k": 0, "m": 1}
        await session_service.create_session(app_name="a", user_id="u", session_id=session_id, state=state)
    connection = await connect(postgres_uri)
    one_by_one = [await _append(connection, "one", [event]) for event in events]
    assert one_by_one == [([(seq, True)], 1) for seq in range(1, 7)]
    assert await _append(connection, "many", events) == ([(seq, True) for seq in range(1, 7)], 1)
    assert await _append(connection, "one", events[2:3]) == ([(3, False)], 2)
    await session_service.fork_session(app_name="a", user_id="u", session_id="one", new_session_id="fork")
    assert await _append(connection, "fork", events[2:3]) == ([(3, False)], 2)
    assert await _append(connection, "fork", [Event(author="u")]) == ([(7, True)], 1)
    for query in (
        "SELECT last_seq, update_time FROM sessions WHERE id = $1",
        "SELECT seq, events.id, timestamp, data FROM events JOIN sessions ON number = session "
        "WHERE sessions.id = $1 ORDER BY seq",
        "SELECT key, seq, value FROM state_changes JOIN sessions ON number = session WHERE id = $1 ORDER BY key, seq",
        "SELECT key, value FROM session_state JOIN sessions ON number = session WHERE id = $1 ORDER BY key",
    ):
        rows = await connection.fetch(query, "one")
        assert rows == await connection.fetch(query, "many") != []
    await connection.close()


async def test_a_new_owner_reads_what_the_former_one_has_stored(postgres_uri: str) -> None:
    """Though it has read the session a moment before."""
    here = PostgresSessionService(postgres_uri)
    there = PostgresSessionService(postgres_uri.replace("postgres@", "postgres:unused@"))
    database = Database.open(postgres_uri)
    key = SessionKey("app", "ann", "s-1")
    session = await there.create_session(**key._asdict())
    database.owned_shards.add({})
    try:
        for count in range(1, 6):
            assert await here.get_session(**key._asdict()) is not None
            await there.append_event(session, Event(author="user", invocation_id=f"e-{count}"))
            epochs = await database.submit(lambda connection: take(connection, [shard_of(key)], "here"))
            database.owned_shards.add(epochs)
            found = await here.get_session(**key._asdict())
            assert found is not None
            assert len(found.events) == count
            database.owned_shards.drop([shard_of(key)])
    finally:
        database.owned_shards.close()
        for service in (here, there, database):
            await service.close()
