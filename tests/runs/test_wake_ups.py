"""Runs that sleep: their calls of `wait` and `wait_for`, the clock, signals, and what may come between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import SequentialAgent
from greenroom.errors import NotWaiting, SignalsFull
from greenroom.invocation.context import InvocationContext
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.run import Run, RunStatus
from greenroom.runs import postgres_store, sql_store
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.runs.postgres_store import PostgresRunStore
from greenroom.runs.signals import new_signal
from greenroom.runs.sqlite_store import SqliteRunStore
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.builtin.sleep import WaitTool, wait, wait_for
from tests.durability.engines import WHERE, Stores, asking, end_of, ended, engine_over, finish, start, stores_in


def sleeper(*calls: tuple[str, JsonObject]) -> LlmAgent:
    """Makes the calls in one reply, and then says `awake`."""
    made = [Part(function_call=FunctionCall(id=f"c-{n}", name=name, args=args)) for n, (name, args) in enumerate(calls)]
    return LlmAgent(name="desk", model=ScriptedModel([made, "awake", "again"]), tools=[wait, wait_for])


async def until_over(engine: InProcessRunEngine, run_id: str, status: RunStatus = RunStatus.SUCCEEDED) -> Run:
    async with asyncio.timeout(10):
        while (run := await engine.get(run_id)).status is not status:
            await asyncio.sleep(0.01)
    return run


async def answers(stores: Stores) -> list[Any]:
    """The responses of the calls."""
    return [response.response for event in await stores.log() for response in event.get_function_responses()]


async def test_a_run_sleeps_and_continues_at_its_time(stores: Stores) -> None:
    async with engine_over(stores, sleeper(("wait", {"seconds": 0.3}))) as engine:
        await engine.recover()
        run = await finish(engine, asking("go"))
        assert run.status is RunStatus.WAITING
        at = run.wake_ups["c-0"].at
        assert at is not None
        assert 0 < at - time.time() < 0.3

        woken = await until_over(engine, run.id)
        assert woken.started_at == run.started_at
        assert woken.ended_at is not None
        assert woken.ended_at >= at
        assert woken.wake_ups == {}
        (answer,) = await answers(stores)
        assert answer["waited"]
        assert (await stores.log())[-1].content.parts[0].text == "awake"  # type: ignore[union-attr,index]
        assert await stores.runs.next_wake_ups(10) == []


async def test_another_engine_continues_it_late(stores: Stores) -> None:
    async with engine_over(stores, sleeper(("wait", {"seconds": 0.2}))) as engine:
        run = await finish(engine, asking("go"))
    await asyncio.sleep(0.3)
    async with engine_over(stores, sleeper()) as engine:
        assert await engine.recover() == 0
        await until_over(engine, run.id)
    assert len(await answers(stores)) == 1


@pytest.mark.parametrize(("max_late_seconds", "status"), [(3600, RunStatus.SUCCEEDED), (60, RunStatus.CANCELLED)])
async def test_a_late_run_is_told_so_or_cancelled(stores: Stores, max_late_seconds: float, status: RunStatus) -> None:
    agent = sleeper(("wait", {"until": datetime.fromtimestamp(time.time() - 100, UTC).isoformat()}))
    agent.tools = [WaitTool(max_late_seconds=max_late_seconds)]
    async with engine_over(stores, agent) as engine:
        await engine.recover()
        run = await finish(engine, asking("go"))
        ended = await until_over(engine, run.id, status)
        async with asyncio.timeout(10):
            while await stores.runs.next_wake_ups(10):
                await asyncio.sleep(0.01)
    if status is RunStatus.CANCELLED:
        assert ended.error is not None
        assert "it could only continue 100 seconds late" in ended.error.message
        assert ended.wake_ups == {}
        assert await answers(stores) == []
    else:
        (answer,) = await answers(stores)
        assert 100 <= answer["late_seconds"] < 110


class Napper(BaseAgent):
    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        await ctx.sleep(0.2)
        yield ctx.new_event(content=Content(role="model", parts=[Part(text="awake")]))


async def test_a_run_that_takes_long_to_continue_does_not_hold_up_the_others(stores: Stores) -> None:
    where: dict[str, Any] = {**WHERE, "session_id": "s-2"}
    await stores.sessions.create_session(**where)
    async with engine_over(stores, Napper(name="desk")) as engine:
        await engine.recover()
        slow = await finish(engine, asking("go"))
        async with engine._admission.lock(slow.session_key):
            request = asking("go")
            request.session_id = "s-2"
            other = await finish(engine, request)
            await until_over(engine, other.id)
            later = await finish(engine, request)
            await until_over(engine, later.id)
            assert (await engine.get(slow.id)).status is RunStatus.WAITING
        await until_over(engine, slow.id)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_due_times_are_found_by_an_index(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Among 100,000 of them."""
    if kind == "sqlite":
        async with stores_in(tmp_path) as stores:
            assert isinstance(stores.runs, SqliteRunStore)
            database = stores.runs._database
            await database.execute(
                "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 100000) "
                "INSERT INTO wake_ups (run_id, at) SELECT 'e-' || n, n FROM numbers"
            )
            plan = str(await database.fetch(f"EXPLAIN QUERY PLAN {sql_store._NEXT_WAKE_UPS}", 100))
            assert "USING INDEX" in plan or "COVERING INDEX" in plan
            assert "TEMP B-TREE" not in plan
        return

    store = PostgresRunStore(request.getfixturevalue("empty_postgres_uri"))
    try:
        assert await store.next_wake_ups(1) == []
        await store._database.execute(
            "INSERT INTO runs (id, app_name, user_id, session_id, status, created_at, data) "
            "SELECT 'e-' || n, 'desk', 'ann', 's-' || n, 'waiting', 1, '{}' FROM generate_series(1, 100000) AS n"
        )
        await store._database.execute("INSERT INTO wake_ups (run_id, at) SELECT id, created_at FROM runs")
        await store._database.execute("ANALYZE")
        for query, arguments in (
            (sql_store._NEXT_WAKE_UPS, [100]),
            (postgres_store._NEXT_WAKE_UPS, [list(range(64)), 100]),
        ):
            plan = str(await store._database.fetch(f"EXPLAIN {query}", *arguments))
            assert "Index Only Scan using wake_ups" in plan or "Index Scan using wake_ups" in plan, plan
            assert "Seq Scan" not in plan
            assert "Sort" not in plan
    finally:
        await store.close()


