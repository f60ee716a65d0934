"""A session goes from one provider to another and back, in the middle of a tool loop."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

from greenroom.models.anthropic.llm import AnthropicLlm
from greenroom.models.gemini.llm import Gemini
from greenroom.models.openai.responses import OpenAIResponsesLlm
from greenroom.models.provider import ProviderLlm
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part, UserContent
from greenroom.records.generation import GenerateContentConfig, ThinkingConfig
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.tool_declaration import FunctionDeclaration, Tool
from tests.models.wire.anthropic import AnthropicServer
from tests.models.wire.gemini import GeminiServer
from tests.models.wire.openai_responses import ResponsesServer
from tests.models.wire.server import WireServer

pytestmark = pytest.mark.slow

Providers = dict[str, tuple[ProviderLlm, WireServer]]


@pytest.fixture
async def providers() -> AsyncIterator[Providers]:
    async with AsyncExitStack() as stack:
        claude = await stack.enter_async_context(AnthropicServer().serving())
        gemini = await stack.enter_async_context(GeminiServer().serving())
        openai = await stack.enter_async_context(ResponsesServer().serving())
        made: Providers = {
            "claude": (AnthropicLlm("claude-sonnet-5", api_key=claude.secret, base_url=claude.url), claude),
            "gemini": (Gemini("gemini-3-pro", api_key=gemini.secret, base_url=gemini.url), gemini),
            "openai": (OpenAIResponsesLlm("gpt-5", api_key=openai.secret, base_url=f"{openai.url}/v1"), openai),
        }
        yield made
        for model, _ in made.values():
            await model.close()


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def signature(name: str, turn: int) -> bytes:
    return f"signature-of-{name}-{turn}".encode()


@pytest.mark.parametrize("order", list(itertools.permutations(["claude", "gemini", "openai"])), ids=".".join)
async def test_each_accepts_the_history_of_the_others(providers: Providers, order: tuple[str, ...]) -> None:
    tools = [Tool(function_declarations=[FunctionDeclaration(name="look", description="Looks.")])]
    contents: list[Content] = [UserContent("Hi")]
    for turn, name in enumerate([*order, order[0]]):
        model, server = providers[name]
        thought = Part(text=f"Thought {turn}", thought=True, thought_signature=signature(name, turn))
        server.say(thought, Part(function_call=FunctionCall(id=f"call_{turn}", name="look", args={"turn": turn})))
        config = GenerateContentConfig(tools=tools, thinking_config=ThinkingConfig(thinking_level="LOW"))
        request = LlmRequest(model=model.model, contents=list(contents), config=config)
        *_, whole = [reply async for reply in model.generate_content_async(request, True)]
        assert whole.content is not None
        stored = msgspec.json.decode(msgspec.json.encode(whole.content), type=Content)
        response = FunctionResponse(id=f"call_{turn}", name="look", response={"seen": turn})
        contents += [stored, Content(role="user", parts=[Part(function_response=response)])]
        sent = json.dumps(server.seen[-1])
        for earlier in range(turn):
            assert f"call_{earlier}" in sent
        others = {other for other in order if other != name}
        assert not [other for other in others if f"signature-of-{other}" in sent]
        assert not [at for at in range(turn) if order[at] != name and encoded(signature(order[at], at)) in sent]
    model, server = providers[order[0]]
    check = {"claude": check_claude, "gemini": check_gemini, "openai": check_openai}[order[0]]
    check(server.seen[-1], signature(order[0], 0))


def check_claude(sent: dict[str, Any], expected: bytes) -> None:
    """Thoughts of its own come back before their calls; amid calls of others it doesn't think."""
    roles = [message["role"] for message in sent["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "user", "assistant", "user"]
    thinking, call = sent["messages"][1]["content"]
    assert (thinking["thinking"], thinking["signature"]) == ("Thought 0", expected.decode())
    assert (call["id"], call["input"]) == ("call_0", {"turn": 0})
    assert [block["type"] for block in sent["messages"][3]["content"]] == ["tool_use"]
    assert "thinking" not in sent


def check_gemini(sent: dict[str, Any], expected: bytes) -> None:
    """Calls of others have the mark that stands for their signatures."""
    calls = [part for content in sent["contents"] for part in content["parts"] if "functionCall" in part]
    assert [call["functionCall"]["id"] for call in calls] == ["call_0", "call_1", "call_2"]
    assert all(call["thoughtSignature"] for call in calls[1:])
    [thought] = [part for content in sent["contents"] for part in content["parts"] if part.get("thought")]
    assert thought["thoughtSignature"] == encoded(expected)


def check_openai(sent: dict[str, Any], expected: bytes) -> None:
    kinds = [item["type"] for item in sent["input"]]
    exchange = ["function_call", "function_call_output"]
    assert kinds == ["message", "reasoning", *exchange, *exchange, *exchange]
    assert sent["input"][1]["encrypted_content"] == expected.decode()
    assert sent["input"][1]["id"] == "rs_0"
