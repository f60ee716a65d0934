"""Servers that end while others forward requests to them."""

from __future__ import annotations

import asyncio
import signal
from typing import Any
from uuid import uuid4

import pytest

from greenroom.postgres.connection import LEASE_SECONDS
from greenroom.records.session import SessionKey
from greenroom.records.shard import shard_of
from tests.replicas.requests import Json, frames, log_of, message, path_of, run_of, text_of, texts
from tests.replicas.servers import Server, Servers

WORDS = 60  # which take three seconds


async def two(servers: Servers) -> tuple[Server, Server]:
    first = await servers.start()
    second = await servers.start()
    await servers.wait_until_shared(first, second)
    return first, second


def whole_text() -> str:
    return "".join(f"word{number} " for number in range(WORDS))


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
async def test_a_stream_continues_after_its_owner_has_ended(servers: Servers, end: signal.Signals) -> None:
    owner, other = await two(servers)
    key = await servers.key_of(owner)
    await other.http.post(path_of(key))
    body = run_of(key, f"slow {WORDS}", streaming=True)
    seqs: list[int] = []
    got: list[Json] = []
    async with other.http.stream("POST", "/run_sse", json=body) as response:
        run_id = response.headers["x-run-id"]
        async for frame in frames(response):
            got.append(frame.data)
            if len(got) == 5:
                owner.signal(end)
            if frame.seq is not None:
                seqs.append(frame.seq)

    assert seqs == [2], got[-1]
    assert text_of(got[-1]) == whole_text()
    assert got[-1] == (await log_of(other.http, key))[-1]
    assert len(await log_of(other.http, key)) == 2
    assert (await other.http.get(f"/runs/{run_id}")).json()["status"] == "succeeded"


async def test_streams_of_an_owner_that_has_lost_the_session_say_where_to_resume(servers: Servers) -> None:
    owner, _ = await two(servers)
    key = await servers.key_of(owner)
    await owner.http.post(path_of(key))
    body = run_of(key, "slow 20", streaming=True)
    async with owner.http.stream("POST", "/run_sse", json=body) as response:
        run_id = response.headers["x-run-id"]
        events = asyncio.create_task(_ended_stream(owner, f"/runs/{run_id}/events"))
        got: list[Json] = []
        async for frame in frames(response):
            got.append(frame.data)
            if len(got) == 3:
                await servers.database.fetch("UPDATE shards SET epoch = epoch + 1 WHERE shard = ?", shard_of(key))
    resume = got[-1]["problem"]["resume"]
    assert resume == {"path": f"/runs/{run_id}/events", "lastEventId": "0"}
    assert "event: end" not in await events

    async with owner.http.stream("GET", resume["path"], headers={"accept": "text/event-stream"}) as response:
        rest = [frame async for frame in frames(response)]
    assert rest[-1].kind == "end"
    assert rest[-1].data["status"] == "succeeded"
    assert [frame.seq for frame in rest if frame.seq is not None] == [1, 2]


async def _ended_stream(server: Server, path: str) -> str:
    """All of a stream that has a proper end."""
    return (await server.http.get(path, headers={"accept": "text/event-stream"})).text


async def test_the_events_of_a_background_run_continue(servers: Servers) -> None:
    """Those of the run, and those of its session."""
    owner, other = await two(servers)
    key = await servers.key_of(owner)
    await other.http.post(path_of(key))
    await other.http.post("/run", json=run_of(key, "hello"))
    started = await other.http.post(path_of(key) + "/runs", json={"newMessage": message(f"slow {WORDS}")})
    run_id = started.json()["id"]
    are_read = asyncio.Barrier(3)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        reading = [
            group.create_task(_frames_of_run(other, path, run_id, are_read))
            for path in (f"/runs/{run_id}/events", f"{path_of(key)}/events")
        ]
        await are_read.wait()
        await owner.kill()

    for task in reading:
        got = task.result()
        assert [frame.seq for frame in got if frame.seq is not None] == list(range(got[0].seq, 5))
        assert text_of(got[-2].data) == whole_text()


