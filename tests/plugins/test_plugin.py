"""The rules of plugins: who is asked, who wins, and what becomes of errors."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.apps.loader import StaticAppLoader
from greenroom.errors import AgentConfigError, ModelError, PluginFailed
from greenroom.plugins.plugin import BasePlugin, PluginManager
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmResponse
from greenroom.records.run import RunConfig
from greenroom.runner.runner import Runner
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.runs.memory_store import InMemoryRunStore
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import Fails, ScriptedModel
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset
from tests.agents.talk import STREAMED, call, lines_of
from tests.durability.engines import asking, finish, stores_in
from tests.plugins.watched import WatchedTalk

POINTS = [name for name in vars(BasePlugin) if name.endswith("_callback")]


def watching(name: str, seen: list[str], **answers: Any) -> BasePlugin:
    """A plugin that writes down each point, and gives the answers it was given; an exception is raised."""

    def hook(point: str) -> Any:
        async def answer(self: BasePlugin, **_: Any) -> Any:
            seen.append(f"{self.name} {point.removesuffix('_callback')}")
            given = answers.get(point.removesuffix("_callback"))
            if isinstance(given, Exception):
                raise given
            return given

        return answer

    async def close(self: BasePlugin) -> None:
        seen.append(f"{self.name} close")
        given = answers.get("close")
        if isinstance(given, Exception):
            raise given
        if isinstance(given, asyncio.Event):
            await given.wait()

    kind = type("Watching", (BasePlugin,), {**{point: hook(point) for point in POINTS}, "close": close})
    return kind(name)


def content(text: str) -> Content:
    return Content(role="model", parts=[Part(text=text)])


def double(number: int) -> int:
    if number < 0:
        raise ValueError("too small")
    return number * 2


def agent_of(*script: Any, **more: Any) -> LlmAgent:
    return LlmAgent(name="a", model=ScriptedModel(list(script)), tools=[double], **more)


async def test_every_point_of_a_run_is_passed_in_this_order() -> None:
    seen: list[str] = []
    talk = WatchedTalk(agent_of(call("double", number=2), "four"), watching("p", seen))
    await talk.say("hi")
    await talk.runner.close()
    assert [point.removeprefix("p ") for point in seen] == [
        "on_user_message",
        "before_run",
        "before_agent",
        "before_model",
        "after_model",
        "on_event",
        "before_tool",
        "after_tool",
        "on_event",
        "before_model",
        "after_model",
        "on_event",
        "after_agent",
        "after_run",
        "close",
    ]


async def test_errors_are_reported_from_the_inside_out() -> None:
    seen: list[str] = []
    talk = WatchedTalk(agent_of(call("double", number=-1)), watching("p", seen))
    with pytest.raises(Exception, match="too small"):
        await talk.say("hi")
    assert [point for point in seen if "error" in point or "after_run" in point] == [
        "p on_tool_error",
        "p on_agent_error",
        "p on_run_error",
    ]


async def test_partial_events_come_by() -> None:
    seen: list[str] = []
    await WatchedTalk(agent_of("one two"), watching("p", seen)).say("hi", run_config=STREAMED)
    assert seen.count("p on_event") == 3


def test_equal_names_are_refused() -> None:
    with pytest.raises(AgentConfigError, match="used twice: p"):
        PluginManager([BasePlugin("p"), BasePlugin("q"), BasePlugin("p")])


async def test_the_first_answer_wins_and_nobody_after_it_is_asked() -> None:
    seen: list[str] = []

    def own(**_: Any) -> None:
        seen.append("the agent's own")

    talk = WatchedTalk(
        agent_of(before_model_callback=own),
        watching("first", seen),
        watching("second", seen, before_model=LlmResponse(content=content("from the plugin"))),
        watching("third", seen),
    )
    assert lines_of(await talk.say("hi")) == ["a: from the plugin"]
    assert [point for point in seen if "model" in point] == ["first before_model", "second before_model"]
    assert "the agent's own" not in seen


async def test_all_error_callbacks_run_and_their_own_errors_are_only_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[str] = []
    broken = watching("first", seen, on_run_error=RuntimeError("broken"), on_agent_error=RuntimeError("broken"))
    talk = WatchedTalk(agent_of(ModelError("down", model="m")), broken, watching("second", seen))
    with caplog.at_level(logging.ERROR), pytest.raises(ModelError, match="down"):
        await talk.say("hi")
    assert [point for point in seen if point.endswith(("run_error", "agent_error"))] == [
        "first on_agent_error",
        "second on_agent_error",
        "first on_run_error",
        "second on_run_error",
    ]
    assert "plugin first failed in on_run_error_callback" in caplog.text


async def test_an_error_in_after_run_skips_the_later_ones_and_fails_the_run() -> None:
    seen: list[str] = []
    broken = watching("first", seen, after_run=RuntimeError("broken"))
    talk = WatchedTalk(agent_of("hello"), broken, watching("second", seen))
    with pytest.raises(PluginFailed):
        await talk.say("hi")
    assert "second after_run" not in seen


@pytest.mark.parametrize("point", ["on_user_message", "before_run", "before_agent", "before_model", "after_model"])
async def test_an_error_in_a_plugin_names_plugin_and_point(point: str) -> None:
    talk = WatchedTalk(agent_of("hello"), watching("sieve", [], **{point: KeyError("city")}))
    with pytest.raises(PluginFailed) as caught:
        await talk.say("hi")
    assert (caught.value.plugin, caught.value.hook) == ("sieve", f"{point}_callback")
    assert "KeyError: 'city'" in caught.value.detail


async def test_a_changed_event_is_stored_as_it_is_shown() -> None:
    seen: list[str] = []
    changed = Event(author="a", content=content("shorter"))
    talk = WatchedTalk(agent_of("a long story"), watching("p", seen, on_event=changed))
    (shown,) = await talk.say("hi")
    assert (shown.content, shown.id != changed.id) == (changed.content, True)
    assert (await talk.log())[-1] == shown


async def test_a_changed_event_is_laid_over_the_original_field_by_field() -> None:
    changed = Event(id="mine", invocation_id="mine", timestamp=1.0, author="a", custom_metadata={"checked": True})
    talk = WatchedTalk(agent_of("a long story"), watching("p", [], on_event=changed))
    (shown,) = await talk.say("hi")
    assert (shown.content, shown.custom_metadata) == (content("a long story"), {"checked": True})
    assert "mine" not in (shown.id, shown.invocation_id)
    assert shown.timestamp > 1.0


async def test_a_changed_event_is_what_a_database_holds(tmp_path: Path) -> None:
    sessions = SqliteSessionService(tmp_path / "greenroom.db")
    plugins = [watching("p", [], on_event=Event(author="a", content=content("shorter")))]
    runner = Runner(agent=agent_of("a long story"), app_name="app", session_service=sessions, plugins=plugins)
    where: dict[str, Any] = {"user_id": "ada", "session_id": "s-1"}
    config = RunConfig(auto_create_session=True)
    (shown,) = [e async for e in runner.run_async(**where, new_message=content("hi"), run_config=config)]
    await sessions.close()
    afresh = SqliteSessionService(tmp_path / "greenroom.db")
    stored = (await afresh.list_events(app_name="app", **where)).events[-1]
    assert (stored.id, stored.content) == (shown.id, content("shorter"))
    await afresh.close()


async def test_a_failing_reply_can_be_replaced() -> None:
    answer = LlmResponse(content=content("later, please"))
    talk = WatchedTalk(agent_of(Fails(error=ModelError("down", model="m"))), watching("p", [], on_model_error=answer))
    assert lines_of(await talk.say("hi")) == ["a: later, please"]


async def test_an_error_of_a_plugin_is_not_taken_for_the_models() -> None:
    seen: list[str] = []
    answer = LlmResponse(content=content("never said"))
    plugin = watching("p", seen, after_model=KeyError("city"), on_model_error=answer)
    with pytest.raises(PluginFailed, match="after_model_callback"):
        await WatchedTalk(agent_of("hello"), plugin).say("hi")
    assert "p on_model_error" not in seen


class SmallToolset(BaseToolset):
    """A toolset that can't be closed."""

    async def get_tools(self, readonly_context: object = None) -> list[BaseTool]:
        return []

    async def close(self) -> None:
        raise OSError("stuck")


