"""An exception of an app's code fails its run only: the session, and the server, continue."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from greenroom import LongRunningFunctionTool
from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import ParallelAgent
from greenroom.apps.app import App
from greenroom.models.model import BaseLlm
from greenroom.records import wire
from greenroom.records.content import Blob, FunctionResponse, Part
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.run import RunStatus
from greenroom.runs.sqlite_store import SqliteRunStore
from greenroom.testing.scripted_model import ScriptedModel
from tests.durability.engines import asking, engine_over, finish, stores_in
from tests.durability.invariants import check_log
from tests.durability.scripts import call, model_of

_RAISED = [asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit]
_CALLS = {
    "sync tool": [call("sync_tool", "c-1")],
    "async tool": [call("async_tool", "c-1")],
    "two tools": [call("sync_tool", "c-1"), call("async_tool", "c-2")],
    "tool callback": [call("sync_tool", "c-1")],
}
_PLACES = [*_CALLS, "model", "branch", "model callback"]


class _Fault:
    """Raises while it is armed."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error
        self.is_armed = True

    def strike(self, **_: Any) -> None:
        if self.is_armed:
            raise self.error("raised by the app")


class _FailingModel(BaseLlm):
    fault: _Fault

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        self.fault.strike()
        async for response in ScriptedModel(["fine"]).generate_content_async(llm_request, stream=stream):
            yield response


def _agent(place: str, fault: _Fault) -> BaseAgent:
    def sync_tool() -> str:
        """Raises."""
        fault.strike()
        return "done"

    async def async_tool() -> str:
        """Raises."""
        await asyncio.sleep(0)
        fault.strike()
        return "done"

    is_model = place in ("model", "branch")
    failing = _FailingModel(model="failing", fault=fault)
    agent = LlmAgent(
        name="agent",
        model=failing if is_model else model_of(lambda m: _CALLS.get(place, "hi") if m == "go" else "fine", "done"),
        tools=[sync_tool, async_tool],
        before_model_callback=fault.strike if place == "model callback" else None,
        before_tool_callback=fault.strike if place == "tool callback" else None,
    )
    if place == "branch":
        return ParallelAgent(name="both", sub_agents=[agent, LlmAgent(name="other", model=model_of("fine"))])
    return agent


@pytest.mark.parametrize("error", _RAISED)
@pytest.mark.parametrize("place", _PLACES)
async def test_a_base_exception_fails_its_run_only(place: str, error: type[BaseException]) -> None:
    fault = _Fault(error)
    async with stores_in(None) as stores, engine_over(stores, _agent(place, fault)) as engine:
        run = await finish(engine, asking("go"))
        assert run.status is RunStatus.FAILED
        assert run.error is not None
        assert error.__name__ in run.error.message or "exit code" in run.error.message
        check_log(wire.to_plain(await stores.log()))
        fault.is_armed = False
        assert (await finish(engine, asking("again"))).status is RunStatus.SUCCEEDED
        assert engine.load() == {}


async def test_a_tool_that_cancels_a_task_of_its_own_fails_its_run_only() -> None:
    async def helped() -> str:
        """Awaits a task that it has cancelled."""
        helper = asyncio.create_task(asyncio.sleep(60))
        helper.cancel()
        await helper
        return "never"

    agent = LlmAgent(name="agent", model=model_of(call("helped", "c-1"), "fine"), tools=[helped])
    async with stores_in(None) as stores, engine_over(stores, agent) as engine:
        run = await finish(engine, asking("go"))
        assert run.status is RunStatus.FAILED
        check_log(wire.to_plain(await stores.log()))


async def test_a_callback_that_cancels_the_current_task_fails_its_run_only() -> None:
    async def cancel(**_: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    agent = LlmAgent(name="agent", model=model_of("fine"), before_model_callback=cancel)
    async with stores_in(None) as stores, engine_over(stores, agent) as engine:
        assert (await finish(engine, asking("go"))).status is RunStatus.FAILED
        assert engine.load() == {}


async def test_a_message_is_stored_once(tmp_path: Path) -> None:
    image = Blob(data=b"\x89PNG" * 100_000, mime_type="image/png")
    agent = LlmAgent(name="agent", model=model_of("I see."))
    async with stores_in(tmp_path) as stores, engine_over(stores, agent) as engine:
        run = await finish(engine, asking(Part(inline_data=image), state_delta={"big": "x" * 1000}))
        await stores.sessions.create_session(app_name="desk", user_id="ann")  # written behind the run's end
        stored = (await stores.log())[run.message_after_seq].content
        assert stored is not None
        assert (stored.parts or [])[0].inline_data == image
        kept = await SqliteRunStore(tmp_path / "greenroom.db").get(run.id)
        assert kept is not None
        assert kept.request is not None
        assert (kept.request.new_message, kept.request.state_delta) == (None, None)
        with contextlib.closing(sqlite3.connect(tmp_path / "greenroom.db")) as database:
            (size,) = database.execute("SELECT length(data) + ifnull(length(request), 0) FROM runs").fetchone()
        assert size < 2000


async def test_a_run_that_continues_with_other_code_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    def export() -> None:
        """Answers later."""

    def app(version: str) -> App:
        agent = LlmAgent(
            name="agent", model=model_of(call("export", "c-1"), "done"), tools=[LongRunningFunctionTool(export)]
        )
        return App(name="desk", root_agent=agent, version=version)

    answer = asking(Part(function_response=FunctionResponse(id="c-1", name="export", response={"rows": 7})))
    async with stores_in(None) as stores:
        async with engine_over(stores, app("one")) as engine:
            waiting = await finish(engine, asking("go"))
            assert (waiting.status, waiting.app_version) == (RunStatus.WAITING, "one")
        async with engine_over(stores, app("two")) as engine:
            run = await finish(engine, answer)
            assert (run.status, run.app_version) == (RunStatus.SUCCEEDED, "two")
            assert "began with version one of app desk, continues with two" in caplog.text
