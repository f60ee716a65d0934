"""The rules of plugins: who is asked, who wins, and what becomes of errors."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import AgentConfigError, ModelError, PluginFailed
from greenroom.plugins import dispatch
from greenroom.plugins.dispatch import Plugins
from greenroom.plugins.plugin import BasePlugin
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmResponse
from greenroom.testing.scripted_model import Fails, ScriptedModel
from tests.agents.talk import STREAMED, call, told
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


async def test_errors_are_told_from_the_inside_out() -> None:
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
        Plugins([BasePlugin("p"), BasePlugin("q"), BasePlugin("p")])


async def test_the_first_answer_wins_and_nobody_behind_it_is_asked() -> None:
    seen: list[str] = []

    def own(**_: Any) -> None:
        seen.append("the agent's own")

    talk = WatchedTalk(
        agent_of(before_model_callback=own),
        watching("first", seen),
        watching("second", seen, before_model=LlmResponse(content=content("from the plugin"))),
        watching("third", seen),
    )
    assert told(await talk.say("hi")) == ["a: from the plugin"]
    assert [point for point in seen if "model" in point] == ["first before_model", "second before_model"]
    assert "the agent's own" not in seen


async def test_those_that_are_told_of_an_error_are_all_told_and_their_own_errors_only_logged(
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


async def test_a_failing_reply_can_be_replaced() -> None:
    answer = LlmResponse(content=content("later, please"))
    talk = WatchedTalk(agent_of(Fails(error=ModelError("down", model="m"))), watching("p", [], on_model_error=answer))
    assert told(await talk.say("hi")) == ["a: later, please"]


async def test_all_are_closed_and_their_errors_raised_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "CLOSE_SECONDS", 0.01)
    seen: list[str] = []
    plugins = Plugins(
        [
            watching("broken", seen, close=RuntimeError("no")),
            watching("slow", seen, close=asyncio.Event()),
            watching("good", seen),
        ]
    )
    with pytest.raises(ExceptionGroup) as caught:
        await plugins.close()
    assert seen == ["broken close", "slow close", "good close"]
    assert [error.plugin for error in caught.value.exceptions if isinstance(error, PluginFailed)] == ["broken", "slow"]


def test_closing_takes_five_seconds_at_most() -> None:
    assert dispatch.CLOSE_SECONDS == 5.0
