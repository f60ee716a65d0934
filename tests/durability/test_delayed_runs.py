"""Runs that start later while the server is killed: each starts once, and none early.

GREENROOM_DELAYED says how many, GREENROOM_SEED repeats a run of this test as far as time allows.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.durability.patient_client import PatientClient, kill_repeatedly, patient_client
from tests.durability.server_process import server_in
from tests.durability.sleeping_server import APP, LAST
from tests.seed import SEED

DELAYED = int(os.environ.get("GREENROOM_DELAYED", "60"))
_OF_SESSION = 5
"""Runs that may be due at the same time, and then wait for each other."""

_LONGEST = 4.0 + DELAYED / 100
_KILLS = 4 + DELAYED // 100

Json = dict[str, Any]


@pytest.mark.kill
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_each_delayed_run_starts_once(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    uri = request.getfixturevalue("empty_postgres_uri") if store == "postgres" else ""
    chance = random.Random(SEED)
    async with server_in(tmp_path, module="tests.durability.sleeping_server", GREENROOM_URI=uri) as server:
        await server.start()
        async with patient_client(server) as client:
            sessions = [f"/apps/{APP}/users/ann/sessions/s-{number}" for number in range(DELAYED // _OF_SESSION)]
            for session in sessions:
                await client.send("POST", session)
            killing = asyncio.create_task(kill_repeatedly(server, chance, times=_KILLS))
            async with asyncio.TaskGroup() as group:
                for number in range(DELAYED):
                    group.create_task(_run(client, sessions[number % len(sessions)], number, chance.random()))
            await killing
            for session in sessions:
                await _check(client, session)


async def _run(client: PatientClient, session: str, number: int, share: float) -> None:
    """Starts a run later, and waits for its end."""
    at = time.time() + share * _LONGEST
    body = {"newMessage": {"parts": [{"text": f"{at}"}]}, "startAt": at}
    reply = await client.send("POST", f"{session}/runs", json=body, headers={"Idempotency-Key": f"k-{number}"})
    assert reply.status_code == 202, reply.text
    run = f"/runs/{reply.json()['id']}"
    await client.wait_for_status(run, "succeeded", seconds=60 + DELAYED / 5, pause_seconds=0.1 + DELAYED / 200)
    assert (await client.send("GET", run)).json()["startedAt"] >= at


async def _check(client: PatientClient, session: str) -> None:
    """Each run has its message and one answer, and none of them is early."""
    events: list[Json] = (await client.send("GET", session)).json()["events"]
    assert len(events) == 2 * _OF_SESSION
    assert set(Counter(event["invocationId"] for event in events).values()) == {2}
    for message, answer in zip(events[::2], events[1::2], strict=True):
        assert message["invocationId"] == answer["invocationId"]
        assert message["timestamp"] >= float(message["content"]["parts"][0]["text"])
        assert answer["content"]["parts"][0]["text"] == LAST
