"""All run stores keep the contract, and the SQLite one shares its file with the sessions."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from greenroom.errors import OwnershipLost, StoreInUse
from greenroom.postgres.connection import Connection
from greenroom.postgres.database import Database
from greenroom.records.event import Event
from greenroom.records.run import Run, RunFilter, RunStatus
from greenroom.records.session import SessionKey
from greenroom.records.shard import Shards
from greenroom.runs.memory_store import InMemoryRunStore
from greenroom.runs.postgres_store import PostgresRunStore
from greenroom.runs.sqlite_store import SqliteRunStore
from greenroom.runs.store import RunStore
from greenroom.sessions.postgres import PostgresSessionService
from greenroom.sessions.sqlite import SqliteSessionService
from tests.postgres import work as postgres_work
from tests.postgres.postgres_server import PostgresServer, started_server
from tests.runs.store_contract import *  # noqa: F403
from tests.sqlite import work as sqlite_work

pytestmark = pytest.mark.slow


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def run_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunStore]:
    if request.param == "memory":
        store = InMemoryRunStore()
    elif request.param == "sqlite":
        store = SqliteRunStore(tmp_path / "runs.db")
    else:
        store = PostgresRunStore(request.getfixturevalue("postgres_uri"))
    yield store
    await store.close()


def _run(number: int, status: RunStatus = RunStatus.SUCCEEDED) -> Run:
    return Run(
        id=f"e-{number}",
        app_name="a",
        user_id="u",
        session_id="s",
        status=status,
        created_at=number,
        idempotency_key=f"k-{number}",
    )


async def test_in_memory_only_the_latest_finished_runs_are_kept() -> None:
    store = InMemoryRunStore(max_finished=3)
    await store.save(_run(0, RunStatus.RUNNING))
    for number in range(1, 6):
        await store.save(_run(number))
    kept = (await store.list_runs(RunFilter(app_names=["a"], user_id="u", session_id="s"))).runs
    assert [run.id for run in kept] == ["e-5", "e-4", "e-3", "e-0"]
    assert await store.get("e-1") is None
    assert await store.find_by_idempotency_key(app_name="a", user_id="u", key="k-2") is None


async def test_runs_are_there_after_reopening(tmp_path: Path) -> None:
    store = SqliteRunStore(tmp_path / "x.db")
    store.save(_run(1))
    await store.close()
    again = SqliteRunStore(tmp_path / "x.db")
    assert await again.get("e-1") == _run(1)
    await again.close()


async def test_a_run_saved_before_an_event_shares_its_commit(tmp_path: Path) -> None:
    sessions, runs = SqliteSessionService(tmp_path / "x.db"), SqliteRunStore(tmp_path / "x.db")
    session = await sessions.create_session(app_name="a", user_id="u", session_id="s")
    before = sessions.database_stats.commits
    runs.save(_run(1))
    await sessions.append(session, Event(author="u"))
    assert sessions.database_stats.commits == before + 1
    assert await runs.get("e-1") == _run(1)
    await sessions.close()
    await runs.close()


_SERVER = """
import asyncio, sys
from greenroom.runs.postgres_store import PostgresRunStore
from greenroom.runs.sqlite_store import SqliteRunStore

async def main(path):
    store = SqliteRunStore(path)
    await store.lock(wait_seconds=0)
    print("locked", flush=True)
    sys.stdin.readline()
    await store.close()
    print("released", flush=True)
    sys.stdin.readline()

