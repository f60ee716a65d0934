"""`GET /replicas` of a server that has its store for itself. With others: tests/replicas/test_operating.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.server.access.api_key_file import ApiKeyFile
from greenroom.server.settings import AuthSettings
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.sessions.postgres import PostgresSessionService
from greenroom.sessions.service import BaseSessionService
from greenroom.sessions.sqlite import SqliteSessionService
from tests.server.agents import Gate, echo, gated
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

    gate.open()
    assert (await first.head())[0] == 200
    assert (await second.head())[0] == 200


async def test_a_key_for_some_apps_sees_only_their_runs(
    serve: Serve, sessions: BaseSessionService, tmp_path: Path
) -> None:
    gate = Gate()
    keys = ApiKeyFile(tmp_path / "keys.db")
    _, user = keys.create(name="", subject="ann", scopes=("run", "read"))
    _, of_one = keys.create(name="", subject="ops", scopes=("debug",), apps=["gated"])
    _, of_other = keys.create(name="", subject="ops", scopes=("debug",), apps=["other"])
    server = await serve(
        gated(gate), echo("other"), services={"session_service": sessions}, auth=AuthSettings(keys=str(keys.path))
    )
    server.client.headers["x-api-key"] = user
    await server.new_session("gated")
    assert (await server.client.get("/replicas")).status_code == 403
    path = "/apps/gated/users/ann/sessions/s-1/runs"
    started = await server.client.post(path, json={"newMessage": {"parts": [{"text": "hi"}]}})
    assert started.status_code == 202, started.text
    for key, running in ((of_one, 1), (of_other, 0)):
        (replica,) = (await server.client.get("/replicas", headers={"x-api-key": key})).json()["replicas"]
        assert replica["running"] == running
        assert (replica["oldestRunAgeSeconds"] is None) == (running == 0)

    gate.open()
    await server.wait_for_status(started.json()["id"], "succeeded")
