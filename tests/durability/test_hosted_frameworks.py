"""Agents of other frameworks on a server that is killed: each task that has ended is over, and nothing is said twice.

GREENROOM_HOSTED_KILLS says how often, GREENROOM_SEED repeats a run of this test as far as time allows.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest

from greenroom.records import wire
from greenroom.records.event import Event
from tests.agents.frameworks.contract import Framework
from tests.durability.hosted_server import APP, EFFECTS, STEPS, framework_named
from tests.durability.patient_client import PatientClient, patient_client
from tests.durability.server_process import ServerProcess, server_in
from tests.seed import SEED

KILLS = int(os.environ.get("GREENROOM_HOSTED_KILLS", "2"))
FRAMEWORKS = ("langgraph", "pydantic_ai", "openai_agents")
_AT_ONCE = 4
_PATIENCE = 60 + 20 * KILLS
"""Seconds."""

Json = dict[str, Any]


@pytest.mark.kill
@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_nothing_is_done_or_said_twice(framework: str, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    module = "tests.durability.hosted_server"
    async with server_in(tmp_path, module=module, GREENROOM_FRAMEWORK=framework) as server:
        await server.start()
        async with patient_client(server) as client:
            killing = asyncio.create_task(_kill(server, chance))
            async with asyncio.TaskGroup() as group:
                for number in range(_AT_ONCE):
                    group.create_task(_talk(client, f"s-{number}", framework_named(framework), killing))
            await killing

    _check_effects((tmp_path / EFFECTS).read_text().splitlines())


async def _kill(server: ServerProcess, chance: random.Random) -> None:
    """Kills the server again and again, each time after some more work was done: a run that dies too often without
    progress is given up.
    """
    effects = server.folder / EFFECTS
    for _ in range(KILLS):
        size = _size(effects) + chance.randint(1, 400)
        while _size(effects) < size:
            await asyncio.sleep(0.01)
        await asyncio.sleep(chance.uniform(0, 0.03))
        await server.kill()
        await server.start()


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


async def _talk(client: PatientClient, session_id: str, framework: Framework, killing: asyncio.Task[None]) -> None:
    """Runs turns in a session until the server is killed no more, and checks each."""
    session = f"/apps/{APP}/users/ann/sessions/{session_id}"
    await client.send("POST", session)
    texts = 0
    turn = 0
    is_last = False
    while not is_last:
        is_last = killing.done()
        turn += 1
        label = f"turn {session_id} {turn}"
        body = {"newMessage": {"parts": [{"text": label}]}}
        reply = await client.send("POST", f"{session}/runs", json=body, headers={"Idempotency-Key": label})
        assert reply.status_code == 202, reply.text
        run_id: str = reply.json()["id"]

        await _answer(client, session, run_id, framework)
        await _reach(client, run_id, "succeeded")

        texts += 1 + len(STEPS)
        events: list[Json] = (await client.send("GET", session)).json()["events"]
        _check_turn([event for event in events if event["invocationId"] == run_id], label, texts)
        texts += 1


async def _reach(client: PatientClient, run_id: str, status: str) -> None:
    """Waits for a status. A run whose server was killed five times at the same call is given up, and is retried."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            run: Json = (await client.send("GET", f"/runs/{run_id}")).json()
            if run["status"] == status:
                return
            if run["status"] == "failed":
                assert run["error"]["code"] == "RunGivenUp", run
                await client.send("POST", f"/runs/{run_id}/retry")
            await asyncio.sleep(0.05)


async def _answer(client: PatientClient, session: str, run_id: str, framework: Framework) -> None:
    await _reach(client, run_id, "waiting")
    events: list[Json] = (await client.send("GET", session)).json()["events"]
    asked = next(event for event in reversed(events) if event.get("longRunningToolIds"))
    message = wire.to_plain(framework.answer(wire.from_plain(asked, Event), approved=True))
    reply = await client.send("POST", f"{session}/runs", json={"newMessage": message})
    # Refused where a server had accepted it and was killed before it said so.
    assert reply.status_code in (202, 400, 409), reply.text


def _check_turn(events: list[Json], label: str, texts: int) -> None:
    said = [part["text"] for event in events for part in _parts(event) if "text" in part]
    assert said == [label, f"I have seen {texts} texts."], events

    calls = [part["functionCall"]["id"] for event in events for part in _parts(event) if "functionCall" in part]
    assert [one for one in calls if one.startswith("turn ")] == [f"{label} {step}" for step in STEPS]

    results = [
        part["functionResponse"]["id"]
        for event in events
        if event["author"] != "user"
        for part in _parts(event)
        if str(part.get("functionResponse", {}).get("response", {}).get("result", "")).startswith("worked")
    ]
    assert sorted(results) == sorted(f"{label} {step}" for step in STEPS)


def _parts(event: Json) -> list[Json]:
    parts: list[Json] = event.get("content", {}).get("parts", [])
    return parts


def _check_effects(lines: list[str]) -> None:
    """A call may begin again after a kill, but never once a later one has begun."""
    reached: dict[str, int] = {}
    ended: set[str] = set()
    for line in lines:
        label, _, what = line.rpartition(" ")
        turn, _, step = label.rpartition(" ")
        place = max(STEPS.index(step), 1)
        assert place >= reached.get(turn, 0), f"{label} was done again: {lines}"
        reached[turn] = place
        if what == "end":
            ended.add(label)
    assert ended == {f"{turn} {step}" for turn in reached for step in STEPS}
