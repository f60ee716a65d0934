"""Advice by a stronger model. Row 7.8."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import AgentConfigError, LlmCallsLimitExceeded
from greenroom.records.answer_metadata import FinishReason, GenerateContentResponseUsageMetadata
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.run import RunConfig
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.model_consult import ModelConsultContextConfig, ModelConsultTool
from tests.agents.talk import Talk, call


def weigh(item: str) -> str:
    """Weighs an item."""
    return f"{item} weighs a lot"


def ask(question: str = "What now?", **more: Any):
    return call("model_consult", question=question, **more)


def desk(tool: ModelConsultTool, *script: Any) -> Talk:
    agent = LlmAgent(name="desk", model=ScriptedModel(list(script)), instruction="Ship things.", tools=[weigh, tool])
    return Talk(agent)


def results(events: list[Event]) -> list[JsonObject]:
    responses = [response for event in events for response in event.get_function_responses()]
    return [response.response or {} for response in responses if response.name == "model_consult"]


async def test_the_advisor_sees_instruction_tools_and_conversation() -> None:
    usage = GenerateContentResponseUsageMetadata(prompt_token_count=9, candidates_token_count=2, total_token_count=11)
    advice = LlmResponse(
        content=Content(role="model", parts=[Part(text="hm", thought=True), Part(text="Use a crane.")]),
        usage_metadata=usage,
        model_version="big-2",
    )
    advisor = ScriptedModel([advice], model="big")
    tool = ModelConsultTool(model=advisor, max_output_tokens=100)
    talk = desk(tool, call("weigh", item="piano"), ask(context="It is the third floor."), "done")
    (result,) = results(await talk.say("ship the piano"))
    assert result.pop("latency_ms") > 0
    assert result == {
        "status": "ok",
        "guidance": "Use a crane.",
        "advisor_model": "big-2",
        "thinking_level": "high",
        "consults": {
            "used_this_turn": 1,
            "max_uses": None,
            "used_this_session": 1,
            "session_max_uses": None,
            "remaining": None,
        },
        "usage": {
            "prompt_tokens": 9,
            "output_tokens": 2,
            "thoughts_tokens": 0,
            "cached_tokens": 0,
            "total_tokens": 11,
        },
    }
    (request,) = advisor.requests
    assert request.config.max_output_tokens == 100
    assert request.config.thinking_config is not None
    assert request.config.thinking_config.thinking_level == "HIGH"
    assert request.function_declarations() == []
    (content,) = request.contents
    texts = [part.text or "" for part in content.parts or ()]
    assert texts[0].startswith("The agent's instruction:\nShip things.")
    assert "model_consult" not in texts[0]
    assert texts[1:] == [
        "The agent's tools:\n- weigh: Weighs an item.",
        "The conversation so far:",
        "[user] ship the piano",
        '[desk] called weigh with {"item":"piano"}',
        '[desk] got from weigh: {"result":"piano weighs a lot"}',
        "The agent desk asks:\nWhat now?\n\nMore about it:\nIt is the third floor.",
    ]


async def test_the_instructions_say_when_to_ask() -> None:
    model = ScriptedModel(["hi", "hi"])
    for instruction in (None, ""):
        tool = ModelConsultTool(model=ScriptedModel([]), executor_instruction=instruction)
        await Talk(LlmAgent(name="a", model=model, tools=[tool])).say("hello")
    with_tool, without = (request.config.system_text() for request in model.requests)
    assert "call `model_consult`" in with_tool
    assert "model_consult" not in without


async def test_limits_hold_for_the_run_and_for_the_session_and_after_failures() -> None:
    advisor = ScriptedModel(["one", RuntimeError("down"), "two", "three"], model="big")
    tool = ModelConsultTool(model=advisor, max_uses=2, session_max_uses=3)
    script = [[ask(), ask()], ask(), ask(), "done", ask(), ask(), "done"]
    talk = desk(tool, *script)
    first = results(await talk.say("go"))
    assert [one["status"] for one in first] == ["ok", "error", "ok", "limit_reached"]
    assert first[1]["error"] == "RuntimeError: down"
    assert first[3]["consults"]["remaining"] == 0
    assert [one["status"] for one in results(await talk.say("go on"))] == ["ok", "limit_reached"]


async def test_calls_of_one_reply_are_counted_in_their_order() -> None:
    tool = ModelConsultTool(model=ScriptedModel(["one"]), max_uses=1)
    one, two = results(await desk(tool, [ask(), ask()], "done").say("go"))
    assert (one["status"], two["status"]) == ("ok", "limit_reached")


async def test_a_consult_counts_as_a_model_call_of_the_run() -> None:
    talk = desk(ModelConsultTool(model=ScriptedModel(["one"])), ask(), "done")
    with pytest.raises(LlmCallsLimitExceeded):
        await talk.say("go", run_config=RunConfig(max_llm_calls=2))


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (LlmResponse(finish_reason=FinishReason.SAFETY), "No advice; the reply ended with SAFETY"),
        (LlmResponse(error_code="QUOTA", error_message="used up"), "QUOTA: used up"),
    ],
)
async def test_a_reply_without_advice_is_an_error(said: LlmResponse, error: str) -> None:
    (result,) = results(await desk(ModelConsultTool(model=ScriptedModel([said])), ask(), "done").say("go"))
    assert result["status"] == "error"
    assert error in result["error"]


async def test_advice_that_takes_too_long_is_an_error() -> None:
    async def never(request: LlmRequest) -> str:
        await asyncio.Event().wait()
        return ""

    tool = ModelConsultTool(model=ScriptedModel(never), timeout_seconds=0.05)
    (result,) = results(await desk(tool, ask(), "done").say("go"))
    assert result["error"] == "TimeoutError"


async def test_a_model_that_is_not_there_is_an_error_when_it_is_asked() -> None:
    (result,) = results(await desk(ModelConsultTool(model="nobody/knows"), ask(), "done").say("go"))
    assert "ModelNotFound" in result["error"]


async def test_advice_that_is_cut_off_says_so() -> None:
    cut = LlmResponse(content=Content(parts=[Part(text="First")]), finish_reason=FinishReason.MAX_TOKENS)
    (result,) = results(await desk(ModelConsultTool(model=ScriptedModel([cut])), ask(), "done").say("go"))
    assert result["guidance"] == "First\n(The advice was cut off.)"


async def test_an_empty_question_is_invalid() -> None:
    talk = desk(ModelConsultTool(model=ScriptedModel([])), ask(" "), "done")
    assert results(await talk.say("go"))[0]["status"] == "invalid_request"


@pytest.mark.parametrize(
    ("config", "seen"),
    [
        (ModelConsultContextConfig(max_chars=50), ["[user] m0", "(… 3 events are left out …)", "[user] m2", "[desk] a2", "[user] m3"]),
        (ModelConsultContextConfig(max_events=3), ["[desk] a2", "[user] m3"]),
        (ModelConsultContextConfig(include_session=False), []),
    ],
)  # fmt: skip
async def test_what_the_advisor_sees_of_the_session_is_bounded(
    config: ModelConsultContextConfig, seen: list[str]
) -> None:
    advisor = ScriptedModel(["advice"])
    tool = ModelConsultTool(
        model=advisor, context_config=config, include_agent_instruction=False, include_tool_inventory=False
    )
    talk = desk(tool, "a0" + "." * 10, "a1" + "." * 10, "a2", ask(), "done")
    for number in range(4):
        await talk.say(f"m{number}")
    parts = advisor.requests[0].contents[0].parts or []
    assert [part.text for part in parts[:-1]][1:] == seen


async def test_media_are_shown_unless_they_are_left_out() -> None:
    image = Part.from_bytes(data=b"x" * 40, mime_type="image/png")
    for include, shown in ((True, image), (False, Part(text="[user] (a file, which is left out)"))):
        advisor = ScriptedModel(["advice"])
        config = ModelConsultContextConfig(include_media=include)
        talk = desk(ModelConsultTool(model=advisor, context_config=config), ask(), "done")
        await talk.say(Content(role="user", parts=[image]))
        assert shown in (advisor.requests[0].contents[0].parts or [])


@pytest.mark.parametrize("options", [{"max_uses": 0}, {"timeout_seconds": -1}, {"thinking_level": "deep"}])
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(AgentConfigError, match="ModelConsultTool"):
        ModelConsultTool(**options)
    with pytest.raises(AgentConfigError, match="limits must be 1 or more"):
        ModelConsultContextConfig(max_chars=0)