async def test_a_time_far_away_is_no_reason_to_ask_the_store(stores: Stores) -> None:
    async with engine_over(stores, sleeper(("wait", {"until": "2999-01-01T00:00:00+01:00"}))) as engine:
        await engine.recover()
        run = await finish(engine, asking("go"))
        assert run.wake_ups["c-0"].at == 32472140400.0
        asked: list[int] = []
        read = stores.runs.next_wake_ups
        stores.runs.next_wake_ups = lambda limit: (asked.append(limit), read(limit))[1]  # type: ignore[method-assign]
        await asyncio.sleep(0.1)
        assert asked == []
        assert (await engine.get(run.id)).status is RunStatus.WAITING


async def test_a_signal_continues_a_run_once(stores: Stores) -> None:
    async with engine_over(stores, sleeper(("wait_for", {"signal": "paid"}))) as engine:
        run = await finish(engine, asking("go"))
        assert run.status is RunStatus.WAITING
        signals = (new_signal("paid", {"amount": n}, key="k") for n in range(5))
        sent = await asyncio.gather(*(engine.signal(run.id, signal) for signal in signals), return_exceptions=True)
        assert sorted(type(one).__name__ for one in sent) == ["Run"] + ["SignalRepeated"] * 4
        await end_of(engine, run.id)
        with pytest.raises(NotWaiting):
            await engine.signal(run.id, new_signal("paid", None))
    (answer,) = await answers(stores)
    assert set(answer) == {"value"}


