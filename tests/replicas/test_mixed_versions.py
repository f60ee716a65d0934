"""A server of an earlier version beside one of this version, on one database, as in a rolling upgrade."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from greenroom.records.session import SessionKey
from tests.replicas.earlier_source import Source, source_of
from tests.replicas.requests import Json, log_of, message, path_of, run_of, texts
from tests.replicas.servers import Server, Servers

FIRST_SHARED = "d5a2ad53"
"""A commit whose servers share a database. They don't start on tables that are more than one migration newer."""

FIRST_ANY_SCHEMA = "8dbbac4d"
"""A commit whose servers start on any later tables that they suit."""

WORDS = 40  # which take two seconds


@pytest.fixture
def earlier_sources(request: pytest.FixtureRequest) -> Callable[[str], Source]:
    """Returns the files of an earlier commit."""
    cache = request.config.cache
    assert cache is not None
    return lambda commit: source_of(commit, cache.mkdir("earlier-sources"))


async def test_the_earlier_version_is_what_runs(earlier_sources: Callable[[str], Source]) -> None:
    path = earlier_sources(FIRST_SHARED).python_path
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import greenroom; print(greenroom.__file__)",
        env={"PYTHONPATH": path}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, _ = await process.communicate()
    assert Path(output.decode()).is_relative_to(path)


@pytest.mark.parametrize(("commit", "is_earlier_first"), [(FIRST_SHARED, True), (FIRST_ANY_SCHEMA, False)])
async def test_servers_of_two_versions_serve_one_database(
    servers: Servers, earlier_sources: Callable[[str], Source], commit: str, is_earlier_first: bool
) -> None:
    """The first one makes the tables, or migrates them. Each of both is killed once, and the other takes over."""
    source = earlier_sources(commit)
    starts: list[Callable[[], Awaitable[Server]]] = [
        partial(servers.start, agents=source.agents, PYTHONPATH=source.python_path),
        servers.start,
    ]
    start_one, start_other = starts if is_earlier_first else reversed(starts)
    one = await start_one()
    before = await servers.key_of(one)
    await one.http.post(path_of(before))
    assert texts((await one.http.post("/run", json=run_of(before, "hello"))).json()) == ["You said hello"]

    other = await start_other()
    await servers.wait_until_shared(one, other)
    assert texts((await other.http.post("/run", json=run_of(before, "again"))).json()) == ["You said again"]
    for owner, forwarding in ((one, other), (other, one)):
        await _converse(servers, owner, forwarding)

    await _take_over(servers, other, one)
    other = await start_other()
    await servers.wait_until_shared(one, other)
    await _take_over(servers, one, other)
    assert texts(await log_of(other.http, before)) == ["hello", "You said hello", "again", "You said again"]


async def _converse(servers: Servers, owner: Server, forwarding: Server) -> None:
    key = await servers.key_of(owner)
    created = await forwarding.http.post(path_of(key), json={"state": {"a": 1}})
    assert created.status_code == 200, created.text
    answer = await forwarding.http.post("/run", json=run_of(key, "hello"))
    assert texts(answer.json()) == ["You said hello"]
    for server in (owner, forwarding):
        assert (await server.http.get(path_of(key))).json()["state"] == {"a": 1}
        assert texts(await log_of(server.http, key)) == ["hello", "You said hello"]


async def _take_over(servers: Servers, killed: Server, survivor: Server) -> None:
    """Kills a server with an unfinished run and a waiting approval, which the other one finishes."""
    waiting = await _new_session(servers, killed)
    asked: list[Json] = (await killed.http.post("/run", json=run_of(waiting, "pay"))).json()
    running = await _new_session(servers, killed)
    body = {"newMessage": message(f"slow {WORDS}")}
    started = await survivor.http.post(path_of(running) + "/runs", json=body)
    assert started.status_code == 202, started.text
    run_path = f"/runs/{started.json()['id']}"
    async with asyncio.timeout(10):
        while not await log_of(survivor.http, running):
            await asyncio.sleep(0.05)
    await killed.kill()

    await servers.wait_until_shared(survivor)
    async with asyncio.timeout(20):
        while (run := (await survivor.http.get(run_path)).json())["status"] in ("queued", "running"):
            await asyncio.sleep(0.1)
    assert run["status"] == "succeeded", run
    assert run["attempts"] == 2
    assert texts(await log_of(survivor.http, running))[1:] == ["".join(f"word{number} " for number in range(WORDS))]

    calls = [part["functionCall"] for event in asked for part in event["content"]["parts"] if "functionCall" in part]
    (call,) = [call for call in calls if call["name"] == "adk_request_confirmation"]
    response = {"id": call["id"], "name": call["name"], "response": {"confirmed": True}}
    answer = {"role": "user", "parts": [{"functionResponse": response}]}
    answered = await survivor.http.post("/run", json=run_of(waiting, "", newMessage=answer))
    assert texts(answered.json()) == ["done: {'paid': 7}"]


async def _new_session(servers: Servers, owner: Server) -> SessionKey:
    key = await servers.key_of(owner)
    created = await owner.http.post(path_of(key))
    assert created.status_code == 200, created.text
    return key
