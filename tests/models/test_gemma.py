"""Gemma 3 writes its calls as JSON, at the Gemini API and in Ollama."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from greenroom.models.gemma import Gemma, Gemma3Ollama
from greenroom.models.provider import ProviderLlm
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part, UserContent
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.tool_declaration import FunctionDeclaration, Tool
from tests.models.wire.gemini import GeminiServer
from tests.models.wire.openai_chat import ChatServer
from tests.models.wire.server import WireServer

TOOLS = [Tool(function_declarations=[FunctionDeclaration(name="look", description="Looks around.")])]


@pytest.fixture(params=["gemini", "ollama"])
async def gemma(request: pytest.FixtureRequest) -> AsyncIterator[tuple[ProviderLlm, WireServer]]:
    server: WireServer = GeminiServer() if request.param == "gemini" else ChatServer()
    async with server.serving():
        if request.param == "gemini":
            model: ProviderLlm = Gemma(api_key=server.secret, base_url=server.url)
        else:
            model = Gemma3Ollama(base_url=f"{server.url}/v1")
        yield model, server
        await model.close()


async def replies(model: ProviderLlm, *contents: Content, stream: bool = False) -> list[LlmResponse]:
    config = GenerateContentConfig(system_instruction="Be brief.", tools=TOOLS)
    asked = LlmRequest(model=model.model, contents=[UserContent("Hi"), *contents], config=config)
    return [reply async for reply in model.generate_content_async(asked, stream)]


@pytest.mark.parametrize(
    "said",
    [
        '{"name": "look", "parameters": {"at": "door"}}',
        '```json\n{"function": "look", "args": {"at": "door"}}\n```',
        'Sure:\n```tool_code\n{"name": "look", "args": {"at": "door"}}\n```',
    ],
)
async def test_a_written_call_is_a_call(gemma: tuple[ProviderLlm, WireServer], said: str) -> None:
    model, server = gemma
    server.say(Part(text=said))
    [whole] = await replies(model)
    assert whole.content is not None
    [part] = whole.content.parts or []
    assert part.function_call is not None
    assert (part.function_call.name, part.function_call.args) == ("look", {"at": "door"})
    assert "Looks around." in str(server.seen[-1])
    assert "Be brief." in str(server.seen[-1])
    assert not server.seen[-1].get("tools")


async def test_a_streamed_call_is_not_shown_as_text(gemma: tuple[ProviderLlm, WireServer]) -> None:
    model, server = gemma
    server.say(Part(text=' {"name": "look", "parameters": {}}'))
    [whole] = await replies(model, stream=True)
    assert whole.content is not None
    assert (whole.content.parts or [Part()])[0].function_call is not None


async def test_text_is_streamed(gemma: tuple[ProviderLlm, WireServer]) -> None:
    model, server = gemma
    server.say(Part(text="There is nothing to see here."))
    *partials, whole = await replies(model, stream=True)
    assert len(partials) > 1
    assert whole.content == Content(role="model", parts=[Part(text="There is nothing to see here.")])


async def test_json_that_calls_no_declared_function_is_text(gemma: tuple[ProviderLlm, WireServer]) -> None:
    model, server = gemma
    server.say(Part(text='{"name": "Ada", "parameters": {}}'))
    [whole] = await replies(model)
    assert whole.content == Content(role="model", parts=[Part(text='{"name": "Ada", "parameters": {}}')])


async def test_calls_and_results_are_sent_as_text(gemma: tuple[ProviderLlm, WireServer]) -> None:
    model, server = gemma
    server.say(Part(text="A door."))
    call = Content(role="model", parts=[Part(function_call=FunctionCall(id="c1", name="look", args={}))])
    answer = FunctionResponse(id="c1", name="look", response={"seen": "a door"})
    await replies(model, call, Content(role="user", parts=[Part(function_response=answer)]))
    sent = str(server.seen[-1])
    assert "a door" in sent
    assert "functionCall" not in sent
    assert "tool_calls" not in sent
