"""Whether the stores answer."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from greenroom.artifacts.in_memory import InMemoryArtifactService
from greenroom.errors import StorageError
from greenroom.records.session import Session
from greenroom.server import request_context
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.sessions.sqlite import SqliteSessionService
from tests.server.conftest import Serve


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
    reply = await server.client.get("/readyz")
    assert (reply.status_code, reply.json()["code"]) == (503, "Unavailable")
    assert reply.json()["detail"] == "Not ready: no answer from the store of sessions"
    assert str(tmp_path) not in reply.text
    assert (await server.client.get("/livez")).status_code == 200
    shutil.rmtree(path.parent)


async def test_a_store_that_hangs_is_not_ready(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(InMemoryArtifactService):
        async def save_artifact(self, **_: Any) -> int:
            await asyncio.Event().wait()
            return 0

    monkeypatch.setattr(request_context, "TIMEOUT_SECONDS", 0.05)
    server = await serve(services={"artifact_service": Hanging()})
    reply = await server.client.get("/readyz")
    assert (reply.status_code, reply.json()["detail"]) == (503, "Not ready: no answer from the store of artifacts")


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
    assert (await server.client.get("/readyz")).status_code == 200


async def test_a_probe_leaves_nothing_behind(serve: Serve) -> None:
    sessions, artifacts = InMemorySessionService(), InMemoryArtifactService()
    server = await serve(services={"session_service": sessions, "artifact_service": artifacts})
    assert (await server.client.get("/readyz")).status_code == 200
    assert (await sessions.list_sessions(app_name="greenroom-readiness")).sessions == []
