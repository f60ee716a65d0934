"""Workflows cut off at places that random graphs have found (1.13)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from greenroom.agents.agent import BaseAgent
from greenroom.agents.node import RetryConfig
from greenroom.agents.workflow.function_node import FunctionNode
from greenroom.agents.workflow.workflow import Workflow
from greenroom.invocation.user_context import Context
from greenroom.records.content import ModelContent
from greenroom.records.event import Event
from greenroom.records.human_requests import RequestInput
from greenroom.records.run import Run, RunStatus
from greenroom.records.session import Session
from greenroom.runs.engine import run_store_beside
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.sessions.service import StoredEvent
from tests.durability.engines import WHERE, Stores, asking, end_of, engine_over, finish, stores_in
from tests.durability.killed_graphs import answering


async def _resumed(agent: BaseAgent, log: list[Event], run: Run) -> tuple[list[Event], Run]:
    async with stores_in(None) as stores:
        session = await stores.session()
        for event in log:
            await stores.sessions.append(session, event)
        await stores.runs.save(msgspec.structs.replace(run, status=RunStatus.RUNNING, ended_at=None, error=None))
        async with engine_over(stores, agent) as engine:
            assert await engine.recover() == 1
            ended = await end_of(engine, run.id)
            return await stores.log(), ended


async def test_a_node_cut_off_while_it_asks_again_runs_again() -> None:
    """Its checkpoint of waiting is older than the answer that made it run."""
    ended: list[list[str]] = []

    async def ask(ctx: Context) -> AsyncIterator[Any]:
        for one in ("a", "b"):
            if one not in ctx.resume_inputs:
                yield RequestInput(interrupt_id=one)
        ended.append(sorted(ctx.resume_inputs))

    workflow = Workflow(
        name="wf", edges=[("START", FunctionNode(func=ask, rerun_on_resume=True, on_interrupt="retry"))]
    )
    async with stores_in(None) as stores, engine_over(stores, workflow) as engine:
        await finish(engine, asking("go"))
        run = await finish(engine, answering("b"))
        whole = await stores.log()
    assert whole[-2].long_running_tool_ids == ["a"]
    ended.clear()
    log, run = await _resumed(workflow, whole[:-1], msgspec.structs.replace(run, request=answering("b")))
    assert (run.status, ended) == (RunStatus.WAITING, [["b"]])
    assert len(log) == len(whole) + 1  # it asks once more
    assert log[-1].actions.agent_state == whole[-1].actions.agent_state


async def test_a_failure_is_stored_with_its_node_while_another_node_sends_events() -> None:
    class SlowSessions(InMemorySessionService):
        async def append(self, session: Session, *events: Event) -> list[StoredEvent]:
            for _ in range(20):
                await asyncio.sleep(0)
            return await super().append(session, *events)

    async def talks() -> AsyncIterator[Any]:
        yield ModelContent("working")

    async def talks_too() -> AsyncIterator[Any]:
        yield ModelContent("working")

    async def breaks() -> None:
        await asyncio.sleep(0)
        raise KeyError("broken")

    sessions = SlowSessions()
    await sessions.create_session(**WHERE)
    stores = Stores(sessions, run_store_beside(sessions))
    async with engine_over(stores, Workflow(name="wf", edges=[("START", (talks, talks_too, breaks))])) as engine:
        run = await finish(engine, asking("go"))
        last = (await stores.log())[-1]
    assert run.status is RunStatus.FAILED
    assert (last.error_code, last.node_path) == ("KeyError", "wf@1/breaks@1")


async def test_an_interruption_is_not_retried() -> None:
    """`retry_config` is for failures: whether an interrupted node had any effect is not known."""
    begun: list[int] = []

    def book(ctx: Context) -> str:
        begun.append(ctx.attempt_count)
        return "done"

    node = FunctionNode(func=book, retry_config=RetryConfig(initial_delay=0.0))
    workflow = Workflow(name="wf", edges=[("START", node)])
    async with stores_in(None) as stores, engine_over(stores, workflow) as engine:
        run = await finish(engine, asking("go"))
        whole = await stores.log()
    started = next(i for i, one in enumerate(whole, 1) if one.node_path == "wf@1/book@1")
    log, run = await _resumed(workflow, whole[:started], msgspec.structs.replace(run, request=asking("go")))
    assert (run.status, log[-1].error_code, begun) == (RunStatus.FAILED, "NodeInterrupted", [1])
