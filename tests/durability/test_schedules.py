"""Schedules while the server is killed: each time starts one run, and none early.

GREENROOM_SCHEDULED says how many times there are, GREENROOM_SEED repeats a run of this test as far as time allows.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.durability.patient_client import PatientClient, kill_repeatedly, patient_client
from tests.durability.server_process import server_in
from tests.durability.sleeping_server import APP
from tests.seed import SEED

SCHEDULED = int(os.environ.get("GREENROOM_SCHEDULED", "40"))
_AHEAD = 2.0 + SCHEDULED / 100
"""Seconds until the first time, in which the schedules are stored."""

_SPREAD = 3.0 + SCHEDULED / 100
_KILLS = 4 + SCHEDULED // 100
_REPEATS = 3

Json = dict[str, Any]


@pytest.mark.kill
@pytest.mark.parametrize("store", ["sqlite", "postgres"] if SCHEDULED >= 500 else ["sqlite"])
async def test_each_time_starts_one_run(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    uri = request.getfixturevalue("empty_postgres_uri") if store == "postgres" else ""
    chance = random.Random(SEED)
    async with server_in(tmp_path, module="tests.durability.sleeping_server", GREENROOM_URI=uri) as server:
        await server.start()
        async with patient_client(server) as client:
            first = time.time() + _AHEAD
            # Of each four schedules, two have one time and two have three.
            starts = {number: first + chance.random() * _SPREAD for number in range(SCHEDULED // 2)}
            created = await asyncio.gather(*(_create(client, number, start) for number, start in starts.items()))
            assert time.time() < first, "the machine was too busy to store the schedules in time"
            expected = dict(created)

            await kill_repeatedly(server, chance, times=_KILLS)
            async with asyncio.timeout(60 + SCHEDULED / 5):
                while any(one.get("nextAt") for one in await _schedules(client)):
                    await asyncio.sleep(0.2)
            run_ids = [run_id for path, times in expected.items() for run_id in await _check(client, path, times)]
            assert len(set(run_ids)) == len(run_ids) == sum(map(len, expected.values()))
            assert {run["id"] for run in await _runs(client)} == set(run_ids)


async def _create(client: PatientClient, number: int, start: float) -> tuple[str, list[float]]:
    """Returns the path of a new schedule, and its times."""
    user = f"u-{number % 10}"
    body: Json = {"userId": user, "missed": "all", "request": {"newMessage": {"parts": [{"text": f"n-{number}"}]}}}
    times = [start]
    if number % 4 == 0:
        body["at"] = start
    elif number % 4 == 1:
        body |= {"at": start, "jitterSeconds": 1}
    else:
        times = [start + repeat for repeat in range(_REPEATS)]
        body |= {"everySeconds": 1, "startAt": start, "endAt": start + _REPEATS - 0.5}
        if number % 4 == 3:
            session = f"s-{number}"
            assert (await client.send("POST", f"/apps/{APP}/users/{user}/sessions/{session}")).status_code == 200
            body |= {"sessionId": session, "overlap": "enqueue"}
    reply = await client.send("POST", f"/apps/{APP}/schedules", json=body)
    assert reply.status_code == 201, reply.text
    return f"/apps/{APP}/schedules/{reply.json()['id']}", times


async def _schedules(client: PatientClient) -> list[Json]:
    listed = await client.send("GET", f"/apps/{APP}/schedules", params={"limit": 1000})
    return listed.json()["schedules"]


async def _runs(client: PatientClient) -> list[Json]:
    runs: list[Json] = []
    token: str | None = ""
    while token is not None:
        page = (await client.send("GET", "/runs", params={"limit": 1000, "page_token": token})).json()
        runs += page["runs"]
        token = page.get("nextPageToken")
    return runs


async def _check(client: PatientClient, path: str, times: list[float]) -> list[str]:
    """Compares the history with the times, and the sessions with the history. Returns the ids of the runs."""
    entries: list[Json] = (await client.send("GET", f"{path}/runs")).json()["runs"][::-1]
    assert [entry["outcome"] for entry in entries] == ["started"] * len(times), entries
    assert [entry["dueAt"] for entry in entries] == times
    for entry in entries:
        await client.wait_for_status(f"/runs/{entry['runId']}", "succeeded", seconds=60, pause_seconds=0.1)
        events: list[Json] = (await client.send("GET", f"/runs/{entry['runId']}/events")).json()["events"]
        assert [event["author"] for event in events] == ["user", APP]
        assert events[0]["timestamp"] >= entry["dueAt"]
    return [entry["runId"] for entry in entries]
