"""Servers that stop: they hand their sessions over, and answer requests until then."""

from __future__ import annotations

import asyncio
import json
import signal
import time

import httpx
from websockets.asyncio.client import connect

from greenroom.records.session import SessionKey
from greenroom.records.shard import SHARDS
from tests.replicas.requests import Json, frames, log_of, message, path_of, run_of, text_of, texts
from tests.replicas.servers import APP, Server, Servers

TAKEOVER_SECONDS = 1.0
"""Limit of the time from SIGTERM to the answer to a message in an idle session, at another server."""


async def two(servers: Servers, *, grace_seconds: float) -> tuple[Server, Server]:
    first = await servers.start(grace_seconds=grace_seconds)
    second = await servers.start(grace_seconds=grace_seconds)
    await servers.wait_until_shared(first, second)
    return first, second


async def new_session(servers: Servers, owner: Server, *, app: str = APP) -> SessionKey:
    key = await servers.key_of(owner, app=app)
    assert (await owner.http.post(path_of(key))).status_code == 200
    return key


async def test_idle_sessions_are_taken_at_once_and_others_after_their_last_run(servers: Servers) -> None:
    owner, other = await two(servers, grace_seconds=20)
    idle = await new_session(servers, owner)
    live = await new_session(servers, owner, app="talk")
    busy = await new_session(servers, owner)
    async with owner.http.stream("POST", "/run_sse", json=run_of(busy, "slow 40", streaming=True)) as response:
        partial = frames(response)
        await anext(partial)

        stopped_at = time.monotonic()
        owner.signal(signal.SIGTERM)
        while shards_of(owner, await servers.owners()) > 1:
            await asyncio.sleep(0.01)
        answer = await other.http.post("/run", json=run_of(idle, "hello"))
        seconds = time.monotonic() - stopped_at
        assert texts(answer.json()) == ["You said hello"]
        assert seconds < TAKEOVER_SECONDS

        ready = await owner.http.get("/readyz")
        assert (ready.status_code, ready.json()["detail"]) == (503, "Not ready: the server is stopping")
        assert ready.headers["connection"] == "close"
        assert (await owner.http.get("/livez")).status_code == 200
        assert (await other.http.get("/readyz")).status_code == 200
        replicas = await replicas_of(other)
        assert {replica["address"]: replica["isDraining"] for replica in replicas} == {
            owner.url: True,
            other.url: False,
        }
        forwarded = await owner.http.post("/run", json=run_of(idle, "again"))
        assert texts(forwarded.json()) == ["You said again"]
        created = await owner.http.post("/apps/desk/users/ann/sessions")
        assert created.status_code == 200, created.text

        names = f"app_name=talk&user_id={live.user_id}&session_id={live.session_id}&modalities=TEXT"
        async with connect(f"ws{owner.url.removeprefix('http')}/run_live?{names}") as socket:
            assert socket.response is not None
            assert socket.response.headers.get_all("connection") == ["Upgrade"]
            await socket.send(json.dumps({"content": message("hello")}))
            assert json.loads(await socket.recv())

        *_, last = [frame async for frame in partial]
    assert text_of(last.data) == "".join(f"word{number} " for number in range(40))
    assert await owner.process.wait() == 0
    async with asyncio.timeout(TAKEOVER_SECONDS):
        answer = await other.http.post("/run", json=run_of(busy, "hello"))
    assert texts(answer.json()) == ["You said hello"]
    assert len(await log_of(other.http, busy)) == 4


def shards_of(server: Server, owners: dict[int, str]) -> int:
    return list(owners.values()).count(server.url)


async def test_a_run_that_is_longer_than_the_grace_period_continues_with_another_server(servers: Servers) -> None:
    owner, other = await two(servers, grace_seconds=1)
    key = await new_session(servers, owner)
    started = await owner.http.post(path_of(key) + "/runs", json={"newMessage": message("slow 60")})
    async with asyncio.timeout(10):
        while not await log_of(other.http, key):
            await asyncio.sleep(0.02)
    assert await owner.stop() == 0
    run_id = started.json()["id"]
    async with other.http.stream("GET", f"/runs/{run_id}/events", headers={"accept": "text/event-stream"}) as response:
        *_, end = [frame async for frame in frames(response)]
    assert end.data["status"] == "succeeded"
    assert "stalled" not in end.data


async def test_the_last_server_stops_without_waiting(servers: Servers) -> None:
    only = await servers.start(grace_seconds=20)
    await servers.wait_until_shared(only)
    started = time.monotonic()
    assert await only.stop() == 0
    assert time.monotonic() - started < 2


async def test_servers_that_stop_together_give_their_runs_the_grace_period(servers: Servers) -> None:
    started = await two(servers, grace_seconds=20)
    running: list[asyncio.Task[httpx.Response]] = []
    for server in started:
        key = await new_session(servers, server)
        running.append(asyncio.create_task(server.http.post("/run", json=run_of(key, "slow 30"))))
    async with asyncio.timeout(10):
        while [replica["running"] for replica in await replicas_of(started[0])] != [1, 1]:
            await asyncio.sleep(0.02)

    ended = await asyncio.gather(*(server.stop() for server in started))
    assert list(ended) == [0, 0]
    assert [(await one).status_code for one in running] == [200, 200]
    assert await servers.owners() == {}


async def replicas_of(server: Server) -> list[Json]:
    return (await server.http.get("/replicas")).json()["replicas"]


async def test_a_second_ctrl_c_ends_a_server_that_waits_for_its_runs(servers: Servers) -> None:
    owner, other = await two(servers, grace_seconds=20)
    key = await new_session(servers, owner)
    await owner.http.post(path_of(key) + "/runs", json={"newMessage": message("slow 2000")})
    owner.signal(signal.SIGINT)
    async with asyncio.timeout(10):
        while shards_of(owner, await servers.owners()) != 1:
            await asyncio.sleep(0.02)
    owner.signal(signal.SIGINT)
    async with asyncio.timeout(5):
        await owner.process.wait()
    async with asyncio.timeout(10):
        while shards_of(other, await servers.owners()) != SHARDS:
            await asyncio.sleep(0.02)
