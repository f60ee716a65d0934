"""Runs that start later: the clock, the queue of their session, and what may come before their time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.errors import (
    IdempotencyConflict,
    InvalidRequest,
    RunNotFound,
    SessionFull,
    SessionNotFound,
    StorageError,
)
from greenroom.event_streams.stream import RunEnded, StreamItem
from greenroom.records.audit import AuditEntry
from greenroom.records.content import FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.inbox import RequestChanges
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.run import Run, RunFilter, RunStatus
from greenroom.records.session import SessionKey
from greenroom.records.shard import Shards
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.runs.limits import RunLimits
from greenroom.runs.memory_store import InMemoryRunStore
from greenroom.statistics.run_figures import RunFigures
from greenroom.testing.scripted_model import ScriptedModel
from tests.durability.engines import (
    WHERE,
    Gate,
    Stores,
    asking,
    end_of,
    engine_over,
    finish,
    items_of,
    start,
    stores_in,
)
from tests.server.serving import until

SOON = 0.15
LATER = 60.0


def echo(gate: Gate | None = None) -> LlmAgent:
    """Repeats the message; `wait` calls the gate first."""

    def answer(request: LlmRequest) -> str | FunctionCall:
        asked = next(one.text() for one in reversed(request.contents) if one.role == "user" and one.text())
        is_answered = any(part.function_response for part in request.contents[-1].parts or ())
        return FunctionCall(name="wait", args={}) if asked == "wait" and not is_answered else f"re: {asked}"

    return LlmAgent(name="desk", model=ScriptedModel(answer), tools=[] if gate is None else [gate.wait])


async def delay(engine: InProcessRunEngine, message: str = "later", seconds: float = SOON, **more: Any) -> Run:
    run, _ = await engine.start(asking(message, delay_seconds=seconds, **more), attach=False)
    return run


def texts(events: list[Event]) -> list[str]:
    return [event.content.text() for event in events if event.content is not None and event.content.text()]


async def has_no_wake_ups(stores: Stores) -> bool:
    return await stores.runs.next_wake_ups(10) == []


async def test_a_run_starts_at_its_time(stores: Stores) -> None:
    async with engine_over(stores, echo()) as engine:
        await engine.recover()
        at = time.time() + SOON
        run, _ = await engine.start(asking("later", start_at=at, deadline_seconds=5.0), attach=False)
        assert (run.status, run.start_at, run.started_at) == (RunStatus.QUEUED, at, None)
        assert await engine.get(run.id) == run
        assert engine.load() == {}
        assert await stores.log() == []

        ended = await end_of(engine, run.id)
        assert ended.status is RunStatus.SUCCEEDED
        assert ended.started_at is not None
        assert at <= ended.started_at < at + 1
        assert (ended.start_at, ended.created_at, ended.attempts) == (None, run.created_at, 1)
        assert texts(await stores.log()) == ["later", "re: later"]
        await until(lambda: has_no_wake_ups(stores))


async def test_a_delay_counts_from_the_request(stores: Stores) -> None:
    async with engine_over(stores, echo()) as engine:
        before = time.time()
        run = await delay(engine, seconds=LATER)
        assert run.start_at is not None
        assert before + LATER <= run.start_at <= time.time() + LATER
        assert await stores.runs.next_wake_ups(10) == [(run.start_at, run.id)]


@pytest.mark.parametrize("fields", [{"start_at": 1.5}, {"delay_seconds": 0.0}])
async def test_a_time_that_has_passed_starts_it_at_once(stores: Stores, fields: dict[str, Any]) -> None:
    async with engine_over(stores, echo()) as engine:
        run = await finish(engine, asking("now", **fields))
        assert (run.status, run.start_at) == (RunStatus.SUCCEEDED, None)
        assert await has_no_wake_ups(stores)


async def test_other_runs_of_the_session_do_not_wait_for_it(stores: Stores) -> None:
    async with engine_over(stores, echo()) as engine:
        await engine.recover()
        run = await delay(engine)
        assert (await finish(engine, asking("now"))).status is RunStatus.SUCCEEDED
        ended = await end_of(engine, run.id)
        assert ended.after_seq == 2
        assert texts(await stores.log()) == ["now", "re: now", "later", "re: later"]


async def test_readers_wait_for_its_start(stores: Stores) -> None:
    async with engine_over(stores, echo()) as engine:
        await engine.recover()
        run, starting = await start(engine, asking("later", delay_seconds=SOON))
        joining = await engine.attach(run.id)
        assert await joining.next_batch(idle_seconds=0.01) == []
        await finish(engine, asking("now"))

        seen = [await items_of(reader) for reader in (starting, joining)]
        events = [[item.event for item in items if isinstance(item, StreamItem)] for items in seen]
        assert [texts(each) for each in events] == [["re: later"], ["later", "re: later"]]
        assert [item.seq for item in seen[1] if isinstance(item, StreamItem)] == [3, 4]


async def test_it_waits_in_the_queue_from_its_time_on(stores: Stores) -> None:
    gate = Gate()
    async with engine_over(stores, echo(gate)) as engine:
        await engine.recover()
        active, _ = await engine.start(asking("wait"), attach=False)
        await gate.entered.wait()
        run = await delay(engine)
        await until(lambda: has_started_queuing(engine, run.id))
        assert (await engine.get(run.id)).status is RunStatus.QUEUED
        gate.open.set()
        assert (await end_of(engine, run.id)).status is RunStatus.SUCCEEDED
        assert (await engine.get(active.id)).status is RunStatus.SUCCEEDED


async def has_started_queuing(engine: InProcessRunEngine, run_id: str) -> bool:
    return (await engine.get(run_id)).start_at is None


async def test_it_is_rejected_at_its_time(stores: Stores) -> None:
    gate = Gate()
    async with engine_over(stores, echo(gate)) as engine:
        await engine.recover()
        await engine.start(asking("wait"), attach=False)
        await gate.entered.wait()
        run = await delay(engine, multitask_strategy="reject")
        ended = await end_of(engine, run.id)
        gate.open.set()
        assert ended.status is RunStatus.FAILED
        assert ended.error is not None
        assert (ended.error.code, ended.error.status) == ("SessionBusy", 409)


async def test_it_interrupts_at_its_time(stores: Stores) -> None:
    gate = Gate()
    async with engine_over(stores, echo(gate)) as engine:
        await engine.recover()
        active, _ = await engine.start(asking("wait"), attach=False)
        await gate.entered.wait()
        run = await delay(engine, multitask_strategy="interrupt")
        assert (await end_of(engine, run.id)).status is RunStatus.SUCCEEDED
        assert (await engine.get(active.id)).status is RunStatus.CANCELLED


async def test_it_steers_the_active_run_at_its_time(stores: Stores) -> None:
    gate = Gate()
    async with engine_over(stores, echo(gate)) as engine:
        await engine.recover()
        active, _ = await engine.start(asking("wait"), attach=False)
        await gate.entered.wait()
        run = await delay(engine, multitask_strategy="steer")
        await until(lambda: has_started_queuing(engine, run.id))
        gate.open.set()
        await end_of(engine, active.id)
        steered = await engine.get(run.id)
        assert (steered.status, steered.steered_into, steered.read_at_seq) == (RunStatus.SUCCEEDED, active.id, 4)
    assert texts(await stores.log()) == ["wait", "later", "re: later"]


async def test_a_cancelled_run_does_not_start(stores: Stores) -> None:
    async with engine_over(stores, echo()) as engine:
        await engine.recover()
        run, reader = await start(engine, asking("later", delay_seconds=LATER))
        cancelled = await engine.cancel(run.id, reason="test")
        assert cancelled.status is RunStatus.CANCELLED
        assert cancelled.ended_at is not None
        (end,) = await items_of(reader)
        assert isinstance(end, RunEnded)
        assert (await engine.get(run.id)).status is RunStatus.CANCELLED
        assert await has_no_wake_ups(stores)
        assert await engine.cancel(run.id, reason="again") == await engine.get(run.id)
        assert await stores.log() == []


async def test_a_cancelled_run_that_is_retried_starts_at_once(stores: Stores) -> None:
    async with engine_over(stores, echo()) as engine:
        run = await delay(engine, seconds=LATER)
        await engine.cancel(run.id, reason="test")
        retried = await engine.retry(run.id)
        assert (retried.id, retried.start_at) == (run.id, None)
        assert (await end_of(engine, run.id)).status is RunStatus.SUCCEEDED
    assert texts(await stores.log()) == ["later", "re: later"]


async def test_a_deleted_session_takes_its_delayed_runs_along(stores: Stores) -> None:
    async with engine_over(stores, echo()) as engine:
        await engine.recover()
        run = await delay(engine, seconds=LATER)
        reader = await engine.attach(run.id)
        await engine.delete_session(SessionKey(**WHERE))
        with pytest.raises(RunNotFound):
            await engine.get(run.id)
        assert await has_no_wake_ups(stores)
        with pytest.raises(SessionNotFound):
            await reader.next_batch(idle_seconds=1)


async def test_a_deleted_user_takes_the_delayed_runs_along(stores: Stores) -> None:
    async with engine_over(stores, echo()) as engine:
        run = await delay(engine, seconds=LATER)
        user = {name: WHERE[name] for name in ("app_name", "user_id")}
        assert [key async for key in engine.delete_user(**user)] == [run.session_key]
        assert await has_no_wake_ups(stores)


async def test_one_key_is_one_delayed_run(stores: Stores) -> None:
    async with engine_over(stores, echo()) as engine:
        await engine.recover()
        request = asking("later", delay_seconds=SOON)
        started = await asyncio.gather(*(engine.start(request, idempotency_key="k", attach=False) for _ in range(5)))
        assert len({run.id for run, _ in started}) == 1
        with pytest.raises(IdempotencyConflict):
            await engine.start(asking("else", delay_seconds=SOON), idempotency_key="k")
        await end_of(engine, started[0][0].id)
        again, _ = await engine.start(request, idempotency_key="k", attach=False)
        assert again.status is RunStatus.SUCCEEDED
    assert texts(await stores.log()) == ["later", "re: later"]


async def test_a_key_of_another_session_leaves_nothing(stores: Stores) -> None:
    async with engine_over(stores, echo()) as engine:
        elsewhere: dict[str, Any] = {**WHERE, "session_id": "s-2"}
        await stores.sessions.create_session(**elsewhere)
        run, _ = await engine.start(asking("later", delay_seconds=LATER), idempotency_key="k", attach=False)
        other = asking("later", delay_seconds=LATER)
        other.session_id = "s-2"
        with pytest.raises(IdempotencyConflict):
            await engine.start(other, idempotency_key="k", attach=False)
        assert [run_id for _, run_id in await stores.runs.next_wake_ups(10)] == [run.id]


async def test_the_next_engine_starts_it_late(stores: Stores) -> None:
    async with engine_over(stores, echo()) as engine:
        run = await delay(engine, seconds=0.1)
    await asyncio.sleep(0.2)
    async with engine_over(stores, echo()) as engine:
        assert await engine.recover() == 0
        ended = await end_of(engine, run.id)
        assert (ended.status, ended.attempts) == (RunStatus.SUCCEEDED, 1)
    assert texts(await stores.log()) == ["later", "re: later"]


async def test_the_next_engine_leaves_it_alone_until_its_time(stores: Stores) -> None:
    async with engine_over(stores, echo()) as engine:
        run = await delay(engine, seconds=LATER)
    async with engine_over(stores, echo()) as engine:
        assert await engine.recover() == 0
        assert await engine.get(run.id) == run
        listed = await engine.list_runs(RunFilter(statuses=[RunStatus.QUEUED]))
        assert [one.id for one in listed.runs] == [run.id]
        assert engine.load() == {}
        assert await stores.log() == []


async def test_a_run_that_is_due_at_a_start_is_not_resumed_as_well(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine_over(stores, echo()) as engine:
        run = await delay(engine, "wait", seconds=0.05)
    await asyncio.sleep(0.1)
    list_unfinished = stores.runs.list_unfinished

    async def list_late(shards: Shards | None = None) -> list[Run]:
        await asyncio.sleep(0.2)
        return await list_unfinished(shards)

    monkeypatch.setattr(stores.runs, "list_unfinished", list_late)
    gate = Gate()
    async with engine_over(stores, echo(gate)) as engine:
        recovering = asyncio.create_task(engine.recover())
        await asyncio.sleep(0.3)
        gate.open.set()
        assert await recovering == 0
        assert (await end_of(engine, run.id)).attempts == 1


async def test_its_end_and_its_start_are_listed(stores: Stores) -> None:
    async with engine_over(stores, echo()) as engine:
        await engine.recover()
        watch = await engine.watch_runs(RunFilter())
        run = await delay(engine)
        [changed] = await watch.next_batch(idle_seconds=5) or []
        assert (changed.id, changed.status, changed.start_at) == (run.id, RunStatus.QUEUED, run.start_at)
        await end_of(engine, run.id)
        [changed] = await watch.next_batch(idle_seconds=5) or []
        assert changed.start_at is None
        watch.close()


@pytest.mark.parametrize(
    "fields",
    [
        {"start_at": 1e12},
        {"start_at": -1.0},
        {"start_at": float("nan")},
        {"delay_seconds": -1.0},
        {"delay_seconds": 1e9},
        {"delay_seconds": float("nan")},
        {"start_at": 2e9, "delay_seconds": 5.0},
        {"delay_seconds": 5.0, "invocation_id": "e-1"},
    ],
)
async def test_invalid_times_are_refused(fields: dict[str, Any]) -> None:
    async with stores_in(None) as stores, engine_over(stores, echo()) as engine:
        with pytest.raises(InvalidRequest):
            await engine.start(asking("later", **fields))
        assert await has_no_wake_ups(stores)
        assert (await engine.list_runs(RunFilter())).runs == []


async def test_only_new_runs_start_later(stores: Stores) -> None:
    async with engine_over(stores, echo()) as engine:
        answer = Part(function_response=FunctionResponse(id="c-1", name="wait", response={}))
        with pytest.raises(InvalidRequest):
            await engine.start(asking(answer, delay_seconds=LATER))
        with pytest.raises(InvalidRequest):
            await engine.start(asking(Part(function_call=FunctionCall(name="wait")), delay_seconds=LATER))
        run = await delay(engine, seconds=LATER)
        with pytest.raises(InvalidRequest, match="has not started"):
            await engine.start(asking("now", invocation_id=run.id))
        assert (await engine.get(run.id)).start_at == run.start_at


async def test_a_missing_session_is_refused_at_once(stores: Stores) -> None:
    async with engine_over(stores, echo()) as engine:
        request = asking("later", delay_seconds=LATER)
        request.session_id = "nope"
        with pytest.raises(SessionNotFound):
            await engine.start(request)
        assert await has_no_wake_ups(stores)


async def test_a_session_that_is_missing_at_its_time_fails_it(stores: Stores) -> None:
    async with engine_over(stores, echo()) as engine:
        await engine.recover()
        run, reader = await start(engine, asking("later", delay_seconds=SOON))
        await stores.sessions.delete_session(**WHERE)
        (end,) = await items_of(reader)
        assert isinstance(end, RunEnded)
        assert end.run.error is not None
        assert end.run.error.code == "SessionNotFound"
        assert (await engine.get(run.id)).status is RunStatus.FAILED


async def test_an_app_that_is_gone_at_its_time_fails_it(stores: Stores) -> None:
    async with engine_over(stores, echo()) as engine:
        run = await delay(engine, seconds=0.1)
    other = App(name="other", root_agent=echo())
    async with engine_over(stores, other) as engine:
        await engine.recover()
        ended = await end_of(engine, run.id)
        assert ended.error is not None
        assert (ended.status, ended.error.code) == (RunStatus.FAILED, "AppNotFound")
        assert ended.request is not None
        assert ended.request.new_message is not None  # so that it can be sent again
        await until(lambda: has_no_wake_ups(stores))


async def test_a_full_session_fails_it(stores: Stores) -> None:
    async with engine_over(stores, echo(), limits=RunLimits(events_per_session=2)) as engine:
        run = await delay(engine)
        await finish(engine, asking("now"))
        ended = await end_of(engine, run.id)
        assert ended.error is not None
        assert ended.error.code == "SessionFull"
        with pytest.raises(SessionFull):
            await delay(engine)


async def test_it_counts_only_from_its_time_on(stores: Stores) -> None:
    gate = Gate()
    async with engine_over(stores, echo(gate), limits=RunLimits(per_user=1)) as engine:
        await engine.start(asking("wait"), attach=False)
        await gate.entered.wait()
        run = await delay(engine, seconds=0.1)
        await delay(engine, seconds=LATER)
        await until(lambda: is_moved(stores, run))  # the place is taken: it is tried again
        assert (await engine.get(run.id)).status is RunStatus.QUEUED
        gate.open.set()
        assert (await end_of(engine, run.id)).status is RunStatus.SUCCEEDED
        assert (await finish(engine, asking("now"))).status is RunStatus.SUCCEEDED


async def is_moved(stores: Stores, run: Run) -> bool:
    [(at, run_id), *_] = await stores.runs.next_wake_ups(1)
    return run_id == run.id and at != run.start_at


class RefusingStore(InMemoryRunStore):
    """Refuses to store the starts of runs, a few times."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 2

    def save(
        self,
        run: Run,
        *,
        is_to_remember: bool = False,
        requests: RequestChanges | None = None,
        audit: Sequence[AuditEntry] = (),
        figures: Sequence[RunFigures] = (),
    ) -> asyncio.Future[None]:
        if run.status is not RunStatus.RUNNING or not self.left:
            return super().save(run, is_to_remember=is_to_remember, requests=requests, audit=audit, figures=figures)
        self.left -= 1
        refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        refused.set_exception(StorageError("Writing", "the disk is full"))
        return refused


async def test_a_start_that_the_store_refuses_is_tried_again() -> None:
    store = RefusingStore()
    async with stores_in(None) as opened:
        stores = Stores(opened.sessions, store)
        async with engine_over(stores, echo()) as engine:
            await engine.recover()
            run = await delay(engine, seconds=0.05)
            await until(lambda: has_status(engine, run.id, RunStatus.SUCCEEDED))
        assert store.left == 0
        assert texts(await stores.log()) == ["later", "re: later"]


async def has_status(engine: InProcessRunEngine, run_id: str, status: RunStatus) -> bool:
    return (await engine.get(run_id)).status is status
