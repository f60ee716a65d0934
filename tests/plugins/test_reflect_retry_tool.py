from __future__ import annotations

from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import AgentConfigError, PluginFailed
from greenroom.invocation.user_context import ToolContext
from greenroom.plugins.reflect_retry_tool import ReflectAndRetryToolPlugin, TrackingScope
from greenroom.records.base import JsonObject
from greenroom.records.event import Event
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.tool import BaseTool
from tests.agents.talk import call
from tests.plugins.watched import WatchedTalk

HANDLED = "ERROR_HANDLED_BY_REFLECT_AND_RETRY_PLUGIN"


def half(number: int) -> int:
    if number % 2:
        raise ValueError("odd")
    return number // 2


def other(number: int) -> int:
    raise KeyError(number)


def agent(*script: Any) -> LlmAgent:
    return LlmAgent(name="a", model=ScriptedModel(list(script)), tools=[half, other])


ODD, EVEN = call("half", number=3), call("half", number=4)


def responses(events: list[Event]) -> list[JsonObject]:
    return [response.response or {} for event in events for response in event.get_function_responses()]


def retries(events: list[Event]) -> list[int | None]:
    return [response.get("retry_count") for response in responses(events)]


async def test_a_failure_becomes_guidance_and_the_run_continues() -> None:
    events = await WatchedTalk(agent(ODD, EVEN, "two"), ReflectAndRetryToolPlugin()).say("half of 3?")
    first, second = responses(events)
    guidance = first.pop("reflection_guidance")
    assert first == {"response_type": HANDLED, "error_type": "ValueError", "error_details": "odd", "retry_count": 1}
    for hint in ("`half`", "ValueError: odd", '{"number":3}', "failure 1 of at most 3", "Check that"):
        assert hint in guidance
    assert second == {"result": 2}


async def test_after_max_retries_the_original_error_ends_the_run() -> None:
    talk = WatchedTalk(agent(ODD, ODD, ODD, ODD), ReflectAndRetryToolPlugin())
    with pytest.raises(ValueError, match="odd"):
        await talk.say("half of 3?")
    assert retries(await talk.log()) == [1, 2, 3, None]


async def test_or_the_model_is_asked_to_do_without_the_tool() -> None:
    plugin = ReflectAndRetryToolPlugin(max_retries=1, throw_exception_if_retry_exceeded=False)
    events = await WatchedTalk(agent(ODD, ODD, "sorry"), plugin).say("half of 3?")
    first, second = responses(events)
    assert second["response_type"] == HANDLED
    assert second["retry_count"] == 2
    assert "Do not call `half` again" in second["reflection_guidance"]
    assert "Do not call" not in first["reflection_guidance"]


async def test_with_no_retries_the_first_failure_is_the_last() -> None:
    with pytest.raises(ValueError, match="odd"):
        await WatchedTalk(agent(ODD), ReflectAndRetryToolPlugin(max_retries=0)).say("half of 3?")


async def test_a_success_resets_the_count_of_that_tool_only() -> None:
    script = [ODD, call("other", number=1), EVEN, ODD, call("other", number=1), "done"]
    events = await WatchedTalk(agent(*script), ReflectAndRetryToolPlugin()).say("go")
    assert retries(events) == [1, 1, None, 1, 2]


async def test_failures_are_counted_in_one_run() -> None:
    talk = WatchedTalk(agent(ODD, "no", ODD, "no"), ReflectAndRetryToolPlugin())
    assert retries(await talk.say("one")) == [1]
    assert retries(await talk.say("two")) == [1]


async def test_or_over_all_runs() -> None:
    talk = WatchedTalk(agent(ODD, "no", ODD, "no"), ReflectAndRetryToolPlugin(tracking_scope=TrackingScope.GLOBAL))
    await talk.say("one")
    assert retries(await talk.say("two")) == [2]


class _ErrorsInResults(ReflectAndRetryToolPlugin):
    async def extract_error_from_result(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, result: Any
    ) -> JsonObject | None:
        return result if isinstance(result, dict) and result.get("status") == "error" else None


def pay(amount: int) -> JsonObject:
    return {"status": "error", "why": "no money"} if amount > 10 else {"status": "paid"}


async def test_errors_can_be_found_in_results() -> None:
    script = [call("pay", amount=20), call("pay", amount=5), "paid"]
    payer = LlmAgent(name="a", model=ScriptedModel(script), tools=[pay])
    first, second = responses(await WatchedTalk(payer, _ErrorsInResults()).say("pay"))
    assert (first["response_type"], first["retry_count"]) == (HANDLED, 1)
    assert "no money" in first["error_details"]
    assert second == {"status": "paid"}


async def test_and_end_the_run_when_there_are_too_many() -> None:
    payer = LlmAgent(name="a", model=ScriptedModel([call("pay", amount=20)]), tools=[pay])
    with pytest.raises(PluginFailed, match="no money"):
        await WatchedTalk(payer, _ErrorsInResults(max_retries=0)).say("pay")


async def test_guidance_of_another_such_plugin_is_left_alone() -> None:
    class Sees(ReflectAndRetryToolPlugin):
        async def extract_error_from_result(self, **_: Any) -> JsonObject | None:
            raise AssertionError("asked about a result that is guidance already")

    plugins = [ReflectAndRetryToolPlugin(), Sees(name="second")]
    events = await WatchedTalk(agent(ODD, "no"), *plugins).say("go")
    assert retries(events) == [1]


async def test_nothing_is_kept_of_runs_that_are_over() -> None:
    plugin = ReflectAndRetryToolPlugin(max_retries=1)
    await WatchedTalk(agent(ODD, "no"), plugin).say("go")
    with pytest.raises(ValueError, match="odd"):
        await WatchedTalk(agent(ODD, ODD), plugin).say("go")
    assert plugin._failures == {}


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(AgentConfigError, match="max_retries"):
        ReflectAndRetryToolPlugin(max_retries=-1)
