"""Messages into running turns while the server is killed: each is read once, in order, and none is lost.

GREENROOM_STEERED says how many, GREENROOM_SEED repeats a run of this test as far as time allows.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.durability.server_process import ServerProcess, server_in
from tests.durability.steered_server import APP
from tests.seed import SEED

STEERED = int(os.environ.get("GREENROOM_STEERED", "30"))
_PER_SESSION = 10
_KILLS = 2 + STEERED // 25

Json = dict[str, Any]


@pytest.mark.kill
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_each_message_is_read_once(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    uri = request.getfixturevalue("empty_postgres_uri") if store == "postgres" else ""
    chance = random.Random(SEED)
    async with server_in(tmp_path, module="tests.durability.steered_server", GREENROOM_URI=uri) as server:
        await server.start()
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            async with asyncio.TaskGroup() as group:
                group.create_task(_kill(server, chance))
                talks = [
                    group.create_task(_talk(http, f"s-{number}", random.Random(chance.random())))
                    for number in range(STEERED // _PER_SESSION)
                ]
            await _wait_until_idle(http)
            read = [await _check(http, f"s-{number}", talk.result()) for number, talk in enumerate(talks)]
    assert sum(read) > 0, "no message was read within a turn"


async def _kill(server: ServerProcess, chance: random.Random) -> None:
    for _ in range(_KILLS):
        await asyncio.sleep(chance.uniform(0.05, 0.6))
        await server.kill()
        await server.start(wait=False)


async def _talk(http: httpx.AsyncClient, session: str, chance: random.Random) -> list[str]:
    """Sends messages, each when the one before is stored. Returns the ids of their runs."""
    path = f"/apps/{APP}/users/ann/sessions/{session}"
    await _repeat(http, "POST", path)
    runs: list[str] = []
    for number in range(_PER_SESSION):
        if number % 3 == 0:
            await _send(http, path, "go", key=f"{session}-go-{number}")
        await asyncio.sleep(chance.uniform(0.0, 0.15))
        sent = await _send(http, path, f"m-{number}", key=f"{session}-{number}", multitaskStrategy="steer")
        runs.append(sent["id"])
    return runs


async def _send(http: httpx.AsyncClient, path: str, text: str, *, key: str, **more: str) -> Json:
    body = {"newMessage": {"parts": [{"text": text}]}, **more}
    reply = await _repeat(http, "POST", f"{path}/runs", json=body, headers={"Idempotency-Key": key})
    assert reply.status_code == 202, reply.text
    return reply.json()


async def _repeat(http: httpx.AsyncClient, method: str, path: str, **request: Any) -> httpx.Response:
    """Sends a request until it is answered: the server may be killed meanwhile."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await http.request(method, path, **request)
            except httpx.TransportError:
                await asyncio.sleep(0.02)


async def _wait_until_idle(http: httpx.AsyncClient) -> None:
    async with asyncio.timeout(60 + STEERED / 5):
        while (await _repeat(http, "GET", "/runs?status=queued&status=running")).json()["runs"]:
            await asyncio.sleep(0.05)


async def _check(http: httpx.AsyncClient, session: str, runs: list[str]) -> int:
    """Returns the number of messages that were read within the turn of another run."""
    events: list[Json] = (await http.get(f"/apps/{APP}/users/ann/sessions/{session}")).json()["events"]
    texts = ["".join(part.get("text", "") for part in event["content"]["parts"]) for event in events]
    messages = [text for event, text in zip(events, texts, strict=True) if event["author"] == "user"]
    assert [text for text in messages if text != "go"] == [f"m-{number}" for number in range(len(runs))]

    read = 0
    for number, run_id in enumerate(runs):
        record = (await http.get(f"/runs/{run_id}")).json()
        at = texts.index(f"m-{number}")
        assert record["status"] == "succeeded"
        if "readAtSeq" in record:
            read += 1
            assert (record["readAtSeq"], record["steeredInto"]) == (at + 1, events[at]["invocationId"])
            assert events[at + 1]["invocationId"] == record["steeredInto"]
        else:
            assert "steeredInto" not in record
            assert events[at]["invocationId"] == run_id

    for event, text in zip(events, texts, strict=True):
        if text == "go":
            said = [part for one in events if one["invocationId"] == event["invocationId"] for part in _texts_of(one)]
            assert said == ["worked"]
    return read


def _texts_of(event: Json) -> list[str]:
    parts = event["content"]["parts"] if event["author"] != "user" else ()
    return [part["text"] for part in parts if "text" in part]
