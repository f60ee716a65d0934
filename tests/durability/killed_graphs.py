"""Runs of random workflows in a process of their own, which is killed behind one of the events that it stores."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
from pathlib import Path

from greenroom.records.content import FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.run import AgentRunRequest
from greenroom.records.session import Session
from greenroom.runs.engine import run_store_beside
from greenroom.sessions.service import StoredEvent
from greenroom.sessions.sqlite import SqliteSessionService
from tests.durability.engines import Stores, asking, engine_over, finish
from tests.durability.random_graphs import Builder, Plan

DATABASE, DIARY = "greenroom.db", "diary"
DEADLINE_SECONDS = 30

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([__name__])


def answering(request_id: str) -> AgentRunRequest:
    response = FunctionResponse(id=request_id, name="adk_request_input", response={"done": request_id})
    return asking(Part(function_response=response))


def run_until_killed(folder: Path, plan: Plan, answers: list[str], *, seed: int, reported: bool, events: int) -> None:
    """Runs a workflow on the session in the folder's database, and answers its requests, until so many events are
    stored."""
    child = _processes.Process(target=_live, args=(folder, plan, answers, seed, reported, events))
    child.start()
    child.join(DEADLINE_SECONDS)
    if child.exitcode is None:
        child.kill()
        child.join()
        raise AssertionError("the process hangs")
    assert child.exitcode == -signal.SIGKILL, f"the process ended with {child.exitcode}"


def _live(folder: Path, plan: Plan, answers: list[str], seed: int, reported: bool, events: int) -> None:
    logging.getLogger("greenroom").setLevel(logging.CRITICAL)
    asyncio.run(_run(folder, plan, answers, seed, reported, events))
    os.kill(os.getpid(), signal.SIGKILL)  # side by side, less may have been stored than without a kill


async def _run(folder: Path, plan: Plan, answers: list[str], seed: int, reported: bool, events: int) -> None:
    sessions = _DyingSessions(folder / DATABASE, events)
    builder = Builder(seed, reported=reported, diary=folder / DIARY)
    async with engine_over(Stores(sessions, run_store_beside(sessions)), builder.workflow(plan)) as engine:
        await finish(engine, asking("go"))
        for answer in answers:
            await finish(engine, answering(answer))


class _DyingSessions(SqliteSessionService):
    """Kills its process at once behind the event of that number. Events of one transaction count one by one."""

    def __init__(self, path: Path, events: int) -> None:
        super().__init__(path)
        self._left = events

    async def append(self, session: Session, *events: Event) -> list[StoredEvent]:
        stored = await super().append(session, *events)
        self._left -= len(events)
        if self._left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return stored
