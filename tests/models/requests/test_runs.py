"""Runs whose histories and tools vendors refuse, through the vendors' SDKs against servers that refuse them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import LoopAgent
from greenroom.invocation.user_context import ToolContext
from greenroom.models.anthropic.llm import AnthropicLlm
from greenroom.models.gemini.llm import Gemini
from greenroom.models.openai.chat import OpenAILlm
from greenroom.models.openai.responses import OpenAIResponsesLlm
from greenroom.models.provider import ProviderLlm
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, FunctionCall, FunctionResponse, ModelContent, Part, UserContent
from greenroom.records.event import Event
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.tool import BaseTool
from tests.agents.talk import Talk
from tests.models.requests.published_rules import of_completions
from tests.models.wire.anthropic import AnthropicServer
from tests.models.wire.gemini import GeminiServer
from tests.models.wire.openai_chat import ChatServer
from tests.models.wire.openai_responses import ResponsesServer
from tests.models.wire.server import WireServer

Served = tuple[ProviderLlm, WireServer]


class MistralServer(ChatServer):
    def problems(self, body: dict[str, Any]) -> Any:
        return of_completions(body, is_mistral=True)


@pytest.fixture(params=["Claude", "chat", "Mistral", "Responses", "Gemini"])
async def served(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    servers: dict[str, type[WireServer]] = {
        "Claude": AnthropicServer, "chat": ChatServer, "Mistral": MistralServer, "Responses": ResponsesServer,
        "Gemini": GeminiServer,
    }  # fmt: skip
    async with servers[request.param]().serving() as server:
        models: dict[str, ProviderLlm] = {
            "Claude": AnthropicLlm("claude-opus-5", api_key="k", base_url=server.url),
            "chat": OpenAILlm("gpt-4o", api_key="k", base_url=f"{server.url}/v1"),
            "Mistral": OpenAILlm("mistral/mistral-large", api_key="k", base_url=f"{server.url}/v1"),
            "Responses": OpenAIResponsesLlm("gpt-5", api_key="k", base_url=f"{server.url}/v1"),
            "Gemini": Gemini("gemini-2.5-pro", api_key="k", base_url=server.url),
        }
        yield models[request.param], server
        await models[request.param].close()


class Noting(BaseTool):
    """A tool as an MCP server may have it; keeps what it was called with."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, description="Looks.\n" + "x" * 2_000)
        self.got: list[JsonObject] = []

    def _get_declaration(self) -> FunctionDeclaration:
        schema: JsonObject = {
            "anyOf": [
                {"properties": {"$filter": {"type": "string"}}, "required": ["$filter"]},
                {"properties": {"tags": {"type": "array"}}, "required": ["tags"]},
            ]
        }
        return FunctionDeclaration(name=self.name, description=self.description, parameters_json_schema=schema)

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        self.got.append(args)
        return {"seen": self.name}


async def said(model: ProviderLlm, *contents: Content, **config: Any) -> Content | None:
    request = LlmRequest(model=model.model, contents=list(contents), config=GenerateContentConfig(**config))
    return [reply async for reply in model.generate_content_async(request)][-1].content


async def test_the_second_turn_of_a_loop(served: Served) -> None:
    model, server = served
    agent = LoopAgent(name="loop", sub_agents=[LlmAgent(name="a", model=model)], max_iterations=3)
    events = await Talk(agent).say("hi")
    assert [event.error_message for event in events if event.error_code] == []
    assert len(server.seen) == 3


async def test_a_history_that_begins_and_ends_with_the_model(served: Served) -> None:
    """As after a compaction, in a run without a message."""
    model, _ = served
    assert await said(model, ModelContent("A summary."), ModelContent("And then?")) is not None
    assert await said(model, ModelContent("A summary."), UserContent("Well?")) is not None
    assert await said(model) is not None


@pytest.mark.parametrize("stream", [False, True])
async def test_tools_of_any_name_are_called_by_their_own(served: Served, stream: bool) -> None:
    model, server = served
    tools = [Noting(name) for name in ("calendar.list", "calendar_list", "a/b", "x" * 90, "x" * 91)]
    talk = Talk(LlmAgent(name="a", model=model, tools=list(tools)))
    sent = await _names_sent(talk, server)
    assert len(set(sent)) == len(tools)
    for tool, name in zip(tools, sent, strict=True):
        server.say(Part(function_call=FunctionCall(id="call00001", name=name, args={"tags": ["t"]})))
        request = LlmRequest(model=model.model, contents=[UserContent("hi")])
        request.append_tools(tools)
        *_, last = [reply async for reply in model.generate_content_async(request, stream)]
        assert [call.name for call in last.get_function_calls()] == [tool.name]
        server.say(Part(text="done"))


async def _names_sent(talk: Talk, server: WireServer) -> list[str]:
    await talk.say("hi")
    declared = server.seen[-1]["tools"]
    if "functionDeclarations" in declared[0]:
        declared = declared[0]["functionDeclarations"]
    return [tool.get("function", tool)["name"] for tool in declared]


async def test_a_call_reaches_the_tool_and_its_result_goes_back(served: Served) -> None:
    model, server = served
    tool = Noting("files/read.all")
    talk = Talk(LlmAgent(name="a", model=model, tools=[tool]))
    (name,) = await _names_sent(talk, server)
    server.say(Part(text="done"))
    called = server.whole((Part(function_call=FunctionCall(id="call00001", name=name, args={"tags": ["t"]})),), "STOP")
    server.once.append(called)
    events: list[Event] = await talk.say("read")
    assert tool.got == [{"tags": ["t"]}]
    assert [response.name for event in events for response in event.get_function_responses()] == ["files/read.all"]
    assert events[-1].content is not None
    assert events[-1].content.text() == "done"


async def test_parameters_that_claude_does_not_name_come_back_under_their_own() -> None:
    async with AnthropicServer().serving() as server:
        model = AnthropicLlm("claude-opus-5", api_key="k", base_url=server.url)
        tool = Noting("look")
        server.once.append(
            server.whole((Part(function_call=FunctionCall(id="c1", name="look", args={"_filter": "f"})),), "STOP")
        )
        await Talk(LlmAgent(name="a", model=model, tools=[tool])).say("hi")
        assert tool.got == [{"$filter": "f"}]
        (use,) = [b for m in server.seen[-1]["messages"] for b in m["content"] if b["type"] == "tool_use"]
        assert use["input"] == {"_filter": "f"}
        await model.close()


async def test_calls_of_other_vendors_and_of_interrupted_runs(served: Served) -> None:
    model, _ = served
    ids = ["call_" + "7" * 48, "a.b:c", "toolu_01", "toolu_01"]
    calls = [Part(function_call=FunctionCall(id=call_id, name="a/b", args={})) for call_id in ids]
    result = Part(function_response=FunctionResponse(id="a.b:c", name="a/b", response={"result": 1}))
    history = [
        UserContent("hi"),
        Content(role="model", parts=calls),
        UserContent("Wait."),
        Content(role="user", parts=[result, result]),
        Content(role="user", parts=[Part(function_response=FunctionResponse(id="nobody", name="x", response={}))]),
        Content(role="model", parts=[Part(text="hm", thought=True)]),
    ]
    assert await said(model, *history) is not None


async def test_a_long_description_is_continued_in_the_instructions() -> None:
    async with ChatServer().serving() as server:
        model = OpenAILlm("gpt-4o", api_key="k", base_url=f"{server.url}/v1")
        tool = Noting("look")
        await Talk(LlmAgent(name="a", model=model, tools=[tool])).say("hi")
        assert tool.description in server.seen[-1]["messages"][0]["content"]
        await model.close()
