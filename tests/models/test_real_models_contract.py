"""The contract of models where a real model answers: the local one's endpoints, and the vendors' services.

Of the suite only the tests that hold whatever the model says. A vendor is skipped without its key.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import pytest

from greenroom.errors import ModelError
from greenroom.models.anthropic.llm import AnthropicLlm
from greenroom.models.gemini.llm import Gemini
from greenroom.models.model import BaseLlm
from greenroom.models.openai.chat import OpenAILlm
from greenroom.models.openai.responses import OpenAIResponsesLlm
from greenroom.records.base import JsonObject
from greenroom.records.content import Part
from greenroom.testing.contracts.model import Misbehavior, ModelProvider, exchanges
from greenroom.testing.contracts.model.provider import _ask, _request  # pyright: ignore[reportPrivateUsage]

test_a_request_is_not_changed = exchanges.test_a_request_is_not_changed
test_calls_without_ids_or_with_strange_ones_are_answered = (
    exchanges.test_calls_without_ids_or_with_strange_ones_are_answered
)
test_images = exchanges.test_images
test_one_model_answers_many_at_once = exchanges.test_one_model_answers_many_at_once
test_output_schema = exchanges.test_output_schema
test_streamed_text_comes_in_pieces = exchanges.test_streamed_text_comes_in_pieces
test_system_instruction_and_roles = exchanges.test_system_instruction_and_roles
test_text = exchanges.test_text
test_the_history_of_another_model_is_accepted = exchanges.test_the_history_of_another_model_is_accepted
test_tool_choice = exchanges.test_tool_choice
test_usage = exchanges.test_usage


class RealModel:
    """A model whose answers nobody scripts. seen: the bodies that its SDK sent."""

    def __init__(self, secret: str, metadata_key: str | None, lacks: tuple[str, ...]) -> None:
        self.model: BaseLlm
        self.secret = secret
        self.metadata_key = metadata_key
        self.lacks = frozenset({"scripted answers", *lacks})
        self.seen: list[JsonObject] = []

    async def record(self, request: Any) -> None:
        self.seen.append(json.loads(await request.aread()))

    def say(self, *parts: Part, finish_reason: str = "STOP") -> None:
        if finish_reason != "STOP" or any(part.text is None or part.thought for part in parts):
            pytest.skip("a real model's answers can't be scripted")

    def fail(self, status: int, message: str, *, headers: dict[str, str]) -> None:
        pytest.skip("a real service's failures can't be scripted")

    def misbehave(self, how: Misbehavior) -> None:
        pytest.skip("a real service's failures can't be scripted")


def _chat(model: str, url: str | None, key: str, http: Any) -> BaseLlm:
    from openai import AsyncOpenAI

    client = AsyncOpenAI(api_key=key, base_url=url and f"{url}/v1", max_retries=0, http_client=http)
    return OpenAILlm(model, client=client)


def _responses(model: str, url: str | None, key: str, http: Any) -> BaseLlm:
    from openai import AsyncOpenAI

    client = AsyncOpenAI(api_key=key, base_url=url and f"{url}/v1", max_retries=0, http_client=http)
    return OpenAIResponsesLlm(model, client=client)


def _messages(model: str, url: str | None, key: str, http: Any) -> BaseLlm:
    from anthropic import AsyncAnthropic

    client = AsyncAnthropic(api_key=key, base_url=url, max_retries=0, http_client=http)
    return AnthropicLlm(model, max_tokens=8 if url else 4096, client=client)


def _gemini(model: str, url: str | None, key: str, http: Any) -> BaseLlm:
    return Gemini(model, api_key=key, client_kwargs={"http_options": {"httpx_async_client": http}})


class Endpoint(NamedTuple):
    make: Callable[[str, str | None, str, Any], BaseLlm]
    model: str
    metadata_key: str | None
    lacks: tuple[str, ...]
    key_variables: tuple[str, ...] = ()
    """One of them has the key; none for the local server."""


_ENDPOINTS = {
    "local chat": Endpoint(_chat, "smollm2", "openai_chat", ("images", "thinking")),
    "local responses": Endpoint(_responses, "smollm2", "openai", ("images", "thinking", "output schema")),
    "local messages": Endpoint(_messages, "smollm2", "anthropic", ("images", "thinking", "output schema")),
    "OpenAI chat": Endpoint(_chat, "gpt-4.1-mini", "openai_chat", ("thinking",), ("OPENAI_API_KEY",)),
    "OpenAI responses": Endpoint(_responses, "gpt-4.1-mini", "openai", ("thinking",), ("OPENAI_API_KEY",)),
    "Anthropic": Endpoint(_messages, "claude-haiku-4-5", "anthropic", (), ("ANTHROPIC_API_KEY",)),
    "Gemini": Endpoint(_gemini, "gemini-2.5-flash", None, (), ("GOOGLE_API_KEY", "GEMINI_API_KEY")),
}


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.vendor if endpoint.key_variables else pytest.mark.model)
        for name, endpoint in _ENDPOINTS.items()
    ]
)
async def provider(request: pytest.FixtureRequest) -> AsyncIterator[RealModel]:
    endpoint = _ENDPOINTS[request.param]
    key = next((value for name in endpoint.key_variables if (value := os.environ.get(name))), "")
    url: str | None = None
    if not endpoint.key_variables:
        url = request.getfixturevalue("llama_server_url").removesuffix("/v1")
        key = "none"
    elif not key:
        pytest.skip(f"{request.param}: {' or '.join(endpoint.key_variables)} isn't set")
    if {test_images: "images", test_output_schema: "output schema"}.get(request.function) in endpoint.lacks:
        pytest.skip(f"{request.param}: the server lacks it")
    real = RealModel(key, endpoint.metadata_key, endpoint.lacks)
    library = importlib.import_module("httpx2" if endpoint.make is _messages else "httpx")  # each SDK takes one only
    async with library.AsyncClient(event_hooks={"request": [real.record]}, timeout=60) as http:
        real.model = endpoint.make(endpoint.model, url, key, http)
        yield real
        await real.model.close()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_question_that_is_too_long_is_refused(provider: ModelProvider, stream: bool) -> None:
    if provider.secret != "none":
        pytest.skip("a vendor's model takes up to a million tokens, which would cost too much")
    with pytest.raises(ModelError) as caught:
        await _ask(provider, _request("word " * 3000), stream=stream)
    assert (caught.value.http_status, caught.value.category, caught.value.retryable) == (400, "CLIENT_ERROR", False)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_deadline_ends_a_call(provider: ModelProvider, stream: bool) -> None:
    with pytest.raises(ModelError) as caught:
        await _ask(provider, _request("Count to 100.", http_options={"timeout": 1}), stream=stream)
    assert (caught.value.category, caught.value.retryable) == ("TIMEOUT_ERROR", True)
