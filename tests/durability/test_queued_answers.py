"""An answer that was accepted while its run is active, and that waits in the queue, is never lost."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import httpx
import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.errors import StorageError
from greenroom.invocation.compaction import BaseEventsSummarizer, EventsCompactionConfig
from greenroom.records import wire
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event, EventActions, EventCompaction
from greenroom.records.run import RunFilter, RunStatus
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool, LongRunningFunctionTool
from tests.durability.engines import Gate, Stores, asking, end_of, ended, engine_over, finish, start, stores_in
from tests.durability.queued_answers_server import export, reply
from tests.durability.server_process import server_in
from tests.durability.test_full_disk import full
from tests.server.serving import until


def exported(name: str, rows: int = 2, padding: str = "") -> Part:
    response = {"rows": rows, **({"padding": padding} if padding else {})}
    return Part(function_response=FunctionResponse(id=f"c-{name}", name="export", response=response))


def desk(gate: Gate) -> LlmAgent:
    tools = [FunctionTool(gate.wait, on_interrupt="retry"), LongRunningFunctionTool(export)]
    return LlmAgent(name="desk", model=ScriptedModel(reply), tools=tools)


def opened() -> Gate:
    gate = Gate()
    gate.open.set()
    return gate


def answers(log: list[Event]) -> dict[str, list[int]]:
    """The answers to exports in the log, by the id of the call."""
    found: dict[str, list[int]] = {}
    for event in log:
        for response in event.get_function_responses():
            if event.author == "user" and response.name == "export":
                found.setdefault(response.id or "", []).append((response.response or {})["rows"])
    return found


async def accept(engine: InProcessRunEngine, part: Part | str) -> str:
    """Returns the id of the run that continues with a message, when that is accepted."""
    run, reader = await start(engine, asking(part))
    reader.close()
    return run.id


async def stored_statuses(stores: Stores) -> list[RunStatus]:
    return [run.status for run in (await stores.runs.list_runs(RunFilter())).runs]


async def test_an_answer_behind_the_active_run_survives_a_stop(tmp_path: Path) -> None:
    gate = Gate()
    async with stores_in(tmp_path) as stores, engine_over(stores, desk(gate)) as engine:
        run_id = await accept(engine, "export a, wait")
        await gate.entered.wait()
        assert await accept(engine, exported("a")) == run_id

    async with stores_in(tmp_path) as stores, engine_over(stores, desk(opened())) as engine:
        assert await engine.recover() == 1
        assert (await end_of(engine, run_id)).status is RunStatus.SUCCEEDED
        assert answers(await stores.log()) == {"c-a": [2]}


async def test_two_answers_behind_another_run_survive_a_stop(tmp_path: Path) -> None:
    gate = Gate()
    async with stores_in(tmp_path) as stores, engine_over(stores, desk(gate)) as engine:
        run_id = (await finish(engine, asking("export a, export b"))).id
        await accept(engine, "wait")
        await gate.entered.wait()
        assert await accept(engine, exported("a", 3)) == run_id
        assert await accept(engine, exported("b", 4)) == run_id

    async with stores_in(tmp_path) as stores, engine_over(stores, desk(opened())) as engine:
        assert await engine.recover() == 2
        assert (await end_of(engine, run_id)).status is RunStatus.SUCCEEDED
        assert answers(await stores.log()) == {"c-a": [3], "c-b": [4]}


async def test_an_answer_behind_a_retried_run_is_read(tmp_path: Path) -> None:
    gate = Gate()
    agent = desk(gate)
    calls = [FunctionCall(id="c-a", name="export", args={}), FunctionCall(id="c-wait", name="wait", args={})]
    agent.model = ScriptedModel([ValueError("broken"), calls, "waits", "done"])
    async with stores_in(tmp_path) as stores, engine_over(stores, agent) as engine:
        failed = await finish(engine, asking("go"))
        assert failed.status is RunStatus.FAILED
        await engine.retry(failed.id)
        await gate.entered.wait()
        assert await accept(engine, exported("a")) == failed.id
        gate.open.set()
        assert (await end_of(engine, failed.id)).status is RunStatus.SUCCEEDED
        assert answers(await stores.log()) == {"c-a": [2]}


async def test_a_refused_answer_leaves_the_active_run_as_it_is(tmp_path: Path) -> None:
    gate = Gate()
    async with stores_in(tmp_path) as stores:
        async with engine_over(stores, desk(gate)) as engine:
            run, reader = await start(engine, asking("export a, wait"))
            await gate.entered.wait()
            async with full(tmp_path / "greenroom.db"):
                with pytest.raises(StorageError):
                    await accept(engine, exported("a", padding="too large for the pages " * 4000))
            assert (await engine.get(run.id)).status is RunStatus.RUNNING

            gate.open.set()
            assert (await ended(reader)).status is RunStatus.WAITING
            await accept(engine, exported("a"))
            assert (await end_of(engine, run.id)).status is RunStatus.SUCCEEDED
        assert await stored_statuses(stores) == [RunStatus.SUCCEEDED]
        assert answers(await stores.log()) == {"c-a": [2]}


class HeldSummarizer(BaseEventsSummarizer):
    """Summarizes once, when the gate is open."""

    def __init__(self) -> None:
        self.gate = Gate()

    async def maybe_summarize_events(self, *, events: list[Event]) -> Event | None:
        if self.gate.entered.is_set():
            return None
        await self.gate.wait()
        summary = EventCompaction(
            start_timestamp=events[0].timestamp,
            end_timestamp=events[-1].timestamp,
            compacted_content=Content(role="model", parts=[Part(text="a summary")]),
        )
        return Event(invocation_id="e-summary", author="user", actions=EventActions(compaction=summary))


async def test_a_run_that_is_continued_during_its_compaction_keeps_its_newer_record(tmp_path: Path) -> None:
    summarizer = HeldSummarizer()
    config = EventsCompactionConfig(summarizer=summarizer, compaction_interval=1, overlap_size=0)
    app = App(name="desk", root_agent=desk(opened()), events_compaction_config=config)
    async with stores_in(tmp_path) as stores:
        async with engine_over(stores, app, grace_seconds=5) as engine:
            run = await finish(engine, asking("wait"))
            assert run.status is RunStatus.SUCCEEDED
            await summarizer.gate.entered.wait()
            waiting = await finish(engine, asking("export a", invocation_id=run.id))
            assert (waiting.id, waiting.status) == (run.id, RunStatus.WAITING)
            summarizer.gate.open.set()

        assert [event for event in await stores.log() if event.actions.compaction is not None]
        assert await stored_statuses(stores) == [RunStatus.WAITING]


@pytest.mark.kill
async def test_answers_survive_the_end_of_a_server(tmp_path: Path) -> None:
    """It is stopped while two answers are behind another run, and killed while the first one is being carried out."""
    async with (
        server_in(tmp_path, module="tests.durability.queued_answers_server") as server,
        httpx.AsyncClient(base_url=server.url, timeout=30) as http,
    ):
        await server.start()
        await http.post("/apps/desk/users/ann/sessions", json={"sessionId": "s-1"})
        run_id = await _accepted(http, Part(text="export a, export b"))
        await until(lambda: _has_status(http, run_id, "waiting"))
        await _accepted(http, Part(text="wait"))
        await until((tmp_path / "wait.entered").exists)
        for part in (exported("a", 1), exported("b", 2)):
            assert await _accepted(http, part) == run_id

        await server.stop(signal.SIGTERM)
        await server.start()
        (tmp_path / "wait.open").touch()
        await until((tmp_path / "hold.entered").exists)
        await server.kill()
        await server.start()
        (tmp_path / "hold.open").touch()
        await until(lambda: _has_status(http, run_id, "succeeded"))

    async with stores_in(tmp_path) as stores:
        assert answers(await stores.log()) == {"c-a": [1], "c-b": [2]}


async def _accepted(http: httpx.AsyncClient, part: Part) -> str:
    message = json.loads(wire.encode(Content(role="user", parts=[part])))
    reply = await http.post("/apps/desk/users/ann/sessions/s-1/runs", json={"newMessage": message})
    assert reply.status_code == 202, reply.text
    return reply.json()["id"]


async def _has_status(http: httpx.AsyncClient, run_id: str, status: str) -> bool:
    return (await http.get(f"/runs/{run_id}")).json()["status"] == status
