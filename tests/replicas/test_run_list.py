"""`GET /runs` as a stream shows the runs of all servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from greenroom.postgres.notifications import RUN_LISTENER_LOCKS, RUNS_CHANNEL
from tests.replicas.conftest import Pair
from tests.replicas.requests import Frame, frames, message, path_of, run_of
from tests.replicas.servers import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

_LISTENING = f"SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = {RUN_LISTENER_LOCKS}"


@asynccontextmanager
async def watching(server: Server, query: str = "") -> AsyncGenerator[AsyncIterator[Frame]]:
    """The frames of the stream after the first page."""
    async with server.http.stream("GET", f"/runs{query}", headers={"accept": "text/event-stream"}) as response:
        stream = frames(response)
        assert (await anext(stream)).kind == "snapshot"
        yield stream


async def statuses(stream: AsyncIterator[Frame], *, until: str) -> list[str]:
    """The statuses of changed runs, until one is as expected. They may come with a page: it is sent again when the other
    server has noticed that somebody watches.
    """
    seen: list[str] = []
    async with asyncio.timeout(10):
        while until not in seen:
            frame = await anext(stream)
            seen += [run["status"] for run in frame.data.get("runs", [frame.data])]
    return seen


async def test_runs_of_the_other_server_are_shown_within_a_second(pair: Pair) -> None:
    key = await pair.servers.key_of(pair.owner)
    await pair.owner.http.post(path_of(key))
    elsewhere = await pair.servers.key_of(pair.owner)
    await pair.owner.http.post(path_of(elsewhere))
    async with watching(pair.other, f"?session_id={key.session_id}") as stream:
        await pair.owner.http.post("/run", json=run_of(elsewhere, "hello"))
        path = path_of(key) + "/runs"
        started = await pair.owner.http.post(path, json={"newMessage": message("slow 2000")})
        at = time.monotonic()
        assert await statuses(stream, until="running") == ["running"]
        assert time.monotonic() - at < 1
        await pair.owner.http.post(f"/runs/{started.json()['id']}/cancel")
        at = time.monotonic()
        assert set(await statuses(stream, until="cancelled")) <= {"running", "cancelled"}
        assert time.monotonic() - at < 1


async def test_runs_of_the_watching_server_are_shown_as_before(pair: Pair) -> None:
    key = await pair.servers.key_of(pair.other)
    await pair.other.http.post(path_of(key))
    async with watching(pair.other, f"?session_id={key.session_id}") as stream:
        await pair.other.http.post("/run", json=run_of(key, "hello"))
        first = await statuses(stream, until="succeeded")
        await pair.other.http.post("/run", json=run_of(key, "pay"))
        second = await statuses(stream, until="waiting")
    assert set(first) <= {"running", "succeeded"}
    assert set(second) <= {"running", "waiting", "succeeded"}


async def test_the_page_is_sent_again_after_a_lost_connection_for_notifications(pair: Pair) -> None:
    key = await pair.servers.key_of(pair.owner)
    await pair.owner.http.post(path_of(key))
    async with watching(pair.other, f"?session_id={key.session_id}") as stream:
        await pair.owner.http.post("/run", json=run_of(key, "hello"))
        await statuses(stream, until="succeeded")
        await pair.servers.database.fetch(f"SELECT pg_terminate_backend(pid) FROM ({_LISTENING}) AS listening")
        async with asyncio.timeout(10):
            while (await anext(stream)).kind != "snapshot":
                pass
        await pair.owner.http.post("/run", json=run_of(key, "pay"))
        await statuses(stream, until="waiting")


async def test_nothing_is_sent_while_nobody_watches(pair: Pair) -> None:
    key = await pair.servers.key_of(pair.owner)
    await pair.owner.http.post(path_of(key))
    async with watching(pair.other) as stream:
        await pair.owner.http.post("/run", json=run_of(key, "hello"))
        await statuses(stream, until="succeeded")
    async with asyncio.timeout(10):
        while await pair.servers.database.fetch(_LISTENING):
            await asyncio.sleep(0.05)
    await pair.servers.database.fetch("SELECT pg_sleep(1.5)")  # until both servers have surveyed the locks

    received: list[str] = []
    connection = await asyncpg.connect(pair.servers.uri)
    try:
        await connection.add_listener(RUNS_CHANNEL, lambda *arguments: received.append(arguments[-1]))
        await pair.owner.http.post("/run", json=run_of(key, "hello"))
        await pair.other.http.post("/run", json=run_of(key, "again"))
        await connection.execute("SELECT pg_sleep(0.5)")
    finally:
        await connection.close()
    assert received == []
