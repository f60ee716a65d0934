"""Malformed replies of a model. Row 8.2."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import AgentConfigError, PluginFailed
from greenroom.plugins.reflect_retry_model import ReflectAndRetryModelPlugin
from greenroom.records.answer_metadata import FinishReason
from greenroom.records.content import Content, Part
from greenroom.records.model_exchange import LlmResponse
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import STREAMED, call
from tests.plugins.watched import WatchedTalk

MALFORMED = LlmResponse(finish_reason=FinishReason.MALFORMED_FUNCTION_CALL, error_message="print(pay(5))")


def talk(*script: Any, **options: Any) -> tuple[WatchedTalk, ScriptedModel]:
    model = ScriptedModel(list(script))
    return WatchedTalk(LlmAgent(name="a", model=model), ReflectAndRetryModelPlugin(**options)), model


@pytest.mark.parametrize("options", [{}, {"run_config": STREAMED}], ids=["whole", "streamed"])
async def test_the_model_gets_the_error_and_tries_again(options: dict[str, Any]) -> None:
    conversation, model = talk(MALFORMED, "paid")
    call_event, response_event, answer = [e for e in await conversation.say("pay", **options) if not e.partial]
    (made,) = call_event.get_function_calls()
    assert made.name == "adk_handle_model_error"
    assert made.args == {
        "response_type": "ERROR_HANDLED_BY_REFLECT_AND_RETRY_PLUGIN",
        "error_type": "MALFORMED_FUNCTION_CALL",
        "error_details": "print(pay(5))",
        "finish_reason": "MALFORMED_FUNCTION_CALL",
        "retry_count": 1,
    }
    (response,) = response_event.get_function_responses()
    guidance = (response.response or {})["reflection_guidance"]
    assert "MALFORMED_FUNCTION_CALL: print(pay(5))" in guidance
    assert "failure 1 of at most 3" in guidance
    assert answer.content is not None
    assert answer.content.text() == "paid"
    assert call_event.error_code is None
    assert model.requests[1].function_declarations() == []


async def test_after_max_retries_the_run_fails() -> None:
    conversation, _ = talk(MALFORMED, MALFORMED, max_retries=1)
    with pytest.raises(PluginFailed, match="failed 2 times in a row, the last time with MALFORMED_FUNCTION_CALL"):
        await conversation.say("pay")


async def test_or_the_reply_counts_as_it_is() -> None:
    conversation, _ = talk(MALFORMED, max_retries=0, throw_exception_if_retry_exceeded=False)
    (event,) = await conversation.say("pay")
    assert event.error_code == "MALFORMED_FUNCTION_CALL"


async def test_a_good_reply_resets_the_count() -> None:
    good = call("adk_unknown")
    conversation, _ = talk(MALFORMED, good, MALFORMED, "paid", max_retries=1)
    assert [e.content.text() for e in await conversation.say("pay") if e.content][-1] == "paid"


async def test_other_finish_reasons_are_left_alone_unless_they_are_listed() -> None:
    blocked = LlmResponse(finish_reason=FinishReason.SAFETY)
    (event,) = await talk(blocked)[0].say("pay")
    assert event.error_code == "SAFETY"
    events = await talk(blocked, "better", on_model_errors=[FinishReason.SAFETY])[0].say("pay")
    assert len(events) == 3


async def test_a_listed_reason_with_text_is_an_answer() -> None:
    cut = LlmResponse(finish_reason=FinishReason.MAX_TOKENS, content=Content(role="model", parts=[Part(text="I")]))
    events = await talk(cut, on_model_errors=[FinishReason.MAX_TOKENS])[0].say("pay")
    assert len(events) == 1


async def test_a_model_that_calls_the_reserved_tool_itself_is_corrected() -> None:
    conversation, _ = talk(call("adk_handle_model_error", error_type="none"), "paid")
    first = (await conversation.say("pay"))[0].get_function_calls()[0]
    assert (first.args or {})["error_type"] == "RESERVED_TOOL_CALL"


def test_a_negative_number_of_retries_is_refused() -> None:
    with pytest.raises(AgentConfigError, match="ReflectAndRetryModelPlugin: max_retries"):
        ReflectAndRetryModelPlugin(max_retries=-1)