class TwoSteps(BaseAgent):
    """Waits for `a`, then for `b`; meanwhile a test may act."""

    steps: dict[str, asyncio.Event]

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        await self.steps["begin"].wait()
        values = [await ctx.wait_for("a"), await ctx.wait_for("b"), await ctx.wait_for("b")]
        yield ctx.new_event(content=Content(role="model", parts=[Part(text=f"{values}")]))


@pytest.mark.parametrize("when", ["queued", "running", "waiting"])
async def test_signals_that_come_early_are_each_taken_once(stores: Stores, when: str) -> None:
    begin = asyncio.Event()
    async with engine_over(stores, TwoSteps(name="desk", steps={"begin": begin})) as engine:
        await engine.recover()
        if when == "queued":
            await start(engine, asking("first"))
        run, attachment = await start(engine, asking("go"))
        if when == "waiting":
            begin.set()
            assert (await ended(attachment)).status is RunStatus.WAITING
        assert (await engine.get(run.id)).status == when

        for value in (1, 2):
            got = await engine.signal(run.id, new_signal("b", value))
            assert [signal.value for signal in got.signals] == list(range(1, value + 1))
        stored = await stores.runs.get(run.id)
        assert stored is not None
        assert len(stored.signals) == 2
        begin.set()
        await engine.signal(run.id, new_signal("a", 0))
        ended_run = await until_over(engine, run.id)
    assert ended_run.signals == []
    assert (await stores.log())[-1].content == Content(role="model", parts=[Part(text="[0, 1, 2]")])


async def test_an_early_signal_outlives_its_server(stores: Stores) -> None:
    begin = asyncio.Event()
    async with engine_over(stores, TwoSteps(name="desk", steps={"begin": begin})) as engine:
        run, _ = await start(engine, asking("go"))
        for name in ("b", "b", "a"):
            await engine.signal(run.id, new_signal(name, name))
    begin.set()
    async with engine_over(stores, TwoSteps(name="desk", steps={"begin": begin})) as engine:
        assert await engine.recover() == 1
        await until_over(engine, run.id)
    assert (await stores.log())[-1].content == Content(role="model", parts=[Part(text="['a', 'b', 'b']")])


async def test_a_run_stores_a_bounded_number_and_size_of_signals(stores: Stores) -> None:
    async with engine_over(stores, sleeper(("wait_for", {"signal": "paid"}))) as engine:
        run = await finish(engine, asking("go"))
        with pytest.raises(SignalsFull):
            await engine.signal(run.id, new_signal("later", "x" * 70_000))
        for number in range(100):
            await engine.signal(run.id, new_signal("later", number))
        with pytest.raises(SignalsFull):
            await engine.signal(run.id, new_signal("later", 100))
        await engine.signal(run.id, new_signal("paid", 1))
        assert len((await end_of(engine, run.id)).signals) == 100


async def test_a_signal_that_does_not_come_times_out(stores: Stores) -> None:
    async with engine_over(stores, sleeper(("wait_for", {"signal": "paid", "timeout_seconds": 0.1}))) as engine:
        await engine.recover()
        run = await finish(engine, asking("go"))
        await until_over(engine, run.id)
    (answer,) = await answers(stores)
    assert answer["timed_out"]


async def test_a_person_may_answer_first(stores: Stores) -> None:
    async with engine_over(stores, sleeper(("wait", {"seconds": 0.3}))) as engine:
        await engine.recover()
        run = await finish(engine, asking("go"))
        woken = Part(function_response=FunctionResponse(id="c-0", name="wait", response={"by": "ann"}))
        assert (await finish(engine, asking(woken))).status is RunStatus.SUCCEEDED
        async with asyncio.timeout(10):
            while await stores.runs.next_wake_ups(10):
                await asyncio.sleep(0.05)
        assert (await engine.get(run.id)).status is RunStatus.SUCCEEDED
    assert await answers(stores) == [{"by": "ann"}]


