"""Stopping runs, one by one or with the whole server: the log stays one that every model accepts."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.event_streams.stream import RunEnded, StreamItem
from greenroom.invocation.user_context import ToolContext
from greenroom.log.calls import INTERRUPTED
from greenroom.records.content import FunctionResponse, Part
from greenroom.records.event import Event, EventActions
from greenroom.records.run import RunFilter, RunStatus
from greenroom.records.session import Session
from greenroom.runs.engine import run_store_beside
from greenroom.runs.queues import CANCEL_SECONDS
from greenroom.runs.sqlite_store import SqliteRunStore
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.sessions.service import StoredEvent
from greenroom.tools.functions.function_tool import FunctionTool
from tests.durability.engines import (
    WHERE,
    HeldStore,
    SlowStore,
    Stores,
    asking,
    ended,
    engine_over,
    finish,
    items_of,
    start,
    stores_in,
    wait_for,
)
from tests.durability.invariants import Json, check_log, check_seen, check_state, read_lines, responses_of
from tests.durability.scripts import call, model_of
from tests.durability.server_app import APP
from tests.durability.server_process import ServerProcess, server_in
from tests.durability.sse_client import RunReader

_TALE = "Once upon a time there was a server that was told to stop before it had come to the end"


@pytest.fixture(params=["memory", "sqlite"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "sqlite" else None


class Gate:
    """A tool that sets an event when it is called, and waits."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.opened = asyncio.Event()
        self.interrupted = 0

    async def gate(self, tool_context: ToolContext) -> str:
        """Waits until it is opened."""
        self.begun.set()
        tool_context.state["gate"] = "passed"
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.interrupted += 1
            raise
        return "open"


def _teller(*turns: str) -> LlmAgent:
    return LlmAgent(name="desk", model=model_of(*turns, delay=0.002))


async def test_a_run_cancelled_in_the_middle_of_a_sentence_keeps_what_was_said(folder: Path | None) -> None:
    async with stores_in(folder) as stores, engine_over(stores, _teller(_TALE)) as engine:
        run, reader = await start(engine, asking("tell", streaming=True))
        await wait_for(reader, lambda event: bool(event.partial) and "time" in _text(event))
        cancelled = await engine.cancel(run.id, reason="asked by a test")
        assert cancelled.status is RunStatus.CANCELLED
        assert cancelled.error is not None
        assert cancelled.error.code == "RunCancelled"
        items = await items_of(reader)
        last = (await stores.log())[-1]
        assert _TALE.startswith(_text(last).strip())
        assert "time" in _text(last)
        assert (last.interrupted, last.error_code, last.author) == (True, "INVOCATION_ABORTED", "desk")
        shown = items[-2]
        assert isinstance(shown, StreamItem)
        assert (shown.event, shown.seq) == (last, 2)
        assert (await finish(engine, asking("go on"))).status is RunStatus.SUCCEEDED


async def test_a_run_cancelled_in_a_tool_has_its_calls_answered_as_interrupted(folder: Path | None) -> None:
    gate = Gate()
    model = model_of([call("gate", "c-1"), call("gate", "c-2")], "Never said.")
    agent = LlmAgent(name="desk", model=model, tools=[FunctionTool(gate.gate)])
    async with stores_in(folder) as stores, engine_over(stores, agent) as engine:
        run, reader = await start(engine, asking("go"))
        await asyncio.wait_for(gate.begun.wait(), 5)
        await engine.cancel(run.id, reason="asked by a test")
        assert (await ended(reader)).status is RunStatus.CANCELLED
        assert gate.interrupted == 2
        log = await stores.log()
        assert [(r.id, r.response) for r in log[-1].get_function_responses()] == [
            ("c-1", INTERRUPTED),
            ("c-2", INTERRUPTED),
        ]
        assert (await stores.session()).state == {}
        gate.opened.set()
        assert len(log) == 3