async def test_all_are_closed_and_their_errors_raised_together() -> None:
    seen: list[str] = []
    plugins = [
        watching("broken", seen, close=RuntimeError("no")),
        watching("slow", seen, close=asyncio.Event()),
        watching("good", seen),
    ]
    agent = LlmAgent(name="a", model=ScriptedModel([]), tools=[SmallToolset()])
    services = InMemorySessionService()
    runner = Runner(agent=agent, session_service=services, plugins=plugins, plugin_close_timeout=0.01)
    with pytest.raises(ExceptionGroup) as caught:
        await runner.close()
    assert seen == ["broken close", "slow close", "good close"]
    stuck, *others = caught.value.exceptions
    assert isinstance(stuck, OSError)
    assert [error.plugin for error in others if isinstance(error, PluginFailed)] == ["broken", "slow"]


async def test_closing_takes_five_seconds_for_a_plugin_and_ten_for_a_toolset_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    granted: list[float | None] = []
    timeout = asyncio.timeout

    def granting(seconds: float | None) -> asyncio.Timeout:
        granted.append(seconds)
        return timeout(0.01)

    monkeypatch.setattr(asyncio, "timeout", granting)
    agent = LlmAgent(name="a", model=ScriptedModel([]), tools=[SmallToolset()])
    slow = watching("slow", [], close=asyncio.Event())
    with pytest.raises(ExceptionGroup):
        await Runner(agent=agent, session_service=InMemorySessionService(), plugins=[slow]).close()
    assert granted == [10, 5.0]


async def test_a_toolset_that_several_agents_have_is_closed_once() -> None:
    class Counting(SmallToolset):
        closed = 0

        async def close(self) -> None:
            self.closed += 1

    shared = Counting()
    below = LlmAgent(name="b", model=ScriptedModel([]), tools=[shared])
    agent = LlmAgent(name="a", model=ScriptedModel([]), tools=[shared], sub_agents=[below])
    await Runner(agent=agent, session_service=InMemorySessionService()).close()
    assert shared.closed == 1


async def test_a_plugin_that_cant_be_closed_keeps_no_store_open() -> None:
    async with stores_in(None) as stores:
        runs = ClosedStore()
        engine = InProcessRunEngine(
            apps=StaticAppLoader(
                [App(name="desk", root_agent=agent_of("hello"), plugins=[watching("p", [], close=RuntimeError("no"))])]
            ),
            run_store=runs,
            session_service=stores.sessions,
        )
        await finish(engine, asking("hi"))
        await engine.close()
    assert runs.is_closed


class ClosedStore(InMemoryRunStore):
    is_closed = False

    async def close(self) -> None:
        await super().close()
        self.is_closed = True
