"""Runs that wait for their turn, where a server executes a limited number at a time."""

from __future__ import annotations

import asyncio

from greenroom.records.run import Run, RunStatus
from greenroom.runs.fair_queue import Weights
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.runs.limits import RunLimits
from greenroom.testing.scripted_model import ScriptedModel
from tests.runs.test_in_process import Gate, Harness, asking, echo


def desk(gate: Gate, *, running: int = 1, weights: Weights | None = None) -> Harness:
    return Harness(ScriptedModel(echo), gate, limits=RunLimits(running=running, weights=weights or Weights()))


async def started(harness: Harness, text: str, session: str, *, user: str = "ada", priority: int | None = None) -> Run:
    await harness.sessions.create_session(app_name="app", user_id=user, session_id=session)
    request = asking(text, session_id=session, priority=priority)
    request.user_id = user
    run, _ = await harness.engine.start(request, attach=False)
    return run


async def in_order(harness: Harness, runs: dict[str, Run]) -> list[str]:
    """The names of runs in the order of their starts, when all have ended."""
    records: dict[str, Run] = {}
    async with asyncio.timeout(5):
        for name, run in runs.items():
            while not (record := await harness.engine.get(run.id)).status.is_over:
                await asyncio.sleep(0)
            records[name] = record
    return sorted(records, key=lambda name: records[name].started_at or 0.0)


async def test_runs_wait_for_their_turn_by_priority_and_in_fair_shares() -> None:
    gate = Gate()
    harness = desk(gate)
    await started(harness, "wait", "first", user="eve")
    async with asyncio.timeout(5):
        await gate.entered.wait()

    runs = {f"a{n}": await started(harness, "hi", f"a{n}", user="ann") for n in range(3)}
    runs |= {f"b{n}": await started(harness, "hi", f"b{n}", user="bob") for n in range(2)}
    runs["urgent"] = await started(harness, "hi", "u", user="ann", priority=5)
    assert {run.status for run in runs.values()} == {RunStatus.QUEUED}
    load = harness.engine.load()["app"]
    assert (load.running, load.queued) == (1, 6)

    gate.open.set()
    assert await in_order(harness, runs) == ["urgent", "a0", "b0", "a1", "b1", "a2"]


async def test_no_more_runs_are_executed_than_may_be() -> None:
    gate = Gate()
    harness = desk(gate, running=3)
    runs = {f"s{n}": await started(harness, "wait", f"s{n}", user=f"u{n}") for n in range(10)}
    assert harness.engine.load()["app"].running == 3
    gate.open.set()
    await in_order(harness, runs)
    assert harness.engine.load() == {}


async def test_run_that_waits_for_its_turn_can_be_cancelled() -> None:
    gate = Gate()
    harness = desk(gate)
    first = await started(harness, "wait", "s1")
    second = await started(harness, "hi", "s2")
    third = await started(harness, "hi", "s3")
    async with asyncio.timeout(5):
        await gate.entered.wait()
        cancelled = await harness.engine.cancel(second.id, reason="a test")
    assert (cancelled.status, cancelled.started_at) == (RunStatus.CANCELLED, None)

    async with asyncio.timeout(5):
        retried = await harness.engine.retry(second.id)
        assert retried.status is RunStatus.QUEUED
        assert (await harness.engine.cancel(retried.id, reason="a test")).status is RunStatus.CANCELLED
    gate.open.set()
    await in_order(harness, {"first": first, "third": third})


async def test_next_run_of_a_session_waits_for_its_turn() -> None:
    gate = Gate()
    harness = desk(gate)
    first = await started(harness, "wait", "s1")
    same = asking("hi", session_id="s1")
    second, _ = await harness.engine.start(same, attach=False)
    other = await started(harness, "hi", "s2", user="bob")
    gate.open.set()
    assert await in_order(harness, {"first": first, "second": second, "other": other}) == ["first", "other", "second"]


async def test_runs_left_by_a_process_keep_their_priority() -> None:
    gate = Gate()
    harness = desk(gate)
    await started(harness, "wait", "s1")
    low = await started(harness, "hi", "s2", priority=-1)
    high = await started(harness, "hi", "s3", priority=3)
    async with asyncio.timeout(5):
        await gate.entered.wait()
    await harness.engine.close(grace_seconds=0.0)
    assert (await harness.store.get(high.id) or high).priority == 3

    gate.open.set()
    harness.engine = InProcessRunEngine(
        apps=harness.engine.apps,
        run_store=harness.store,
        session_service=harness.sessions,
        limits=RunLimits(running=1),
    )
    assert await harness.engine.recover() == 3
    assert await in_order(harness, {"low": low, "high": high}) == ["high", "low"]