async def test_a_cancellation_is_answered_when_it_is_stored() -> None:
    """Until then, a crash would let a queued run begin."""
    store = HeldStore()
    gate = Gate()
    agent = LlmAgent(name="desk", model=model_of(call("gate", "c-1"), "Well."), tools=[FunctionTool(gate.gate)])
    async with stores_in(None) as stores, engine_over(Stores(stores.sessions, store), agent) as engine:
        await start(engine, asking("go"))
        await gate.begun.wait()
        queued, _ = await start(engine, asking("later"))
        cancelling = asyncio.create_task(engine.cancel(queued.id, reason="asked by a test"))
        saving = await store.saving()
        assert not cancelling.done()
        saving.set_result(None)
        assert (await cancelling).status is RunStatus.CANCELLED
        gate.opened.set()


async def test_a_run_that_ends_while_its_first_record_is_written_has_a_record_of_its_end() -> None:
    """Its record would stay `running`, and the next process would resume it."""
    store = SlowStore()
    agent = LlmAgent(name="desk", model=model_of("Well.", "Well."))
    async with stores_in(None) as stores, engine_over(Stores(stores.sessions, store), agent) as engine:
        starting = asyncio.create_task(engine.start(asking("go")))
        while not engine.load():
            await asyncio.sleep(0)
        last, reader = await start(engine, asking("instead", multitask_strategy="interrupt"))
        run, _ = await starting
        assert (await ended(reader)).id == last.id
        assert (await engine.get(run.id)).status is RunStatus.CANCELLED
        async with asyncio.timeout(5):
            while await store.list_unfinished():
                await asyncio.sleep(0.01)
        stored = await store.get(run.id)
        assert stored is not None
        assert stored.status is RunStatus.CANCELLED


async def test_a_resumed_run_cancelled_before_it_has_read_its_log_has_its_calls_answered(folder: Path | None) -> None:
    gate = Gate()
    agent = LlmAgent(name="desk", model=model_of(call("gate", "c-1"), "Well."), tools=[FunctionTool(gate.gate)])
    async with stores_in(folder) as stores:
        async with engine_over(stores, agent) as engine:
            run, _ = await start(engine, asking("go"))
            await gate.begun.wait()
        async with engine_over(stores, agent) as engine:
            assert await engine.recover() == 1
            assert (await engine.cancel(run.id, reason="asked by a test")).status is RunStatus.CANCELLED
            _, calling, last = await stores.log()
            assert [one.id for one in calling.get_function_calls()] == ["c-1"]
            assert [one.response for one in last.get_function_responses()] == [INTERRUPTED]
            assert last.error_code == "INVOCATION_ABORTED"


async def test_the_message_after_a_cancelled_run_is_answered(folder: Path | None) -> None:
    gate = Gate()
    model = model_of(lambda message: call("gate", "c-1") if message == "go" else "Good day.")
    agent = LlmAgent(name="desk", model=model, tools=[FunctionTool(gate.gate)])
    async with stores_in(folder) as stores, engine_over(stores, agent) as engine:
        run, _ = await start(engine, asking("go"))
        await asyncio.wait_for(gate.begun.wait(), 5)
        await engine.cancel(run.id, reason="asked by a test")
        assert (await finish(engine, asking("hello"))).status is RunStatus.SUCCEEDED
        contents = model.requests[-1].contents
        made, answered = contents[1].parts or [], contents[2].parts or []
        assert [part.function_call and part.function_call.id for part in made] == ["c-1"]
        response = FunctionResponse(id="c-1", name="gate", response=dict(INTERRUPTED))
        assert answered == [Part(function_response=response)]


async def test_open_calls_are_answered_though_a_client_changed_the_state_meanwhile(folder: Path | None) -> None:
    gate = Gate()
    agent = LlmAgent(name="desk", model=model_of(call("gate", "c-1")), tools=[FunctionTool(gate.gate)])
    async with stores_in(folder) as stores, engine_over(stores, agent) as engine:
        run, _ = await start(engine, asking("go"))
        await asyncio.wait_for(gate.begun.wait(), 5)
        patch = Event(invocation_id="p-1", author="user", actions=EventActions(state_delta={"theme": "dark"}))
        await stores.sessions.append(await stores.session(), patch)
        await engine.cancel(run.id, reason="asked by a test")
        assert [r.id for event in await stores.log() for r in event.get_function_responses()] == ["c-1"]