async def test_a_cancelled_run_is_not_continued(stores: Stores) -> None:
    async with engine_over(stores, sleeper(("wait", {"seconds": 0.2}))) as engine:
        await engine.recover()
        run = await finish(engine, asking("go"))
        await engine.cancel(run.id, reason="test")
        async with asyncio.timeout(10):
            while await stores.runs.next_wake_ups(10):
                await asyncio.sleep(0.05)
        assert (await engine.get(run.id)).status is RunStatus.CANCELLED
    assert await answers(stores) == []


async def test_calls_of_one_reply_wait_each_for_its_time(stores: Stores) -> None:
    agent = sleeper(("wait", {"seconds": 0.4}), ("wait", {"seconds": 0.1}))
    async with engine_over(stores, agent) as engine:
        await engine.recover()
        run = await finish(engine, asking("go"))
        assert list(run.wake_ups) == ["c-0", "c-1"]
        await until_over(engine, run.id)
    ids = [response.id for event in await stores.log() for response in event.get_function_responses()]
    assert ids == ["c-1", "c-0"]


async def test_a_step_of_a_workflow_sleeps(stores: Stores) -> None:
    first = sleeper(("wait", {"seconds": 0.1}))
    first.name = "first"
    last = LlmAgent(name="last", model=ScriptedModel(["the end"]))
    async with engine_over(stores, SequentialAgent(name="desk", sub_agents=[first, last])) as engine:
        await engine.recover()
        run = await finish(engine, asking("go"))
        assert run.status is RunStatus.WAITING
        await until_over(engine, run.id)
    said = [
        part.text for event in await stores.log() for part in (event.content.parts if event.content else None) or ()
    ]
    assert [text for text in said if text] == ["go", "awake", "the end"]


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("wait", {}),
        ("wait", {"seconds": 1, "until": "2027-01-01"}),
        ("wait", {"seconds": -1}),
        ("wait", {"seconds": 1e12}),
        ("wait", {"seconds": "soon"}),
        ("wait", {"until": "tomorrow"}),
        ("wait", {"until": 5}),
        ("wait_for", {}),
        ("wait_for", {"signal": ""}),
        ("wait_for", {"signal": "s" * 257}),
        ("wait_for", {"signal": "paid", "timeout_seconds": -1}),
    ],
)
async def test_invalid_arguments_are_answered_to_the_model(name: str, args: JsonObject) -> None:
    async with stores_in(None) as stores, engine_over(stores, sleeper((name, args))) as engine:
        run = await finish(engine, asking("go"))
        assert (run.status, run.wake_ups) == (RunStatus.SUCCEEDED, {})
        (answer,) = await answers(stores)
        assert list(answer) == ["error"]


async def test_a_run_whose_app_is_gone_does_not_stop_the_others(tmp_path: Path) -> None:
    async with stores_in(tmp_path) as stores, engine_over(stores, sleeper(("wait", {"seconds": 0.0}))) as engine:
        waiting = await finish(engine, asking("go"))
        where: dict[str, Any] = {**WHERE, "session_id": "s-2"}
        await stores.sessions.create_session(**where)
        where["app_name"] = "gone"
        lost = Run(id="e-lost", status=RunStatus.WAITING, created_at=1.0, **where)
        lost.wake_ups = waiting.wake_ups
        await stores.runs.save(lost)
        await stores.runs.save_wake_up(lost, 1.0)
        await engine.recover()
        async with asyncio.timeout(10):
            while len(await answers(stores)) == 0 or (await stores.runs.next_wake_ups(1))[0][0] < time.time():
                await asyncio.sleep(0.01)
        assert [run_id for _, run_id in await stores.runs.next_wake_ups(2)] == ["e-lost"]
