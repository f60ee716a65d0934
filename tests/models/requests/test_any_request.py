"""Any history and any tools make a request that its vendor takes; GREENROOM_FUZZ gives the number of examples."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from greenroom.errors import MessageConversionError
from greenroom.models.anthropic.llm import AnthropicLlm
from greenroom.models.gemini.contents import generate_arguments
from greenroom.models.gemini.rules import RULES as GEMINI
from greenroom.models.openai.chat import OpenAILlm
from greenroom.models.openai.responses import OpenAIResponsesLlm
from greenroom.models.provider import ProviderLlm
from greenroom.records.content import Content
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.tool_declaration import FunctionDeclaration, Tool
from tests.models.requests import published_rules, strategies

Body = dict[str, Any]

EXAMPLES = settings(max_examples=min(int(os.environ.get("GREENROOM_FUZZ", "60")), 5_000))


def _converted(model: ProviderLlm) -> Callable[[LlmRequest], Body]:
    return lambda request: model.convert(model.rules_for(request).prepare(request).request)


def _gemini(model: str) -> Callable[[LlmRequest], Body]:
    return lambda request: generate_arguments(GEMINI.prepare(request).request, model=model, is_vertex=False)


def _mistral(body: Body) -> Iterator[str]:
    return published_rules.of_completions(body, is_mistral=True)


VENDORS: dict[str, tuple[str, Callable[[LlmRequest], Body], Callable[[Body], Iterator[str]]]] = {
    "Claude": ("claude-opus-5", _converted(AnthropicLlm("claude-opus-5", api_key="k")), published_rules.of_messages),
    "chat": ("gpt-4o", _converted(OpenAILlm("gpt-4o", api_key="k")), published_rules.of_completions),
    "Mistral": ("mistral/mistral-large", _converted(OpenAILlm("mistral/mistral-large", api_key="k")), _mistral),
    "Responses": ("gpt-5", _converted(OpenAIResponsesLlm("gpt-5", api_key="k")), published_rules.of_responses),
    "Gemini": ("gemini-3-pro", _gemini("gemini-3-pro"), published_rules.of_generate_content),
}

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("vendor", VENDORS)]


def problems(vendor: str, contents: list[Content], tools: list[FunctionDeclaration]) -> list[str]:
    """The reasons for which the vendor would refuse the request; the request itself stays as it was."""
    model, convert, check = VENDORS[vendor]
    config = GenerateContentConfig(tools=[Tool(function_declarations=tools)] if tools else None)
    request = LlmRequest(model=model, contents=contents, config=config)
    before = msgspec.msgpack.encode(request)
    try:
        body = convert(request)
    except MessageConversionError:
        return []  # media that the vendor doesn't have, in the newest message: refused by name
    finally:
        assert msgspec.msgpack.encode(request) == before
    return list(check(body))


@given(contents=strategies.histories)
@EXAMPLES
def test_any_history_makes_a_valid_request(vendor: str, contents: list[Content]) -> None:
    assert problems(vendor, contents, []) == []


@given(tools=strategies.declarations)
@EXAMPLES
def test_any_tools_make_a_valid_request(vendor: str, tools: list[FunctionDeclaration]) -> None:
    assert problems(vendor, [Content.model_validate({"role": "user", "parts": [{"text": "Hi"}]})], tools) == []


@given(contents=strategies.histories, tools=strategies.declarations)
@EXAMPLES
def test_any_history_with_any_tools_makes_a_valid_request(
    vendor: str, contents: list[Content], tools: list[FunctionDeclaration]
) -> None:
    assert problems(vendor, contents, tools) == []


@pytest.mark.parametrize("schema", strategies.FOUND, ids=str)
def test_schemas_found_in_the_wild_are_valid(vendor: str, schema: dict[str, Any]) -> None:
    tool = FunctionDeclaration(name="t", description="d", parameters_json_schema=schema)
    assert problems(vendor, [], [tool]) == []
