"""The servers of a database, listed by each of them and by a command; what an autoscaler reads; versions."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import pytest_asyncio

from greenroom.postgres.database import Database
from greenroom.records.shard import SHARDS
from greenroom.version import __version__
from tests.postgres.postgres_server import PostgresServer
from tests.replicas.conftest import Pair
from tests.replicas.requests import Json, message, path_of
from tests.replicas.servers import REPOSITORY, Server, servers_on

_OLD_REPLICA = """
    INSERT INTO replicas (id, version, started, heartbeat) SELECT 'old', '0.0.9', heartbeat, heartbeat FROM replicas
    LIMIT 1
"""

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """The owner executes a run, and has another one in the queue of the session."""
    name = f"test_{uuid4().hex}"
    uri = postgres_server.make_database(name)
    async with servers_on(uri, tmp_path_factory.mktemp("servers")) as started:
        owner = await started.start()
        other = await started.start()
        await started.wait_until_shared(owner, other)
        key = await started.key_of(owner)
        await owner.http.post(path_of(key))
        for text in ("slow 2000", "hello"):
            response = await owner.http.post(path_of(key) + "/runs", json={"newMessage": message(text)})
            assert response.status_code == 202, response.text
        yield Pair(started, owner, other)
    postgres_server.drop_database(name)


async def two_beats(database: Database) -> None:
    """Returns when each server has shown twice that it is alive."""
    query = "SELECT max(heartbeat), min(heartbeat) FROM replicas WHERE address IS NOT NULL"
    ((started_at, _),) = await database.fetch(query)
    async with asyncio.timeout(10):
        while (await database.fetch(query))[0][1] < started_at + 1:
            await asyncio.sleep(0.05)


async def listed(server: Server) -> dict[str, Json]:
    """The replicas by their addresses."""
    response = await server.http.get("/replicas")
    assert response.status_code == 200, response.text
    assert "token" not in response.text
    return {replica["address"]: replica for replica in response.json()["replicas"]}


async def test_each_server_lists_all_with_their_runs(pair: Pair) -> None:
    owner, other = pair.owner, pair.other
    replicas = await listed(other)
    assert list(replicas) == [owner.url, other.url]
    assert replicas.keys() == (await listed(owner)).keys()
    assert [replica["shards"] for replica in replicas.values()] == [SHARDS // 2] * 2
    assert [replica["running"] for replica in replicas.values()] == [1, 0]
    assert [replica["queued"] for replica in replicas.values()] == [1, 0]
    assert 0 <= replicas[owner.url]["oldestRunAgeSeconds"] < 30
    assert replicas[other.url]["oldestRunAgeSeconds"] is None
    for replica in replicas.values():
        assert replica["version"] == __version__
        assert not replica["isDraining"]
        assert 0 <= replica["heartbeatAgeSeconds"] < 3
        assert 0 < time.time() - replica["startedAt"] < 300


async def test_the_command_lists_them(pair: Pair) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "greenroom", "replicas", "--session-service", pair.servers.uri,
        cwd=REPOSITORY, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, errors = await process.communicate()
    assert process.returncode == 0, errors
    _, first, second = output.decode().splitlines()
    assert pair.owner.url in first
    assert re.search(r"serving +\d\.\d s ago +128 +1 +1 +\d+\.\d s *$", first)
    assert pair.other.url in second
    assert re.search(r"serving +\d\.\d s ago +128 +0 +0 *$", second)


async def test_the_metrics_of_each_server_have_its_shards_and_the_runs_of_all(pair: Pair) -> None:
    replicas = await listed(pair.owner)
    for server in (pair.owner, pair.other):
        metrics = ""
        async with asyncio.timeout(10):  # the numbers of runs may be a second old
            while 'greenroom_database_runs_running{app="desk"} 1.0' not in metrics:
                metrics = (await server.http.get("/metrics")).text
        assert f'greenroom_shards{{replica="{replicas[server.url]["id"]}"}} 128.0' in metrics
        assert 'greenroom_database_runs_queued{app="desk"} 1.0' in metrics


async def test_a_server_logs_each_other_version_once(pair: Pair) -> None:
    database = pair.servers.database
    await database.execute(_OLD_REPLICA)
    line = f"a server of version 0.0.9 shares the database; this one has version {__version__}"
    async with asyncio.timeout(10):
        while not (line in pair.owner.log() and line in pair.other.log()):
            await asyncio.sleep(0.05)
    await two_beats(pair.servers.database)
    assert pair.owner.log().count(line) == 1
    await database.execute("DELETE FROM replicas WHERE id = 'old'")