async def test_a_queued_run_is_cancelled_without_a_trace_in_the_log(folder: Path | None) -> None:
    gate = Gate()
    agent = LlmAgent(name="desk", model=model_of(call("gate", "c-1"), "Done."), tools=[FunctionTool(gate.gate)])
    async with stores_in(folder) as stores, engine_over(stores, agent) as engine:
        first, first_reader = await start(engine, asking("go"))
        await asyncio.wait_for(gate.begun.wait(), 5)
        second, second_reader = await start(engine, asking("me too"))
        third, third_reader = await start(engine, asking("and me"))
        assert (await engine.cancel(second.id, reason="asked by a test")).status is RunStatus.CANCELLED
        assert (await ended(second_reader)).status is RunStatus.CANCELLED
        gate.opened.set()
        assert (await ended(first_reader)).id == first.id
        assert (await ended(third_reader)).status is RunStatus.SUCCEEDED
        assert {event.invocation_id for event in await stores.log()} == {first.id, third.id}


async def test_a_run_that_takes_the_place_of_others_comes_after_their_end(folder: Path | None) -> None:
    gate = Gate()
    model = model_of(lambda message: call("gate", "c-1") if message == "go" else "Good day.")
    agent = LlmAgent(name="desk", model=model, tools=[FunctionTool(gate.gate)])
    async with stores_in(folder) as stores, engine_over(stores, agent) as engine:
        first, first_reader = await start(engine, asking("go"))
        await asyncio.wait_for(gate.begun.wait(), 5)
        _, waiting = await start(engine, asking("wait"))
        third, third_reader = await start(engine, asking("now", multitask_strategy="interrupt"))
        assert [(await ended(reader)).status for reader in (first_reader, waiting, third_reader)] == [
            RunStatus.CANCELLED,
            RunStatus.CANCELLED,
            RunStatus.SUCCEEDED,
        ]
        runs = [event.invocation_id for event in await stores.log()]
        assert runs == [first.id] * 3 + [third.id] * 2


async def test_cancelling_a_run_that_is_over_changes_nothing(folder: Path | None) -> None:
    async with stores_in(folder) as stores, engine_over(stores, _teller("Good day.")) as engine:
        run = await finish(engine, asking("hello"))
        log = await stores.log()
        for _ in range(2):
            assert (await engine.cancel(run.id, reason="asked by a test")).status is RunStatus.SUCCEEDED
        assert await stores.log() == log


async def test_wherever_a_run_is_cancelled_its_readers_see_the_whole_log(folder: Path | None) -> None:
    """Also while an event is being stored: it is then in the log, and has to be shown and answered."""

    async def lookup(key: str = "k") -> str:
        """Looks something up."""
        await asyncio.sleep(0)
        return key

    model = model_of([call("lookup", "c-1"), call("lookup", "c-2")], call("lookup", "c-3"), "Done.")
    agent = LlmAgent(name="desk", model=model, tools=[FunctionTool(lookup)])
    statuses: set[RunStatus] = set()
    for ticks in range(0, 120, 3):
        async with stores_in(folder and folder / str(ticks)) as stores, engine_over(stores, agent) as engine:
            run, reader = await start(engine, asking("go", streaming=True))
            for _ in range(ticks):
                await asyncio.sleep(0)
            statuses.add((await engine.cancel(run.id, reason="asked by a test")).status)
            items = await items_of(reader)
            log = await stores.log()
            seen = [item.seq for item in items if isinstance(item, StreamItem) and item.seq is not None]
            assert seen == [place for place, event in enumerate(log, 1) if event.author != "user"], ticks
            assert isinstance(items[-1], RunEnded)
            calls = [made.id for event in log for made in event.get_function_calls()]
            assert [r.id for event in log for r in event.get_function_responses()] == calls, ticks
    assert RunStatus.CANCELLED in statuses


