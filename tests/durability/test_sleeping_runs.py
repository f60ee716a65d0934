"""Runs that sleep while the server is killed: each continues once, and none early.

GREENROOM_SLEEPERS says how many, GREENROOM_SEED repeats a run of this test as far as time allows.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.durability.patient_client import PatientClient, kill_repeatedly, patient_client
from tests.durability.server_process import server_in
from tests.durability.sleeping_server import APP, FLOW, LAST
from tests.seed import SEED

SLEEPERS = int(os.environ.get("GREENROOM_SLEEPERS", "60"))
_LONGEST = 4.0 + SLEEPERS / 100
_KILLS = 4 + SLEEPERS // 100

Json = dict[str, Any]


@pytest.mark.kill
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_each_sleeping_run_continues_once(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    uri = request.getfixturevalue("empty_postgres_uri") if store == "postgres" else ""
    chance = random.Random(SEED)
    async with server_in(tmp_path, module="tests.durability.sleeping_server", GREENROOM_URI=uri) as server:
        await server.start()
        async with patient_client(server) as client:
            killing = asyncio.create_task(kill_repeatedly(server, chance, times=_KILLS))
            async with asyncio.TaskGroup() as group:
                sleeping = [group.create_task(_sleep(client, n, chance.random())) for n in range(SLEEPERS)]
            await killing
            for one in sleeping:
                await _check(client, one.result())


async def _sleep(client: PatientClient, number: int, share: float) -> str:
    """Starts a run that sleeps, sends the signal to every third one, and returns its session when it has ended."""
    app = FLOW if number % 6 == 5 else APP
    session = f"/apps/{app}/users/ann/sessions/s-{number}"
    await client.send("POST", session)
    seconds = share * _LONGEST
    if app == FLOW:
        call = str(seconds / 2)
    elif number % 3:
        call = f"wait {json.dumps({'seconds': seconds})}"
    else:
        timeout = _LONGEST * share * 2 if number % 2 else 600
        call = f"wait_for {json.dumps({'signal': 'go', 'timeout_seconds': timeout})}"
    body = {"newMessage": {"parts": [{"text": call}]}}
    reply = await client.send("POST", f"{session}/runs", json=body, headers={"Idempotency-Key": f"k-{number}"})
    assert reply.status_code == 202, reply.text
    run = f"/runs/{reply.json()['id']}"
    if number % 3 == 0:
        if number % 2:
            await asyncio.sleep(seconds)  # else the signal may come before the run waits for it
        key = {"Idempotency-Key": f"k-{number}"}
        signals = [client.send("POST", f"{run}/signals/go", json=number, headers=key) for _ in range(2)]
        for sent in await asyncio.gather(*signals):
            assert sent.status_code in (200, 409), sent.text
    await client.wait_for_status(run, "succeeded", seconds=60 + SLEEPERS / 5, pause_seconds=0.1 + SLEEPERS / 200)
    return session


async def _check(client: PatientClient, session: str) -> None:
    events: list[Json] = (await client.send("GET", session)).json()["events"]
    calls = [event for event in events if event.get("longRunningToolIds")]
    answers = [event for event in events if _responses_of(event)]
    if FLOW in session:
        assert len(calls) == len(answers) == 2, events
        assert [event["output"] for event in events if "output" in event] == [LAST]
    else:
        assert len(calls) == len(answers) == 1, events
        assert [part.get("text") for part in events[-1]["content"]["parts"]] == [LAST]
        assert len(events) == 4

    number = int(session.rpartition("-")[2])
    for call, answer in zip(calls, answers, strict=True):
        (wake_up,) = call["customMetadata"]["greenroom_wake_ups"].values()
        [response] = _responses_of(answer)
        if "value" in response:
            assert response["value"] == number
        else:
            assert number % 6, "a signal that came early was lost"
            assert answer["timestamp"] >= wake_up["at"]


def _responses_of(event: Json) -> list[Json]:
    """The responses to calls in an event."""
    parts = event.get("content", {}).get("parts", [])
    return [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
