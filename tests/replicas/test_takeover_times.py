"""The time in which the sessions of a server that ends are served by another one.

GREENROOM_TAKEOVERS is the number of measurements of each way to end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import time

import pytest

from greenroom.postgres.connection import LEASE_SECONDS
from greenroom.records.session import SessionKey
from tests.replicas.requests import path_of, run_of, texts
from tests.replicas.servers import Server, Servers

ROUNDS = int(os.environ.get("GREENROOM_TAKEOVERS", "1"))
SESSIONS = 10

MOST_SECONDS = {
    signal.SIGKILL: (LEASE_SECONDS + 1, LEASE_SECONDS + 1),
    signal.SIGTERM: (1.0, 1.0),
    # A request that waits for the paused server is sent to the next one when that has been seen.
    signal.SIGSTOP: (LEASE_SECONDS + 1, LEASE_SECONDS + 2.5),
}
"""Limits of the median times until all shards have other owners, and until requests are answered by them."""


@pytest.mark.kill
@pytest.mark.timeout(60 * (ROUNDS + 1))
@pytest.mark.parametrize("end", MOST_SECONDS)
async def test_sessions_of_a_server_that_ends_are_served_by_another(servers: Servers, end: signal.Signals) -> None:
    survivor = await servers.start(grace_seconds=5)
    taken: list[float] = []
    answered: list[float] = []
    for _ in range(ROUNDS):
        ending = await servers.start(grace_seconds=5)
        await servers.wait_until_shared(survivor, ending)
        keys = [await _new_session(servers, ending) for _ in range(SESSIONS)]
        ending.signal(end)
        signalled_at = time.monotonic()
        asking = [asyncio.create_task(_answered_at(survivor, key)) for key in keys]
        while ending.url in (await servers.owners()).values():
            await asyncio.sleep(0.01)
        taken.append(time.monotonic() - signalled_at)
        answered += [at - signalled_at for at in await asyncio.gather(*asking)]
        await ending.kill()
        await servers.wait_until_shared(survivor)

    print(f"{end.name}: shards were taken in {_summary(taken)}; requests were answered in {_summary(answered)}")
    most_taken, most_answered = MOST_SECONDS[end]
    # Medians, since a busy machine delays any single one.
    assert statistics.median(taken) < most_taken
    assert statistics.median(answered) < most_answered


async def _new_session(servers: Servers, owner: Server) -> SessionKey:
    key = await servers.key_of(owner)
    created = await owner.http.post(path_of(key))
    assert created.status_code == 200, created.text
    return key


async def _answered_at(server: Server, key: SessionKey) -> float:
    answer = await server.http.post("/run", json=run_of(key, "hello"))
    assert texts(answer.json()) == ["You said hello"], answer.text
    return time.monotonic()


def _summary(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f} s (median), {max(seconds):.2f} s (longest of {len(seconds)})"