async def test_a_run_past_its_deadline_fails_and_its_calls_are_answered(folder: Path | None) -> None:
    gate = Gate()
    agent = LlmAgent(name="desk", model=model_of(call("gate", "c-1")), tools=[FunctionTool(gate.gate)])
    async with stores_in(folder) as stores, engine_over(stores, agent) as engine:
        run = await finish(engine, asking("go", deadline_seconds=0.2))
        assert run.error is not None
        assert (run.status, run.error.code) == (RunStatus.FAILED, "DeadlineExceeded")
        last = (await stores.log())[-1]
        assert (last.error_code, [r.response for r in last.get_function_responses()]) == (
            "DeadlineExceeded",
            [INTERRUPTED],
        )


class Stubborn:
    """A tool that catches its cancellation, and then does what `after` says."""

    def __init__(self, after: str) -> None:
        self.after = after
        self.begun = asyncio.Event()
        self.released = asyncio.Event()
        self.ended = asyncio.Event()

    async def gate(self, tool_context: ToolContext) -> str:
        """Waits until it is released."""
        tool_context.state["gate"] = "passed"
        self.begun.set()
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            if self.after == "raises":
                raise ValueError("the clean-up failed") from None
            if self.after == "stays":
                await self.released.wait()
        self.ended.set()
        return "late"


@pytest.mark.parametrize("after", ["returns", "raises", "stays"])
async def test_a_deadline_holds_though_a_tool_catches_its_cancellation(folder: Path | None, after: str) -> None:
    stubborn = Stubborn(after)
    agent = LlmAgent(name="desk", model=model_of(call("gate", "c-1"), "Done."), tools=[stubborn.gate])
    async with stores_in(folder) as stores, engine_over(stores, agent) as engine:
        run = await finish(engine, asking("go", deadline_seconds=0.1))
        assert run.error is not None
        assert (run.status, run.error.code) == (RunStatus.FAILED, "DeadlineExceeded")
        await _check_that_the_late_result_is_dropped(stores, stubborn, "DeadlineExceeded")
        assert (await finish(engine, asking("again"))).status is RunStatus.SUCCEEDED


@pytest.mark.parametrize("after", ["returns", "raises", "stays"])
async def test_a_cancelled_run_ends_though_a_tool_catches_its_cancellation(folder: Path | None, after: str) -> None:
    stubborn = Stubborn(after)
    agent = LlmAgent(name="desk", model=model_of(call("gate", "c-1"), "Done."), tools=[stubborn.gate])
    async with stores_in(folder) as stores, engine_over(stores, agent) as engine:
        run, attachment = await start(engine, asking("go"))
        await stubborn.begun.wait()
        cancelled = await engine.cancel(run.id, reason="a client asked for it")
        attachment.close()
        assert cancelled.status is RunStatus.CANCELLED
        await _check_that_the_late_result_is_dropped(stores, stubborn, "INVOCATION_ABORTED")
        assert (await finish(engine, asking("again"))).status is RunStatus.SUCCEEDED


async def _check_that_the_late_result_is_dropped(stores: Stores, stubborn: Stubborn, error_code: str) -> None:
    log = await stores.log()
    stubborn.released.set()
    if stubborn.after != "raises":
        await stubborn.ended.wait()
    assert [r.response for event in log for r in event.get_function_responses()] == [INTERRUPTED]
    assert log[-1].error_code == error_code
    assert await stores.log() == log
    assert "gate" not in (await stores.session()).state


async def test_no_task_outlives_the_engine(folder: Path | None) -> None:
    gate = Gate()
    model = model_of(lambda message: call("gate", "c-1") if message == "go" else _TALE, delay=0.002)
    agent = LlmAgent(name="desk", model=model, tools=[FunctionTool(gate.gate)])
    before = asyncio.all_tasks()
    async with stores_in(folder) as stores:
        async with engine_over(stores, agent) as engine:
            await finish(engine, asking("tell", streaming=True))
            run, _ = await start(engine, asking("tell", streaming=True))
            await engine.cancel(run.id, reason="asked by a test")
            await start(engine, asking("go"))
            await start(engine, asking("tell"))
            await asyncio.wait_for(gate.begun.wait(), 5)
        assert await _left_behind(stores) == [RunStatus.RUNNING, RunStatus.QUEUED]
    await _until(lambda: asyncio.all_tasks() == before)


