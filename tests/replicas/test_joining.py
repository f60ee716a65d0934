"""A server that joins others while most of their shards have runs."""

from __future__ import annotations

import asyncio
from collections import Counter

from greenroom.records.session import SessionKey
from tests.replicas.requests import Json, message, path_of
from tests.replicas.servers import APP, Server, Servers

RUNS = 200
"""More shards have one than the first server may keep."""


async def test_a_server_gets_its_share_without_interrupting_runs(servers: Servers) -> None:
    first = await servers.start()
    await asyncio.gather(*(_start(first, number) for number in range(RUNS)))
    second = await servers.start()
    await servers.wait_until_shared(first, second)
    assert await _outcomes(second) == {("succeeded", 1): RUNS}


async def _start(server: Server, number: int) -> None:
    key = SessionKey(APP, "ann", f"s-{number}")
    created = await server.http.post(path_of(key))
    assert created.status_code == 200, created.text
    started = await server.http.post(path_of(key) + "/runs", json={"newMessage": message("wait 5")})
    assert started.status_code == 202, started.text


async def _outcomes(server: Server) -> Counter[tuple[str, int]]:
    """Statuses and attempts of all runs, when they have ended."""
    async with asyncio.timeout(30):
        while True:
            runs: list[Json] = (await server.http.get(f"/runs?limit={RUNS}")).json()["runs"]
            if all(run["status"] not in ("queued", "running") for run in runs):
                return Counter((run["status"], run["attempts"]) for run in runs)
            await asyncio.sleep(0.1)