asyncio.run(main(sys.argv[1]))
"""


def _server(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_store_belongs_to_one_server_until_it_ends(tmp_path: Path, is_killed: bool) -> None:
    path = tmp_path / "x.db"
    with _server(path) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "locked\n"
        store = SqliteRunStore(path)
        with pytest.raises(StoreInUse) as caught:
            await store.lock(wait_seconds=0)
        assert caught.value.process_id == process.pid
        assert str(process.pid) in caught.value.detail
        await store.save(
            Run(id="e-1", app_name="a", user_id="u", session_id="s", status=RunStatus.FAILED, created_at=1.0)
        )
        waiting = asyncio.create_task(store.lock(wait_seconds=60))
        await asyncio.sleep(0)
        if is_killed:
            process.kill()
        else:
            print(file=process.stdin, flush=True)
            assert await asyncio.to_thread(process.stdout.readline) == "released\n"
        async with asyncio.timeout(10):
            await waiting
        again = SqliteRunStore(path)
        await again.lock(wait_seconds=0)  # the engines of one process share it
        await store.close()
        await again.close()
        process.kill()


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    server = started_server()
    yield server
    server.remove()


async def _restart(server: PostgresServer) -> None:
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.start)


def _second_uri(server: PostgresServer) -> str:
    """A URI that shares no connections with `server.uri()`, as if another process used it."""
    return server.uri().replace("postgres@", "postgres:unused@")


async def test_the_lock_is_acquired_again_after_postgresql_restarted(own_postgres: PostgresServer) -> None:
    store, again = PostgresRunStore(own_postgres.uri()), PostgresRunStore(own_postgres.uri())
    await store.lock(wait_seconds=0)
    await _restart(own_postgres)
    await again.lock(wait_seconds=0)
    second = PostgresRunStore(_second_uri(own_postgres))
    with pytest.raises(StoreInUse):
        await second.lock(wait_seconds=0)
    await store.save(_run(1))
    await store.close()
    with pytest.raises(StoreInUse):  # `again` still has it
        await second.lock(wait_seconds=0)
    await again.close()
    await second.lock(wait_seconds=5)
    await second.close()


async def test_an_idle_server_acquires_its_lock_again_by_itself(own_postgres: PostgresServer) -> None:
    store = PostgresRunStore(own_postgres.uri())
    await store.lock(wait_seconds=0)
    await _restart(own_postgres)
    watching = Database.open(_second_uri(own_postgres))
    async with asyncio.timeout(20):
        while not await watching.fetch("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'"):
            await asyncio.sleep(0.05)
    await watching.close()
    await store.close()


async def test_a_server_that_lost_its_lock_can_not_write(own_postgres: PostgresServer) -> None:
    first, second = own_postgres.uri(), _second_uri(own_postgres)
    sessions, runs = PostgresSessionService(first), PostgresRunStore(first)
    await runs.lock(wait_seconds=0)
    session = await sessions.create_session(app_name="a", user_id="u", session_id="s")
    await sessions.append(session, Event(author="first"))
    taking = PostgresRunStore(second)
    database = Database.open(second)
    # Ends the first server's connections, until the second one has the lock.
    with contextlib.suppress(StoreInUse):
        await taking.lock(wait_seconds=0)
    others = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    await database.execute("SELECT 1")

    async def take(connection: Connection) -> None:
        await connection.fetch(f"SELECT pg_terminate_backend(pid) {others} AND pid IN (SELECT pid FROM pg_locks)")

    async with asyncio.timeout(20):
        while True:
            await database.submit(take)
            with contextlib.suppress(StoreInUse):
                await taking.lock(wait_seconds=0)
                break
    other_sessions = PostgresSessionService(second)
    held = await other_sessions.get_session(app_name="a", user_id="u", session_id="s")
    assert held is not None
    await other_sessions.append(held, Event(author="second"))
    with pytest.raises(OwnershipLost):
        await sessions.append(session, Event(author="late"))
    with pytest.raises(OwnershipLost):
        await runs.save(_run(1))
    await taking.close()
    with pytest.raises(OwnershipLost):  # the other server may have resumed its runs
        await sessions.append(session, Event(author="late"))

    async def authors() -> list[str | None]:
        loaded = await sessions.get_session(app_name="a", user_id="u", session_id="s")
        assert loaded is not None
        return [event.author for event in loaded.events]

    async with asyncio.timeout(5):  # `get_session` sees external writes within a twentieth of a second
        while await authors() != ["first", "second"]:
            await asyncio.sleep(0.01)
    for service in (other_sessions, sessions, runs, database):
        await service.close()


_MANY_RUNS = """
    INSERT INTO runs (id, app_name, user_id, session_id, status, created_at, data)
    SELECT 'e-' || number, 'a', 'u', 's-' || number, CASE number % 2 WHEN 0 THEN 'running' ELSE 'succeeded' END, number,
        '{"id":"e","appName":"a","userId":"u","sessionId":"s","status":"running","createdAt":' || number || '}'
    FROM generate_series(1, 10000) AS number
