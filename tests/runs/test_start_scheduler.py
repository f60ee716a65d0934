"""Thousands of runs that begin at once: new requests don't wait behind them."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.apps.loader import StaticAppLoader
from greenroom.invocation.context import InvocationContext
from greenroom.plugins.plugin import BasePlugin
from greenroom.records.content import Content, Part
from greenroom.records.run import AgentRunRequest, Run, RunStatus
from greenroom.runs.engine import Attachment, run_store_beside
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.runs.start_scheduler import MAX_STARTS_PER_TICK, StartScheduler
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import ScriptedModel

BURST = 200


class Begun(BasePlugin):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.messages = list[str]()

    async def on_user_message_callback(self, *, invocation_context: InvocationContext, user_message: Content) -> None:
        self.messages.append(user_message.text())


async def _tick(turns: list[int]) -> None:
    """Counts the turns of the loop."""
    while True:
        turns[0] += 1
        await asyncio.sleep(0)


async def test_a_few_begin_in_each_turn_of_the_loop_in_the_order_in_which_they_came() -> None:
    scheduler, turns, begun = StartScheduler(), [0], list[tuple[int, int]]()
    ticking = asyncio.create_task(_tick(turns))
    for number in range(BURST):
        scheduler.start("ada", lambda number=number: begun.append((turns[0], number)))
    assert len(begun) == MAX_STARTS_PER_TICK
    assert scheduler.is_saturated
    while len(begun) < BURST:
        await asyncio.sleep(0)
    ticking.cancel()
    assert [number for _, number in begun] == list(range(BURST))
    in_turn = [turn for turn, _ in begun]
    assert max(in_turn.count(turn) for turn in set(in_turn)) == MAX_STARTS_PER_TICK
    for _ in range(3):
        await asyncio.sleep(0)
    for number in range(MAX_STARTS_PER_TICK + 1):
        scheduler.start("ada", lambda number=number: begun.append((0, number)))
    assert len(begun) == BURST + MAX_STARTS_PER_TICK, "they find the place free"


async def test_users_take_turns() -> None:
    scheduler, begun = StartScheduler(), list[str]()
    for user in ["noisy"] * BURST + ["ada"] * 3 + ["bob"] * 2:
        scheduler.start(user, lambda user=user: begun.append(user))
    while len(begun) < BURST + 5:
        await asyncio.sleep(0)
    assert begun[: MAX_STARTS_PER_TICK + 8] == ["noisy"] * MAX_STARTS_PER_TICK + ["noisy", "ada", "bob"] * 2 + [
        "noisy",
        "ada",
    ]
    assert begun[MAX_STARTS_PER_TICK + 8 :] == ["noisy"] * (BURST - MAX_STARTS_PER_TICK - 3)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_requests_are_admitted_before_the_runs_of_a_burst_begin(store: str, tmp_path: Path) -> None:
    begun = Begun("begun")
    sessions = InMemorySessionService() if store == "memory" else SqliteSessionService(tmp_path / "x.db")
    agent = LlmAgent(name="agent", model=ScriptedModel(lambda _: "done"))
    engine = InProcessRunEngine(
        apps=StaticAppLoader([App(name="app", root_agent=agent, plugins=[begun])]),
        run_store=run_store_beside(sessions),
        session_service=sessions,
    )

    for number in range(BURST):
        await sessions.create_session(app_name="app", user_id="ada", session_id=f"s-{number}")

    def request(number: int) -> AgentRunRequest:
        return AgentRunRequest(
            app_name="app",
            user_id="ada",
            session_id=f"s-{number}",
            new_message=Content(role="user", parts=[Part(text=str(number))]),
        )

    async def start(number: int) -> tuple[Run, Attachment | None]:
        started = await engine.start(request(number))
        begun_by_then.append(len(begun.messages))
        return started

    begun_by_then = list[int]()
    starting = asyncio.gather(*(start(number) for number in range(BURST)))
    if store == "sqlite":
        with contextlib.closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as another:
            another.execute("BEGIN IMMEDIATE")
            await asyncio.sleep(0.1)
            assert len(begun.messages) <= MAX_STARTS_PER_TICK, "their records are not stored yet"
    started = await starting
    late = [heard for heard, begun in enumerate(begun_by_then) if begun > heard + MAX_STARTS_PER_TICK]
    assert not late, "they heard that their runs were taken after these had begun"
    for run, attachment in started:
        assert attachment is not None
        while not [item for item in await attachment.next_batch() if hasattr(item, "run")]:
            pass
        assert (await engine.get(run.id)).status is RunStatus.SUCCEEDED
    assert sorted(map(int, begun.messages)) == list(range(BURST))
    await engine.close()
    await sessions.close()


async def test_a_run_that_waits_for_its_turn_can_be_cancelled() -> None:
    begun = Begun("begun")
    agent = LlmAgent(name="agent", model=ScriptedModel(lambda _: "done"))
    sessions = InMemorySessionService()
    engine = InProcessRunEngine(
        apps=StaticAppLoader([App(name="app", root_agent=agent, plugins=[begun])]),
        run_store=run_store_beside(sessions),
        session_service=sessions,
        auto_create_session=True,
    )

    async def start(number: int) -> Run:
        message = Content(role="user", parts=[Part(text=str(number))])
        asked = AgentRunRequest(app_name="app", user_id="ada", session_id=f"s-{number}", new_message=message)
        run, _ = await engine.start(asked, attach=False)
        return run

    runs = await asyncio.gather(*(start(number) for number in range(BURST)))
    stopped = await engine.cancel(runs[-1].id, reason="a test")
    assert stopped.status is RunStatus.CANCELLED
    while not (await engine.get(runs[-2].id)).status.is_over:
        await asyncio.sleep(0.001)
    assert begun.messages == [str(number) for number in range(BURST - 1)]
    await engine.close()