@pytest.mark.kill
@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stopping_server_leaves_its_runs_to_the_next(tmp_path: Path, signal_number: int) -> None:
    async with (
        server_in(tmp_path, TOOL_SECONDS="20", CHUNK_SECONDS="0.05") as server,
        httpx.AsyncClient(base_url=server.url, timeout=60) as http,
        asyncio.TaskGroup() as group,
    ):
        await server.start()
        where = {"appName": APP, "userId": "ann", "sessionId": "s-1"}
        path = f"/apps/{APP}/users/ann/sessions"
        await http.post(path, json={"sessionId": "s-1"})
        # A charge and a long text; and a text in line behind them.
        readers = [RunReader(http, where, message=message) for message in ("1", "4")]
        reading = [group.create_task(readers[0].read_to_the_end())]
        await _until(lambda: bool(read_lines(tmp_path / "tools.jsonl")))
        reading.append(group.create_task(readers[1].read_to_the_end()))
        await _until(lambda: readers[1].run_id is not None)
        assert await server.stop(signal_number) in (0, -signal_number), server.log()
        store = SqliteRunStore(tmp_path / "greenroom.db")
        assert sorted(run.status for run in await store.list_unfinished()) == [RunStatus.QUEUED, RunStatus.RUNNING]
        await store.close()
        await server.start()
        async with asyncio.timeout(30):
            await asyncio.gather(*reading)
        log = (await http.get(f"{path}/s-1/events")).json()["events"]
        state = (await http.get(f"{path}/s-1")).json()["state"]
        await _check_after_stop(server, readers, log, state)


async def _check_after_stop(server: ServerProcess, readers: list[RunReader], log: list[Json], state: Json) -> None:
    check_log(log)
    check_state(log, state)
    for reader in readers:
        assert reader.end is not None
        assert (reader.end["status"], reader.connections > 1) == ("succeeded", True)
        check_seen(log, reader.seen, run_id=reader.run_id, with_user_events=False)
    assert [r["response"] for event in log for r in responses_of(event)] == [INTERRUPTED]
    for leak in ("was destroyed but it is pending", "was never retrieved", "was never awaited"):
        assert leak not in server.log(), server.log()


async def _left_behind(stores: Stores) -> list[RunStatus]:
    runs = (await stores.runs.list_runs(RunFilter())).runs
    return [run.status for run in reversed(runs) if not run.status.is_over]


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def _text(event: Event) -> str:
    return event.content.text() if event.content is not None else ""


async def test_a_run_cancelled_while_a_response_is_being_stored_answers_its_call_once() -> None:
    """The store takes longer than the time after which a cancelled run is ended by another task."""

    class SlowSessions(InMemorySessionService):
        def __init__(self) -> None:
            super().__init__()
            self.began = asyncio.Event()
            self.may_end = asyncio.Event()

        async def append(self, session: Session, *events: Event) -> list[StoredEvent]:
            if any(event.get_function_responses() for event in events):
                self.began.set()
                await asyncio.shield(self.may_end.wait())
            return await super().append(session, *events)

    def look() -> str:
        """Looks."""
        return "seen"

    agent = LlmAgent(name="desk", model=model_of(call("look", "c-1"), "Never said."), tools=[FunctionTool(look)])
    sessions = SlowSessions()
    await sessions.create_session(**WHERE)
    stores = Stores(sessions, run_store_beside(sessions))
    async with engine_over(stores, agent) as engine:
        run, _ = await start(engine, asking("go"))
        await asyncio.wait_for(sessions.began.wait(), 5)
        cancelling = asyncio.create_task(engine.cancel(run.id, reason="asked by a test"))
        await asyncio.sleep(CANCEL_SECONDS + 0.3)
        sessions.may_end.set()
        assert (await asyncio.wait_for(cancelling, 5)).status is RunStatus.CANCELLED
        responses = [response.response for event in await stores.log() for response in event.get_function_responses()]
    assert responses == [{"result": "seen"}]
