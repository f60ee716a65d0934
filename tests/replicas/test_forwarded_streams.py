"""Connections of forwarded requests: many at once, slow clients, clients that leave, large bodies."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks import procfs
from tests.replicas.conftest import Pair
from tests.replicas.requests import frames, log_of, path_of, run_of, sse, text_of, texts
from tests.replicas.servers import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

STREAMS = 100
CLIENTS = 5
FLOOD_KILOBYTES = 60_000
ALLOWED_GROWTH_BYTES = 5_000_000
_ESTABLISHED = "01"


def connections_to(server: Server) -> int:
    """The open connections that the server has accepted."""
    port = int(server.url.rpartition(":")[2])
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(line[1].rpartition(":")[2], 16) == port and line[3] == _ESTABLISHED for line in lines)


async def until_connections(server: Server, wanted: int) -> None:
    async with asyncio.timeout(10):
        while connections_to(server) > wanted:
            await asyncio.sleep(0.05)


async def test_many_streams_at_once(pair: Pair) -> None:
    keys = [await pair.servers.key_of(pair.owner) for _ in range(STREAMS)]
    limits = httpx.Limits(max_connections=STREAMS)
    async with httpx.AsyncClient(base_url=pair.other.url, timeout=60, limits=limits) as http:
        await asyncio.gather(*(http.post(path_of(key)) for key in keys))
        bodies = [run_of(key, "slow 4", streaming=True) for key in keys]
        got = await asyncio.gather(*(sse(http, "POST", "/run_sse", body) for body in bodies))
        words = [f"word{number} " for number in range(4)]
        for one in got:
            assert [text_of(frame.data) for frame in one] == [*words, "".join(words)]
            assert one[-1].seq == 2


async def test_a_slow_client_holds_the_owner_back(pair: Pair) -> None:
    """The forwarding server doesn't keep what the client doesn't read, and the owner drops it: it is in the log."""
    key = await pair.servers.key_of(pair.owner)
    await pair.other.http.post(path_of(key))
    await pair.other.http.post("/run", json=run_of(key, "flood 1000"))
    before = procfs.memory_bytes(pair.other.process.pid)
    body = run_of(key, f"flood {FLOOD_KILOBYTES}", streaming=True)
    async with pair.other.http.stream("POST", "/run_sse", json=body) as response:
        events = frames(response)
        await anext(events)
        run_path = f"/runs/{response.headers['x-run-id']}"
        async with asyncio.timeout(60):
            while (await pair.owner.http.get(run_path)).json()["status"] == "running":
                assert procfs.memory_bytes(pair.other.process.pid) - before < ALLOWED_GROWTH_BYTES
                await asyncio.sleep(0.1)
        rest = [frame async for frame in events]
    assert len(rest) < FLOOD_KILOBYTES
    assert rest[-1].seq == 4
    assert text_of(rest[-1].data) == "dry again"


@pytest.mark.parametrize("kind", ["run_sse", "events", "run"])
async def test_a_client_that_leaves_closes_the_connection_to_the_owner(pair: Pair, kind: str) -> None:
    key = await pair.servers.key_of(pair.owner)
    await pair.other.http.post(path_of(key))
    run = run_of(key, "slow 2000", streaming=True)
    requests: dict[str, dict[str, Any]] = {
        "run_sse": {"method": "POST", "url": "/run_sse", "json": run},
        "events": {"method": "GET", "url": path_of(key) + "/events", "headers": {"accept": "text/event-stream"}},
        "run": {"method": "POST", "url": "/run", "json": run},
    }
    begun = 0

    async def request() -> None:
        nonlocal begun
        async with httpx.AsyncClient(base_url=pair.other.url, timeout=60) as http, http.stream(**requests[kind]):
            begun += 1
            await asyncio.Event().wait()

    requesting = [asyncio.create_task(request()) for _ in range(CLIENTS)]
    async with asyncio.timeout(10):
        while begun < CLIENTS:
            if kind == "run":
                runs = await pair.owner.http.get("/runs", params={"session_id": key.session_id})
                begun = len(runs.json()["runs"])
            await asyncio.sleep(0.05)
    before = connections_to(pair.owner)
    for task in requesting:
        task.cancel()
    await asyncio.gather(*requesting, return_exceptions=True)
    await until_connections(pair.owner, before - CLIENTS)
    await pair.owner.http.delete(path_of(key))


@pytest.mark.parametrize("size", [100_000, 8_000_000])
async def test_a_large_body_is_forwarded(pair: Pair, size: int) -> None:
    key = await pair.servers.key_of(pair.owner)
    text = "x" * size
    created = await pair.other.http.post(path_of(key), json={"state": {"text": text}})
    assert created.status_code == 200, created.text
    assert (await pair.owner.http.get(path_of(key))).json()["state"] == {"text": text}
    said = await pair.other.http.post("/run", json=run_of(key, text[:500_000]))
    assert texts(said.json()) == [f"You said {text[:500_000]}"], said.text[:200]


async def test_a_body_that_is_too_large_is_refused_by_the_first_server(pair: Pair) -> None:
    key = await pair.servers.key_of(pair.owner)
    await pair.other.http.post(path_of(key))
    body = b'{"a": "' + bytes(70_000_000)
    refused = await pair.other.http.post("/run", content=body, headers={"content-type": "application/json"})
    assert refused.status_code == 413
    assert await log_of(pair.owner.http, key) == []


async def test_a_large_artifact_is_uploaded_and_read_on_any_server(pair: Pair) -> None:
    key = await pair.servers.key_of(pair.owner)
    await pair.owner.http.post(path_of(key))
    path = path_of(key) + "/artifacts/film.bin"
    data = bytes(range(256)) * 80_000
    saved = await pair.other.http.put(path, content=data, headers={"content-type": "application/octet-stream"})
    assert saved.status_code in (200, 201), saved.text
    for server in (pair.owner, pair.other):
        async with server.http.stream("GET", f"{path}/versions/0/content") as response:
            assert await response.aread() == data