async def _frames_of_run(server: Server, path: str, run_id: str, are_read: asyncio.Barrier) -> list[Any]:
    """The events and ends of a stream until the run has ended. are_read: waited for when the run's message was read."""
    got: list[Any] = []
    async with server.http.stream("GET", path, headers={"accept": "text/event-stream"}) as response:
        async for frame in frames(response):
            if frame.seq is not None or frame.kind == "end":
                got.append(frame)
            if frame.seq is not None and frame.seq == 3:
                await are_read.wait()
            if frame.kind == "end" and frame.data["id"] == run_id:
                break
    return got


async def test_a_run_that_is_waited_for_is_answered_by_the_next_owner(servers: Servers) -> None:
    owner, other = await two(servers)
    key = await servers.key_of(owner)
    await other.http.post(path_of(key))
    running = asyncio.create_task(other.http.post("/run", json=run_of(key, f"slow {WORDS}")))
    async with asyncio.timeout(20):
        while not await log_of(other.http, key):
            await asyncio.sleep(0.05)
    await owner.kill()
    answer = await running
    assert answer.status_code == 200, answer.text
    assert texts(answer.json()) == [whole_text()]
    assert texts(await log_of(other.http, key)) == [f"slow {WORDS}", whole_text()]


async def test_a_new_request_waits_for_the_next_owner(servers: Servers) -> None:
    owner, other = await two(servers)
    keys = [await servers.key_of(owner) for _ in range(5)]
    for key in keys:
        await owner.http.post(path_of(key))
    await owner.kill()
    answers = await asyncio.gather(*(other.http.post("/run", json=run_of(key, "hello")) for key in keys))
    assert [answer.status_code for answer in answers] == [200] * 5
    for key in keys:
        assert texts(await log_of(other.http, key)) == ["hello", "You said hello"]


async def test_three_servers_delete_a_user_and_balance_their_shares(servers: Servers) -> None:
    started = [await servers.start() for _ in range(3)]
    await servers.wait_until_shared(*started)
    for server in started * 2:
        created = await server.http.post("/apps/desk/users/ben/sessions")
        assert created.status_code == 200, created.text
        key = SessionKey("desk", "ben", created.json()["id"])
        background = {"newMessage": message("slow 2000")}
        assert (await server.http.post(path_of(key) + "/runs", json=background)).status_code == 202
    deleted = await started[0].http.delete("/apps/desk/users/ben")
    assert deleted.status_code == 200, deleted.text
    for server in started:
        assert (await server.http.get("/apps/desk/users/ben/sessions")).json() == []
        assert (await server.http.get("/runs?user_id=ben")).json()["runs"] == []


async def test_a_server_without_other_servers_owns_everything(servers: Servers) -> None:
    only = await servers.start()
    await servers.wait_until_shared(only)
    for number in range(3):
        session = (await only.http.post("/apps/desk/users/ann/sessions")).json()
        body = run_of(await servers.key_of(only), "hello") | {"sessionId": session["id"]}
        assert texts((await only.http.post("/run", json=body)).json()) == ["You said hello"], number


async def test_an_owner_that_cannot_be_reached_is_not_waited_for_forever(servers: Servers) -> None:
    """Another server can't take the session, since its owner lives and has PostgreSQL."""
    unreachable = "http://127.0.0.1:1"
    owner = await servers.start("--replica-address", unreachable)
    other = await servers.start()
    async with asyncio.timeout(20):
        while unreachable not in (owners := set((await servers.owners()).values())) or other.url not in owners:
            await asyncio.sleep(0.05)
    async with asyncio.timeout(20):
        while True:
            key = SessionKey("desk", "ann", uuid4().hex)
            if (await servers.owners())[shard_of(key)] == unreachable:
                break
    began = asyncio.get_running_loop().time()
    refused = await other.http.post("/run", json=run_of(key, "hello"))
    assert refused.status_code == 503
    assert refused.json()["code"] == "OwnershipLost"
    assert asyncio.get_running_loop().time() - began < LEASE_SECONDS + 4
    assert (await owner.http.post(path_of(key))).status_code == 200
