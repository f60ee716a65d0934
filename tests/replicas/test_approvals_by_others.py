"""Calls that several people approve, with several servers: votes outlive the server that counted them."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from tests.replicas.requests import log_of, message, path_of
from tests.replicas.servers import Server, Servers


async def _request_in(server: Server, path: str) -> dict[str, Any]:
    """Starts a run that asks, and returns its request as the server lists it."""
    assert (await server.http.post(path)).status_code == 200
    started = await server.http.post(f"{path}/runs", json={"newMessage": message("pay two")})
    assert started.status_code == 202, started.text
    async with asyncio.timeout(30):
        while not (listed := (await server.http.get("/requests")).json()["requests"]):
            await asyncio.sleep(0.05)
    [request] = listed
    return request


async def _answer(server: Server, request: dict[str, Any], user: str) -> httpx.Response:
    body = {"confirmed": True, "userId": user}
    return await server.http.post(f"/requests/{request['id']}/answer", json=body)


async def test_votes_through_two_servers_count_after_the_owner_was_killed(servers: Servers) -> None:
    owner = await servers.start()
    other = await servers.start()
    await servers.wait_until_shared(owner, other)
    key = await servers.key_of(owner)
    request = await _request_in(other, path_of(key))

    assert (await _answer(other, request, "bob")).status_code == 200
    assert (await _answer(owner, request, "bob")).status_code == 403
    await owner.kill()
    async with asyncio.timeout(30):
        while (again := await _answer(other, request, "bob")).status_code == 503:
            await asyncio.sleep(0.1)
    assert again.status_code == 403
    assert (await _answer(other, request, "carol")).json()["request"]["confirmed"] is True

    async with asyncio.timeout(30):
        while (await other.http.get(f"/runs/{request['runId']}")).json()["status"] != "succeeded":
            await asyncio.sleep(0.05)
    parts = [part for event in await log_of(other.http, key) for part in event["content"]["parts"]]
    responses = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
    assert responses[1:] == [{"confirmed": True}, {"paid": 70}]
    closed = (await other.http.get(f"/requests/{request['id']}")).json()
    assert [answer["userId"] for answer in closed["answers"]] == ["bob", "carol"]
