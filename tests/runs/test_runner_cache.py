"""Toolsets of an app that was reloaded."""

from __future__ import annotations

import asyncio
from typing import Any

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.apps.loader import AppLoader
from greenroom.errors import AppNotFound
from greenroom.records.model_exchange import LlmRequest
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.runs.memory_store import InMemoryRunStore
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset
from tests.runs.test_in_process import WAIT, Gate, asking, end, read, said


class Box(BaseToolset):
    """A toolset that notes that it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = asyncio.Event()

    async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:
        return []

    async def close(self) -> None:
        self.closed.set()


class Changing(AppLoader):
    """One app, of which a new version can be put in place."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.put("first")

    def put(self, version: str) -> Box:
        def answer(request: LlmRequest) -> Any:
            is_answered = any(part.function_response for part in request.contents[-1].parts or ())
            return WAIT if said(request) == "wait" and not is_answered else version

        self.box = Box()
        agent = LlmAgent(name="agent", model=ScriptedModel(answer), tools=[self._gate.wait, self.box])
        self._app = App(name="app", root_agent=agent)
        return self.box

    def list_apps(self) -> list[str]:
        return ["app"]

    def load(self, app_name: str) -> App:
        if app_name != "app":
            raise AppNotFound(app_name, self.list_apps())
        return self._app


async def test_a_replaced_agent_is_closed_when_its_last_run_is_over() -> None:
    gate = Gate()
    apps = Changing(gate)
    sessions = InMemorySessionService()
    for session_id in ("s-1", "s-2"):
        await sessions.create_session(app_name="app", user_id="ada", session_id=session_id)
    engine = InProcessRunEngine(apps=apps, run_store=InMemoryRunStore(), session_service=sessions)
    old = apps.box
    _, waiting = await engine.start(asking("wait"))
    await gate.entered.wait()
    new = apps.put("second")
    _, on_new = await engine.start(asking("hello", session_id="s-2"))
    assert waiting is not None
    assert on_new is not None
    assert [item.event.content.text() for item in (await read(on_new))[:-1]] == ["second"]  # type: ignore[union-attr]
    assert not old.closed.is_set()
    gate.open.set()
    assert end(await read(waiting)).run.error is None
    async with asyncio.timeout(5):
        await old.closed.wait()
    assert not new.closed.is_set()
    await engine.close()
    assert new.closed.is_set()


async def test_a_replaced_agent_that_no_run_uses_is_closed_at_once() -> None:
    apps = Changing(Gate())
    sessions = InMemorySessionService()
    await sessions.create_session(app_name="app", user_id="ada", session_id="s-1")
    engine = InProcessRunEngine(apps=apps, run_store=InMemoryRunStore(), session_service=sessions)
    old = apps.box
    for version in ("first", "second"):
        _, reader = await engine.start(asking("hello"))
        assert reader is not None
        await read(reader)
        apps.put(version)
    async with asyncio.timeout(5):
        await old.closed.wait()
    await engine.close()
