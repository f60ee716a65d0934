"""Settings of single vendors, on top of those that all models share."""

from __future__ import annotations

import pytest

from greenroom.errors import MessageConversionError
from greenroom.models.anthropic.messages import message_arguments
from greenroom.models.gemini.contents import generate_arguments
from greenroom.models.model import AnthropicGenerateContentConfig, OpenAIGenerateContentConfig, ServiceTier
from greenroom.models.openai.items import response_arguments
from greenroom.models.openai.messages import completion_arguments
from greenroom.records.content import Blob, Content, Part, UserContent
from greenroom.records.generation import GenerateContentConfig, ThinkingConfig
from greenroom.records.model_exchange import LlmRequest


def request(config: GenerateContentConfig) -> LlmRequest:
    return LlmRequest(contents=[UserContent("Hi")], config=config)


def test_effort_is_sent_to_whichever_vendor_has_it() -> None:
    claude = request(AnthropicGenerateContentConfig(effort="xhigh"))
    made = message_arguments(claude, model="claude-opus-5", max_tokens=9, transform_schema=lambda schema: schema)
    assert made["output_config"] == {"effort": "xhigh"}
    openai = request(OpenAIGenerateContentConfig(effort="low"))
    assert completion_arguments(openai, model="gpt-5")["reasoning_effort"] == "low"
    assert response_arguments(openai, model="gpt-5")["reasoning"] == {"effort": "low"}
    assert "effort" not in generate_arguments(openai, model="gemini-2.5-pro", is_vertex=False)["config"]


def test_effort_beside_a_thinking_level_or_budget_is_refused() -> None:
    level, budget = ThinkingConfig(thinking_level="HIGH"), ThinkingConfig(thinking_budget=2048)
    with pytest.raises(ValueError, match="thinking_level"):
        AnthropicGenerateContentConfig(effort="low", thinking_config=level)
    with pytest.raises(ValueError, match="thinking_budget"):
        OpenAIGenerateContentConfig(effort="low", thinking_config=budget)
    with pytest.raises(ValueError, match="one of low, medium, high, xhigh, max"):
        AnthropicGenerateContentConfig(effort="extreme")
    assert AnthropicGenerateContentConfig(effort="low", thinking_config=budget).effort == "low"


def test_service_tiers_have_each_vendors_name() -> None:
    def tier(name: str) -> object:
        return completion_arguments(request(GenerateContentConfig(service_tier=name)), model="gpt-5")["service_tier"]

    assert (tier(ServiceTier.FLEX), tier(ServiceTier.STANDARD), tier("scale")) == ("flex", "default", "scale")
    with pytest.raises(MessageConversionError, match="deferred"):
        tier(ServiceTier.DEFERRED)


def test_an_image_that_another_vendor_made_is_sent_to_gemini() -> None:
    image = Part(inline_data=Blob(data=b"png", mime_type="image/png"), part_metadata={"openai": {"id": "ig_1"}})
    asked = LlmRequest(contents=[Content(role="model", parts=[image]), UserContent("Hi")])
    first = generate_arguments(asked, model="gemini-2.5-pro", is_vertex=True)["contents"][1]
    assert first["parts"] == [{"inline_data": {"data": b"png", "mime_type": "image/png"}}]
