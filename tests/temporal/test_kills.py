"""An activity whose worker, greenroom server and Temporal server are killed has one run and one answer.

GREENROOM_TEMPORAL_KILLS says how many processes are killed at random in the long version.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from greenroom.client.async_client import AsyncClient
from greenroom.records.event import Event
from greenroom.records.run import RunStatus
from greenroom.temporal import AgentRunInput, AgentRunResult
from tests.durability.server_process import REPOSITORY, ServerProcess, server_in
from tests.processes import END_WITH_PARENT
from tests.seed import SEED
from tests.server.serving import until
from tests.temporal.greenroom_server import APP, LAST
from tests.temporal.temporal_server import TemporalServer
from tests.temporal.workflows import TASK_QUEUE, Ask, Limits, Question

KILLS = int(os.environ.get("GREENROOM_TEMPORAL_KILLS", "0"))

pytestmark = [pytest.mark.kill, pytest.mark.slow]

Victim = Literal["worker", "greenroom", "temporal"]
VICTIMS: tuple[Victim, ...] = ("worker", "greenroom", "temporal")


@dataclass
class World:
    """The three processes."""

    folder: Path
    greenroom: ServerProcess
    temporal: TemporalServer
    worker: asyncio.subprocess.Process | None = None

    async def start_worker(self) -> None:
        with (self.folder / "worker.log").open("ab") as log:
            self.worker = await asyncio.create_subprocess_exec(
                *END_WITH_PARENT, sys.executable, "-m", "tests.temporal.worker", self.temporal.address,
                self.greenroom.url, cwd=REPOSITORY, stdout=log, stderr=log,
            )  # fmt: skip

    async def kill_worker(self) -> None:
        if self.worker is not None and self.worker.returncode is None:
            self.worker.kill()
            await self.worker.wait()

    async def kill_and_restart(self, victim: Victim) -> None:
        if victim == "worker":
            await self.kill_worker()
            await self.start_worker()
        elif victim == "greenroom":
            await self.greenroom.kill()
            await self.greenroom.start()
        else:
            self.temporal.kill()
            self.temporal.start()
            await self.temporal.connect()

    def begun(self, name: str) -> list[str]:
        """The idempotency key of each call of an agent's tool."""
        diary = self.folder / f"{name}.begun"
        return diary.read_text().split() if diary.exists() else []


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    temporal = TemporalServer(tmp_path)
    temporal.start()
    try:
        async with server_in(tmp_path, module="tests.temporal.greenroom_server") as greenroom:
            await asyncio.gather(greenroom.start(), temporal.connect())
            made = World(tmp_path, greenroom, temporal)
            try:
                await made.start_worker()
                yield made
            finally:
                await made.kill_worker()
    finally:
        temporal.kill()


async def test_an_activity_survives_kills_with_one_run(world: World) -> None:
    temporal = await world.temporal.connect()
    async with AsyncClient(world.greenroom.url) as client:
        for victim in VICTIMS:
            workflow = await _ask(temporal, victim)
            await until(lambda name=victim: bool(world.begun(name)))
            await world.kill_and_restart(victim)
            (world.folder / f"{victim}.done").touch()
            async with asyncio.timeout(60):
                result = await workflow.result()
            await _check(client, result, victim)
            assert len(set(world.begun(victim))) == 1

        runs = (await client.list_runs(app_name=APP)).runs
        assert [run.status for run in runs] == [RunStatus.SUCCEEDED] * len(VICTIMS)


@pytest.mark.skipif(not KILLS, reason="the long version, for GREENROOM_TEMPORAL_KILLS")
async def test_activities_survive_kills_at_random_moments(world: World) -> None:
    chance = random.Random(SEED)

    async def kill() -> None:
        for _ in range(KILLS):
            await asyncio.sleep(chance.random() * 2)
            await world.kill_and_restart(chance.choice(VICTIMS))

    temporal = await world.temporal.connect()
    killing = asyncio.create_task(kill())
    names: list[str] = []
    while not killing.done():
        names.append(f"n-{len(names)}")
        await _ask_patiently(temporal, names[-1], seconds=0.5)
        await asyncio.sleep(0.2)
    await killing

    repeated = 0
    temporal = await world.temporal.connect()
    async with AsyncClient(world.greenroom.url) as client:
        for name in names:
            result: AgentRunResult = await temporal.get_workflow_handle_for(Ask.run, f"ask-{name}").result()
            await _check(client, result, name)
            assert len(set(world.begun(name))) == 1
            repeated += len(world.begun(name)) > 1
    print(f"{KILLS} kills, {len(names)} activities, {repeated} of them with a call that the server repeated")


async def _ask_patiently(temporal: Client, name: str, seconds: float) -> None:
    """Starts a workflow as soon as Temporal answers."""
    while True:
        try:
            await _ask(temporal, name, seconds)
        except WorkflowAlreadyStartedError:
            return
        except RPCError:
            await asyncio.sleep(0.1)
        else:
            return


async def _ask(temporal: Client, name: str, seconds: float = 0.0) -> WorkflowHandle[Any, AgentRunResult]:
    message = f"{name} {seconds}" if seconds else name
    request = AgentRunInput(app_name=APP, user_id="ann", message=message, session_id=name)
    question = Question(request, Limits(heartbeat=1.0))
    return await temporal.start_workflow(Ask.run, question, id=f"ask-{name}", task_queue=TASK_QUEUE)


async def _check(client: AsyncClient, result: AgentRunResult, name: str) -> None:
    """One run, one call and one answer, which the workflow has received."""
    assert (result.text, result.session_id) == (LAST, name)
    runs = (await client.list_runs(app_name=APP, user_id="ann", session_id=name)).runs
    assert [run.id for run in runs] == [result.run_id]
    events = (await client.get_session(app_name=APP, user_id="ann", session_id=name)).events
    assert [_kind(event) for event in events] == ["message", "call", "response", "answer"]


def _kind(event: Event) -> str:
    if event.get_function_calls():
        return "call"
    if event.get_function_responses():
        return "response"
    return "message" if event.author == "user" else "answer"
