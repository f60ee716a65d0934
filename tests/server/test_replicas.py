"""`GET /replicas` of a server that has its store for itself. With others: tests/replicas/test_operating.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.sessions.postgres import PostgresSessionService
from greenroom.sessions.service import BaseSessionService
from greenroom.sessions.sqlite import SqliteSessionService
from tests.server.agents import Gate, gated
from tests.server.conftest import Serve
from tests.server.serving import run_body, until


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def sessions(request: pytest.FixtureRequest, tmp_path: Path) -> BaseSessionService:
    if request.param == "memory":
        return InMemorySessionService()
    if request.param == "sqlite":
        return SqliteSessionService(tmp_path / "sessions.db")
    return PostgresSessionService(request.getfixturevalue("postgres_uri"))


async def test_a_server_without_others_lists_itself(serve: Serve, sessions: BaseSessionService) -> None:
    gate = Gate()
    server = await serve(gated(gate), services={"session_service": sessions})
    await server.new_session("gated")
    first = await server.connect()
    second = await server.connect()
    await first.post("/run", run_body("gated"))
    await second.post("/run", run_body("gated"))

    async def has_both() -> bool:
        (replica,) = (await server.client.get("/replicas")).json()["replicas"]
        return (replica["running"], replica["queued"]) == (1, 1)

    await until(has_both)
    (replica,) = (await server.client.get("/replicas")).json()["replicas"]
    assert (replica["address"], replica["shards"], replica["isDraining"]) == (None, 256, False)
    assert 0 <= replica["oldestRunAgeSeconds"] < 10
