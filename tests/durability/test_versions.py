"""Versions that are published while the server is killed: each is stored whole or not at all, and serves.

GREENROOM_VERSIONS says how many are published, GREENROOM_SEED repeats a run of this test as far as time allows.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.durability.patient_client import kill_repeatedly, patient_client
from tests.durability.server_process import server_in
from tests.seed import SEED

VERSIONS = int(os.environ.get("GREENROOM_VERSIONS", "12"))
_KILLS = 2 + VERSIONS // 10
_AGENT = """
from greenroom import LlmAgent
from tests.durability.scripts import model_of
root_agent = LlmAgent(name="desk", instruction="Say {0}.", model=model_of("{0}", delay={1}))
"""


@pytest.mark.kill
async def test_each_version_is_stored_whole_and_serves(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    agent = tmp_path / "agents" / "desk" / "agent.py"
    agent.parent.mkdir(parents=True)
    (agent.parent / "data.bin").write_bytes(chance.randbytes(2_000_000))  # so that a kill may meet the write
    agent.write_text(_AGENT.format("0", 0))
    async with server_in(tmp_path, module="tests.durability.versions_server") as server:
        await server.start()
        async with patient_client(server) as client:
            killing = asyncio.create_task(kill_repeatedly(server, chance, times=_KILLS))
            number = 0
            while number < VERSIONS or not killing.done():
                number += 1
                agent.write_text(_AGENT.format(number, 0))
                published = await client.send("POST", "/apps/desk/versions", json={"message": str(number)})
                assert published.status_code == 201, published.text
            await killing

            listed = (await client.send("GET", "/apps/desk/versions")).json()["versions"]
            assert [one["message"] for one in reversed(listed)] == [str(one + 1) for one in range(number)]
            assert len({one["version"] for one in listed}) == number
            for one in listed[:: max(number // 6, 1)]:
                shares = {"shares": {one["name"]: 100}}
                assert (await client.send("PUT", "/apps/desk/traffic", json=shares)).status_code == 200
                body = {"appName": "desk", "userId": "ann", "sessionId": "s", "newMessage": {"parts": [{"text": "hi"}]}}
                events = (await client.send("POST", "/run", json=body)).json()
                assert events[-1]["content"]["parts"][0]["text"] == one["message"]


@pytest.mark.kill
async def test_a_run_that_was_cut_off_continues_with_its_version(tmp_path: Path) -> None:
    agent = tmp_path / "agents" / "desk" / "agent.py"
    agent.parent.mkdir(parents=True)
    agent.write_text(_AGENT.format("one", 3.0))
    async with server_in(tmp_path, module="tests.durability.versions_server") as server:
        await server.start()
        async with patient_client(server) as client:
            assert (await client.send("POST", "/apps/desk/versions")).status_code == 201
            await client.send("PUT", "/apps/desk/traffic", json={"shares": {"v1": 100}})
            body = {"newMessage": {"parts": [{"text": "hi"}]}}
            started = await client.send("POST", "/apps/desk/users/ann/sessions/s/runs", json=body)
            run = f"/runs/{started.json()['id']}"
            await client.wait_for_status(run, "running", seconds=10, pause_seconds=0.02)
            agent.write_text(_AGENT.format("two", 0))
            await client.send("PUT", "/apps/desk/traffic", json={"shares": {}})
            await server.kill()
            await server.start()
            await client.wait_for_status(run, "succeeded", seconds=30, pause_seconds=0.1)
            record = (await client.send("GET", run)).json()
            [version] = (await client.send("GET", "/apps/desk/versions")).json()["versions"]
            assert (record["appVersion"], record["attempts"]) == (version["version"], 2)
            events = (await client.send("GET", f"{run}/events")).json()["events"]
            assert events[-1]["content"]["parts"][0]["text"] == "one"
