"""Messages into running turns, with several servers: any of them takes a message, and owners are killed meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from greenroom.records.session import SessionKey
from tests.replicas.requests import Json, frames, log_of, message, path_of, run_of, text_of
from tests.replicas.servers import Server, Servers

_AGENTS = Path(__file__).parent / "steered_agents"
_APP = "worker"


async def _two(servers: Servers) -> tuple[Server, Server, SessionKey]:
    """The owner of a session, another server, and the session."""
    owner = await servers.start(agents=_AGENTS)
    other = await servers.start(agents=_AGENTS)
    await servers.wait_until_shared(owner, other)
    key = await servers.key_of(owner, app=_APP)
    assert (await owner.http.post(path_of(key))).status_code == 200
    return owner, other, key


async def _start(http: httpx.AsyncClient, key: SessionKey, text: str, **more: str) -> Json:
    body = {"newMessage": message(text), **more}
    while True:
        reply = await http.post(f"{path_of(key)}/runs", json=body, headers={"idempotency-key": text})
        if reply.status_code == 202:
            return reply.json()
        assert reply.status_code == 503, reply.text
        await asyncio.sleep(0.05)


async def _wait_until_ended(http: httpx.AsyncClient, run_id: str) -> Json:
    async with asyncio.timeout(30):
        while (run := (await http.get(f"/runs/{run_id}")).json()).get("status") in (None, "queued", "running"):
            await asyncio.sleep(0.05)
    return run


async def test_messages_through_another_server_are_read_once_after_their_owner_was_killed(servers: Servers) -> None:
    owner, other, key = await _two(servers)
    started = await _start(other.http, key, "work 20")
    steering: list[Json] = []
    for number in range(10):
        steering.append(await _start(other.http, key, f"m-{number}", multitaskStrategy="steer"))
        if number == 4:
            await owner.kill()

    runs = [await _wait_until_ended(other.http, one["id"]) for one in (started, *steering)]
    assert {run["status"] for run in runs} == {"succeeded"}
    log = await log_of(other.http, key)
    messages = [text_of(event) for event in log if event["author"] == "user"]
    assert messages == ["work 20", *(f"m-{number}" for number in range(10))]
    for number, run in enumerate(runs[1:]):
        event = log[run["readAtSeq"] - 1]
        assert text_of(event) == f"m-{number}"
        assert event["invocationId"] == run["steeredInto"] == started["id"]
    assert text_of(log[-1]) == f"told {' '.join(messages[1:])}"


async def test_a_forwarded_stream_of_a_message_continues_at_the_next_owner(servers: Servers) -> None:
    owner, other, key = await _two(servers)
    started = await _start(other.http, key, "work 10")
    body = run_of(key, "be brief", multitaskStrategy="steer", streaming=True)
    got: list[tuple[int | None, str]] = []
    async with other.http.stream("POST", "/run_sse", json=body) as response:
        async for frame in frames(response):
            if not got:
                await owner.kill()
            if not frame.data.get("partial"):
                got.append((frame.seq, text_of(frame.data)))
                assert frame.data["invocationId"] == started["id"]

    log = await log_of(other.http, key)
    at = [text_of(event) for event in log].index("be brief")
    assert got == [(seq, text_of(event)) for seq, event in enumerate(log[at:], at + 1)]
    assert got[-1][1] == "told be brief"
