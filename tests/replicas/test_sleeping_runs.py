"""Runs that sleep, with several servers: the owner of the session wakes them, whoever that is then."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.replicas.requests import log_of, message, path_of
from tests.replicas.servers import Server, Servers


async def _sleep(server: Server, path: str, seconds: float) -> str:
    """Starts a run that sleeps, and returns its path."""
    assert (await server.http.post(path)).status_code == 200
    started = await server.http.post(f"{path}/runs", json={"newMessage": message(f"sleep {seconds}")})
    assert started.status_code == 202, started.text
    run = f"/runs/{started.json()['id']}"
    await _wait_for(server, run, "waiting")
    return run


async def _wait_for(server: Server, run: str, status: str) -> None:
    async with asyncio.timeout(30):
        while (await server.http.get(run)).json().get("status") != status:
            await asyncio.sleep(0.05)


async def test_a_sleeping_run_is_continued_by_the_next_owner(servers: Servers) -> None:
    owner = await servers.start()
    other = await servers.start()
    await servers.wait_until_shared(owner, other)
    key = await servers.key_of(owner)
    path = path_of(key)
    run = await _sleep(owner, path, 2.0)
    await owner.kill()
    await _wait_for(other, run, "succeeded")
    assert _answers(await log_of(other.http, key)) == [["timed_out", "time"]]


async def test_a_signal_reaches_the_owner_through_any_server(servers: Servers) -> None:
    owner = await servers.start()
    other = await servers.start()
    await servers.wait_until_shared(owner, other)
    key = await servers.key_of(owner)
    run = await _sleep(other, path_of(key), 60.0)
    once = {"Idempotency-Key": "k-1"}
    sent = await asyncio.gather(
        *(server.http.post(f"{run}/signals/go", json=1, headers=once) for server in (owner, other))
    )
    assert sorted(one.status_code for one in sent) == [200, 200]
    await _wait_for(other, run, "succeeded")
    assert _answers(await log_of(other.http, key)) == [["value"]]


def _answers(log: list[dict[str, Any]]) -> list[list[str]]:
    """The keys of the responses to calls."""
    parts = [part for event in log for part in event["content"]["parts"]]
    return [list(part["functionResponse"]["response"]) for part in parts if "functionResponse" in part]
