"""Runs that fail and are retried while the server is killed: each retry is done once, and no payment is repeated.

GREENROOM_RETRIES says how many, GREENROOM_SEED repeats a run of this test as far as time allows.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.durability.retry_server import APP, LAST
from tests.durability.server_process import ServerProcess, server_in
from tests.seed import SEED

RUNS = int(os.environ.get("GREENROOM_RETRIES", "20"))
_KILLS = 3 + RUNS // 40
_AT_ONCE = 20

Json = dict[str, Any]


class _Client(httpx.AsyncClient):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.at_once = asyncio.Semaphore(_AT_ONCE)

    async def repeat(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Sends a request until it is answered: the server may be killed meanwhile."""
        async with self.at_once, asyncio.timeout(60):
            while True:
                try:
                    return await self.request(method, path, **request)
                except httpx.TransportError:
                    await asyncio.sleep(0.05)

    async def status(self, run_id: str, wanted: str) -> Json:
        async with asyncio.timeout(60 + RUNS / 5):
            while (run := (await self.repeat("GET", f"/runs/{run_id}")).json())["status"] != wanted:
                await asyncio.sleep(0.05 + RUNS / 1000)
        return run


@pytest.mark.kill
async def test_each_failed_run_is_retried_once(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    async with server_in(tmp_path, module="tests.durability.retry_server") as server:
        await server.start()
        async with _Client(base_url=server.url, timeout=60) as http:
            killing = asyncio.create_task(_kill(server, chance))
            async with asyncio.TaskGroup() as group:
                retried = [group.create_task(_fail_and_retry(http, number)) for number in range(RUNS)]
            await killing
            for number, one in enumerate(retried):
                run = one.result()
                assert run["retries"] == 1, run
                await _check(http, number, run)
    payments = Counter((tmp_path / "payments.txt").read_text().split())
    assert max(payments.values()) == 1, payments


async def _kill(server: ServerProcess, chance: random.Random) -> None:
    for _ in range(_KILLS):
        await asyncio.sleep(chance.uniform(0.1, 0.6))
        await server.kill()
        await server.start()


async def _fail_and_retry(http: _Client, number: int) -> Json:
    """Starts a run, retries it when it has failed, every other one in a fork, and returns the record of its end."""
    session = f"/apps/{APP}/users/ann/sessions/s-{number}"
    await http.repeat("POST", session)
    body = {"newMessage": {"parts": [{"text": "go"}]}}
    started = await http.repeat("POST", f"{session}/runs", json=body, headers={"Idempotency-Key": f"start-{number}"})
    assert started.status_code == 202, started.text
    run_id = started.json()["id"]
    await http.status(run_id, "failed")

    again = {"json": {"fork": number % 2 == 1}, "headers": {"Idempotency-Key": f"retry-{number}"}}
    retried = await http.repeat("POST", f"/runs/{run_id}/retry", **again)
    assert retried.status_code == 202, retried.text
    return await http.status(retried.json()["id"], "succeeded")


async def _check(http: _Client, number: int, run: Json) -> None:
    session = f"/apps/{APP}/users/ann/sessions/{run['sessionId']}"
    events: list[Json] = (await http.get(f"{session}?events=all")).json()["events"]
    assert sum("greenroom:retry" in event.get("customMetadata", {}) for event in events) == 1
    parts = [part for event in events for part in event.get("content", {}).get("parts", ())]
    assert [part["text"] for part in parts if "text" in part] == ["go", LAST]
    sent = [
        part["functionResponse"]["response"] for part in parts if part.get("functionResponse", {}).get("name") == "send"
    ]
    assert sent[-1] == {"sent": "yes"}

    listed = (await http.get("/runs", params={"session_id": run["sessionId"]})).json()["runs"]
    assert [one["id"] for one in listed] == [run["id"]]
    first = (await http.get("/runs", params={"session_id": f"s-{number}"})).json()["runs"]
    assert [one["status"] for one in first] == ["failed" if number % 2 else "succeeded"]