"""


async def test_only_the_runs_of_a_shard_are_read_in_postgresql(
    postgres_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = Shards([7, 8])
    with postgres_work.counting(monkeypatch) as work:
        store = PostgresRunStore(postgres_uri)
        await store.get("e-1")  # makes the tables
        connection = await asyncpg.connect(postgres_uri)
        await connection.execute(_MANY_RUNS)
        await connection.execute("ANALYZE runs, webhooks")

        work.reset()
        await store.list_open_push_configs(shards)
        unfinished = await store.list_unfinished(shards)
        assert len(await store.list_to_remember(shards)) == 0
        await store.close()

    expected = [number for number in range(1, 10_001) if shards.include(SessionKey("a", "u", f"s-{number}"))]
    assert sorted(run.created_at for run in unfinished) == [number for number in expected if number % 2 == 0]
    read = await postgres_work.plans(connection, work.statements, ["runs"])
    assert read.rows <= 3 * len(unfinished)
    assert not read.scans
    await connection.close()


_MANY_DELAYED = (
    """
    INSERT INTO runs (id, app_name, user_id, session_id, status, created_at, data)
    SELECT 'e-' || number, 'a', 'u', 's-' || number, 'queued delayed', number,
        '{"id":"e","appName":"a","userId":"u","sessionId":"s","status":"queued","createdAt":1,"startAt":2}'
    FROM numbers
    """,
    "INSERT INTO wake_ups (run_id, at) SELECT 'e-' || number, 1e9 + number FROM numbers",
)
_SQLITE_NUMBERS = """
    WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < 10000)
"""
_POSTGRES_NUMBERS = "WITH numbers AS (SELECT generate_series(1, 10000) AS number)"


async def _read_of_delayed(store: RunStore) -> None:
    """Reads what a starting server does, a page of the list, and the times that are due."""
    assert await store.list_unfinished() == []
    assert len((await store.list_runs(RunFilter(statuses=[RunStatus.QUEUED]), limit=50)).runs) == 50
    assert len(await store.next_wake_ups(50)) == 50


async def test_few_of_many_delayed_runs_are_read_in_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.db"
    with sqlite_work.counting(monkeypatch) as work:
        store = SqliteRunStore(path)
        await store.get("e-1")  # makes the tables
        with contextlib.closing(sqlite3.connect(path)) as connection:
            for statement in _MANY_DELAYED:
                connection.execute(_SQLITE_NUMBERS + statement)
            connection.commit()
            work.reset()
            await _read_of_delayed(store)
            await store.close()
            explained = [connection.execute(f"EXPLAIN QUERY PLAN {one.text}").fetchall() for one in work.statements]

    steps = [step for plan in explained for *_, step in plan]
    assert "SEARCH runs USING INDEX runs_delayed (status=?)" in steps
    assert "SCAN wake_ups USING COVERING INDEX wake_ups_by_time" in steps
    assert work.instructions < 5000


async def test_few_of_many_delayed_runs_are_read_in_postgresql(
    postgres_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postgres_work.counting(monkeypatch) as work:
        store = PostgresRunStore(postgres_uri)
        await store.get("e-1")  # makes the tables
        connection = await asyncpg.connect(postgres_uri)
        for statement in _MANY_DELAYED:
            await connection.execute(_POSTGRES_NUMBERS + statement)
        await connection.execute("ANALYZE runs, wake_ups")
        work.reset()
        await _read_of_delayed(store)
        await store.close()

    read = await postgres_work.plans(connection, work.statements, ["runs", "wake_ups"])
    assert read.rows < 400
    assert not read.scans
    await connection.close()
