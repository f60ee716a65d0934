"""Retries and rewinds with several servers: any of them takes the request, and the owner of the session does it."""

from __future__ import annotations

import asyncio
from typing import Any

from greenroom.client.async_client import AsyncClient
from greenroom.records.run import RunStatus
from tests.replicas.requests import log_of, message, path_of
from tests.replicas.servers import Server, Servers


async def _cancelled(server: Server, path: str) -> str:
    """Cancels a run while its model answers, and returns its id."""
    assert (await server.http.post(path)).status_code == 200
    started = await server.http.post(f"{path}/runs", json={"newMessage": message("wait 0.5")})
    assert started.status_code == 202, started.text
    run_id = started.json()["id"]
    assert (await server.http.post(f"/runs/{run_id}/cancel")).json()["status"] == "cancelled"
    return run_id


async def _ended(server: Server, run_id: str) -> dict[str, Any]:
    async with asyncio.timeout(30):
        while (run := (await server.http.get(f"/runs/{run_id}")).json()).get("status") in ("queued", "running"):
            await asyncio.sleep(0.05)
    return run


async def test_any_server_takes_a_retry_and_a_rewind(servers: Servers) -> None:
    owner = await servers.start()
    other = await servers.start()
    await servers.wait_until_shared(owner, other)
    key = await servers.key_of(owner)
    path = path_of(key)
    run_id = await _cancelled(other, path)
    once = {"Idempotency-Key": "k-1"}
    replies = await asyncio.gather(
        *(server.http.post(f"/runs/{run_id}/retry", headers=once) for server in (other, owner, other))
    )
    assert [reply.status_code for reply in replies] == [202] * 3
    run = await _ended(other, run_id)
    assert (run["status"], run["retries"]) == ("succeeded", 1)

    rewound = await other.http.post(f"{path}/rewind", json={"rewindBeforeInvocationId": run_id})
    assert rewound.status_code == 200, rewound.text
    log = await log_of(owner.http, key)
    assert log[-1]["actions"]["rewindBeforeInvocationId"] == run_id


async def test_retry_is_resumed_by_the_next_owner(servers: Servers) -> None:
    owner = await servers.start()
    other = await servers.start()
    await servers.wait_until_shared(owner, other)
    run_id = await _cancelled(other, path_of(await servers.key_of(owner)))
    assert (await other.http.post(f"/runs/{run_id}/retry")).status_code == 202
    await owner.kill()
    run = await _ended(other, run_id)
    assert (run["status"], run["retries"]) == ("succeeded", 1)


async def test_any_server_retries_the_runs_of_all(servers: Servers) -> None:
    first = await servers.start()
    second = await servers.start()
    await servers.wait_until_shared(first, second)
    paths = [path_of(await servers.key_of(one)) for one in (second, first, second)]
    ids = [await _cancelled(first, path) for path in paths]
    assert (await first.http.post(f"{paths[2]}/runs", json={"newMessage": message("more")})).status_code == 202
    async with AsyncClient(first.url) as client:
        result = await client.retry_runs(status=["cancelled"])
    assert [run.id for run in result.started] == [ids[1], ids[0]]
    assert [(one.run_id, one.code) for one in result.refused] == [(ids[2], "NotRetryable")]
    for run_id in ids[:2]:
        run = await _ended(first, run_id)
        assert (run["status"], run["retries"]) == (RunStatus.SUCCEEDED, 1)
