"""Limits that hold over all servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from greenroom.records.session import SessionKey
from tests.postgres.postgres_server import PostgresServer
from tests.replicas.conftest import Pair
from tests.replicas.requests import message, path_of
from tests.replicas.servers import Server, servers_on

pytestmark = pytest.mark.asyncio(loop_scope="module")

RUNS_PER_USER = 3
RUNS_PER_APP = 6


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def limited(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """Two servers with limits."""
    name = f"test_{uuid4().hex}"
    uri = postgres_server.make_database(name)
    async with servers_on(uri, tmp_path_factory.mktemp("limited")) as started:
        limits = ("--limits-runs-per-user", str(RUNS_PER_USER), "--limits-runs-per-app", str(RUNS_PER_APP))
        owner = await started.start(*limits)
        other = await started.start(*limits)
        await started.wait_until_shared(owner, other)
        yield Pair(started, owner, other)
    postgres_server.drop_database(name)


async def sessions_of(pair: Pair, user: str, *, of_each: int) -> list[tuple[Server, SessionKey]]:
    """New sessions, with their owners."""
    made: list[tuple[Server, SessionKey]] = []
    for server in (pair.owner, pair.other):
        for _ in range(of_each):
            created = await server.http.post(f"/apps/desk/users/{user}/sessions")
            made.append((server, SessionKey("desk", user, created.json()["id"])))
    return made


async def start(server: Server, key: SessionKey) -> httpx.Response:
    return await server.http.post(path_of(key) + "/runs", json={"newMessage": message("slow 2000")})


async def start_all(sessions: Sequence[tuple[Server, SessionKey]]) -> tuple[list[str], list[httpx.Response]]:
    """The ids of the runs that were started, and the responses that refused the others."""
    responses = await asyncio.gather(*(start(server, key) for server, key in sessions))
    refused = [response for response in responses if response.status_code != 202]
    return [response.json()["id"] for response in responses if response.status_code == 202], refused


async def running_on(server: Server) -> int:
    replicas = (await server.http.get("/replicas")).json()["replicas"]
    return sum(replica["running"] for replica in replicas if replica["address"] == server.url)


async def cancel(pair: Pair, run_ids: Sequence[str]) -> None:
    for run_id in run_ids:
        assert (await pair.other.http.post(f"/runs/{run_id}/cancel")).status_code == 200


async def test_a_user_has_as_many_runs_as_allowed_on_two_servers_together(limited: Pair) -> None:
    sessions = await sessions_of(limited, "ann", of_each=6)
    started, refused = await start_all(sessions)
    assert len(started) == RUNS_PER_USER
    assert {(one.status_code, one.json()["code"]) for one in refused} == {(429, "TooManyRuns")}
    for run_id in started:  # the next one may start on any server as soon as one has ended
        await cancel(limited, [run_id])
        for server in (limited.other, limited.owner):
            key = next(key for owner, key in sessions if owner is server)
            again = await start(server, key)
            assert again.status_code == 202, again.text
            assert (await limited.owner.http.post(f"/runs/{again.json()['id']}/cancel")).status_code == 200
    assert await limited.servers.database.fetch("SELECT * FROM run_counts") == []


async def test_an_app_has_as_many_runs_as_allowed_on_two_servers_together(limited: Pair) -> None:
    sessions = [one for user in ("ben", "cem", "dea") for one in await sessions_of(limited, user, of_each=2)]
    started, refused = await start_all(sessions)
    assert len(started) == RUNS_PER_APP
    assert {one.status_code for one in refused} == {429}
    await cancel(limited, started)


async def test_an_interrupting_run_may_replace_one_at_the_limit(limited: Pair) -> None:
    sessions = await sessions_of(limited, "eva", of_each=6)
    started, _ = await start_all(sessions)
    run = (await limited.owner.http.get(f"/runs/{started[0]}")).json()
    body = {"newMessage": message("hello"), "multitaskStrategy": "interrupt"}
    key = SessionKey("desk", "eva", run["sessionId"])
    replaced = await limited.owner.http.post(path_of(key) + "/runs", json=body)
    assert replaced.status_code == 202, replaced.text
    await cancel(limited, started[1:])


async def test_a_caller_has_one_rate_on_two_servers(postgres_server: PostgresServer, tmp_path: Path) -> None:
    """And all of it on one of them."""
    rate = 20
    seconds = 3
    name = f"test_{uuid4().hex}"
    async with servers_on(postgres_server.make_database(name), tmp_path) as started:
        options = ("--limits-requests-per-second", str(rate), "--limits-requests-at-once", str(rate))
        servers = [await started.start(*options) for _ in range(2)]
        accepted: list[int] = []
        for used, address in ((servers[:1], "127.0.0.2"), (servers, "127.0.0.3")):
            until = time.monotonic() + seconds
            count = 0
            async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(local_address=address)) as http:
                while time.monotonic() < until:
                    answers = await asyncio.gather(*(http.get(f"{server.url}/list-apps") for server in used))
                    count += [answer.status_code for answer in answers].count(200)
            accepted.append(count)
    postgres_server.drop_database(name)
    allowed = rate + seconds * rate
    assert 0.9 * allowed <= accepted[0] <= 1.1 * allowed
    # At least the rate, also on a busy machine; at most twice the burst, and the rate until the first exchange.
    assert 0.9 * seconds * rate <= accepted[1] <= allowed + 2 * rate


async def test_runs_count_once_after_their_server_was_killed(limited: Pair) -> None:
    """The last test: one server is left."""
    sessions = await sessions_of(limited, "fay", of_each=3)
    of_owner = [one for one in sessions if one[0] is limited.owner]
    started, _ = await start_all(of_owner)
    assert len(started) == RUNS_PER_USER
    await limited.owner.kill()
    key = next(key for server, key in sessions if server is limited.other)
    async with asyncio.timeout(15):  # a run that is being taken over isn't counted until it is resumed
        while await running_on(limited.other) < RUNS_PER_USER:
            await asyncio.sleep(0.05)
    assert (await start(limited.other, key)).status_code == 429
    await cancel(limited, started)
    left = [(limited.other, key) for _, key in sessions]
    again, _ = await start_all(left)
    assert len(again) == RUNS_PER_USER
