"""Whether the stores answer."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from greenroom.artifacts.in_memory import InMemoryArtifactService
from greenroom.errors import StorageError
from greenroom.memory.in_memory import InMemoryMemoryService
from greenroom.postgres.database import Database
from greenroom.records.session import Session
from greenroom.server.readiness import Readiness
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.sessions.postgres import PostgresSessionService
from greenroom.sessions.sqlite import SqliteSessionService
from tests.postgres.postgres_server import PostgresServer, started_server
from tests.server.conftest import Serve
from tests.server.serving import until

_CUT = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'greenroom'
"""


async def test_a_server_with_its_stores_is_ready(serve: Serve, tmp_path: Path) -> None:
    server = await serve(services={"session_service": SqliteSessionService(tmp_path / "sessions.db")})
    for _ in range(2):
        reply = await server.client.get("/readyz")
        assert (reply.status_code, reply.json()) == (200, {"status": "ok"})


async def test_a_broken_database_is_not_ready_and_the_server_lives(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "data" / "sessions.db"
    server = await serve(services={"session_service": SqliteSessionService(path)})
    assert (await server.client.get("/readyz")).status_code == 200
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE sessions")
    database.close()

    async def is_unready() -> bool:  # the last check is kept for a second
        return (await server.client.get("/readyz")).status_code != 200

    await until(is_unready)
    reply = await server.client.get("/readyz")
    assert (reply.status_code, reply.json()["code"]) == (503, "Unavailable")
    assert reply.json()["detail"] == "Not ready: no answer from the store of sessions"
    assert str(tmp_path) not in reply.text
    assert (await server.client.get("/livez")).status_code == 200
    shutil.rmtree(path.parent)


async def test_a_store_that_hangs_is_not_ready() -> None:
    class Hanging(InMemoryArtifactService):
        async def save_artifact(self, **_: Any) -> int:
            await asyncio.Event().wait()
            return 0

    readiness = Readiness(InMemorySessionService(), Hanging(), InMemoryMemoryService(), timeout_seconds=0.05)
    async with asyncio.timeout(5):
        assert await readiness.failing_stores() == ["artifacts"]


async def test_a_server_stays_ready_without_a_store_that_its_other_servers_share() -> None:
    """It becomes ready when the stores of artifacts and memory have answered once, also after a failure."""

    class Store(InMemoryArtifactService):
        is_away = True

        async def save_artifact(self, **given: Any) -> int:
            if self.is_away:
                raise StorageError("Saving an artifact", "no connection")
            return await super().save_artifact(**given)

    store = Store()
    readiness = Readiness(InMemorySessionService(), store, InMemoryMemoryService(), cache_seconds=0.0)
    assert await readiness.failing_stores() == ["artifacts"]
    store.is_away = False
    assert await readiness.failing_stores() == []
    store.is_away = True
    assert await readiness.failing_stores() == []


async def test_requests_at_once_and_soon_after_share_one_check() -> None:
    class Counting(InMemorySessionService):
        checks = 0

        async def create_session(self, **given: Any) -> Session:
            self.checks += 1
            return await super().create_session(**given)

    sessions = Counting()
    stores = (sessions, InMemoryArtifactService(), InMemoryMemoryService())
    readiness = Readiness(*stores, cache_seconds=60.0)
    assert await asyncio.gather(*(readiness.failing_stores() for _ in range(20))) == [[]] * 20
    assert await readiness.failing_stores() == []
    assert sessions.checks == 1
    always = Readiness(*stores, cache_seconds=0.0)
    assert [await always.failing_stores() for _ in range(3)] == [[]] * 3
    assert sessions.checks == 4


async def test_a_full_disk_is_not_ready_until_it_has_room_again(serve: Serve) -> None:
    class Disk(InMemorySessionService):
        is_full = True

        async def create_session(self, **given: Any) -> Session:
            if self.is_full:
                raise StorageError("Writing", "database or disk is full")
            return await super().create_session(**given)

    disk = Disk()
    server = await serve(services={"session_service": disk})
    reply = await server.client.get("/readyz")
    assert (reply.status_code, reply.json()["detail"]) == (503, "Not ready: no answer from the store of sessions")
    disk.is_full = False

    async def is_ready() -> bool:
        return (await server.client.get("/readyz")).status_code == 200

    await until(is_ready)


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    server = started_server()
    yield server
    server.remove()


async def test_a_server_without_postgresql_is_not_ready_until_it_is_back(
    own_postgres: PostgresServer, serve: Serve
) -> None:
    server = await serve(services={"session_service": PostgresSessionService(own_postgres.uri())})

    async def status() -> int:
        return (await server.client.get("/readyz")).status_code

    assert await status() == 200
    await asyncio.to_thread(own_postgres.stop, crash=True)
    await until(is_status(status, 503))
    assert (await server.client.get("/livez")).status_code == 200
    metrics = await server.client.get("/metrics")
    assert metrics.status_code == 200
    assert "greenroom_runs_running" in metrics.text
    assert "greenroom_shards" not in metrics.text
    await asyncio.to_thread(own_postgres.start)
    await until(is_status(status, 200))
    assert "greenroom_shards" in (await server.client.get("/metrics")).text
    await server.new_session("echo")


async def test_a_server_that_has_lost_its_database_to_another_one_is_not_ready(serve: Serve, postgres_uri: str) -> None:
    server = await serve(services={"session_service": PostgresSessionService(postgres_uri)})

    async def status() -> int:
        return (await server.client.get("/readyz")).status_code

    assert await status() == 200
    other = Database.open(postgres_uri.replace("postgres@", "postgres:other@"))  # connections of its own
    await other.fetch("UPDATE greenroom_schema SET server_epoch = server_epoch + 1 RETURNING 1")
    await other.fetch(_CUT)

    async def has_noticed() -> bool:
        reply = await server.client.post("/apps/echo/users/ann/sessions")
        return reply.status_code == 503 and reply.json()["code"] == "OwnershipLost"

    await until(has_noticed)
    await until(is_status(status, 503))  # the last check is kept for a second
    assert (await server.client.get("/livez")).status_code == 200
    await other.close()


def is_status(status: Callable[[], Awaitable[int]], wanted: int) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        return await status() == wanted

    return check


async def test_a_probe_leaves_nothing_behind(serve: Serve) -> None:
    sessions = InMemorySessionService()
    artifacts = InMemoryArtifactService()
    server = await serve(services={"session_service": sessions, "artifact_service": artifacts})
    assert (await server.client.get("/readyz")).status_code == 200
    assert (await sessions.list_sessions(app_name="greenroom-readiness")).sessions == []
