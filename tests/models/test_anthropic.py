"""Features of Claude only: blocks of its service, thinking, schemas by a tool, Vertex AI."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.oauth2.credentials import Credentials
from starlette.requests import Request
from starlette.responses import Response

from greenroom.errors import MessageConversionError, ModelError
from greenroom.models.anthropic.llm import AnthropicLlm, Claude
from greenroom.models.anthropic.messages import message_arguments
from greenroom.models.anthropic.rules import RULES
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part, UserContent
from greenroom.records.generation import GenerateContentConfig, ThinkingConfig, ToolConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.tool_declaration import FunctionDeclaration, Tool
from tests.models.wire.anthropic import AnthropicServer
from tests.models.wire.server import frame

SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "weather"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "url": "https://a.example", "title": "A", "encrypted_content": "abc"}],
}
RUN = {"type": "server_tool_use", "id": "srvtoolu_2", "name": "code_execution", "input": {"code": "print(1)"}}
RAN = {
    "type": "code_execution_tool_result",
    "tool_use_id": "srvtoolu_2",
    "content": {"type": "code_execution_result", "stdout": "1\n", "stderr": "", "return_code": 0, "content": []},
}
CITED = {
    "type": "text",
    "text": "It is cold.",
    "citations": [
        {"type": "web_search_result_location", "url": "https://a.example", "title": "A", "cited_text": "cold",
         "encrypted_index": "xyz"}
    ],
}  # fmt: skip
HIDDEN = {"type": "redacted_thinking", "data": "c2VjcmV0"}
FUTURE = {"type": "block_of_the_future", "answer": 42}


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer().serving() as running:
        yield running


async def answers(model: AnthropicLlm, *contents: Content, stream: bool = False, **config: Any) -> list[LlmResponse]:
    asked = list(contents) or [UserContent("Hi")]
    request = LlmRequest(model=model.model, contents=asked, config=GenerateContentConfig(**config))
    return [response async for response in model.generate_content_async(request, stream)]


@pytest.mark.parametrize("stream", [False, True])
async def test_blocks_of_the_service_are_kept_and_sent_back(server: AnthropicServer, stream: bool) -> None:
    blocks = [HIDDEN, SEARCH, FOUND, RUN, RAN, FUTURE, CITED]
    server.say(*(Part(part_metadata={"anthropic": block}) for block in blocks))
    model = AnthropicLlm("claude-sonnet-5", api_key=server.secret, base_url=server.url)
    *_, whole = await answers(model, stream=stream, tools=[Tool(google_search={}, code_execution={})])
    assert [tool["name"] for tool in server.seen[-1]["tools"]] == ["web_search", "code_execution"]
    assert whole.content is not None
    _, searched, found, ran, result, _, text = whole.content.parts or []
    assert searched.tool_call is not None
    assert (searched.tool_call.tool_type, searched.tool_call.args) == ("web_search", {"query": "weather"})
    assert found.tool_response is not None
    assert found.tool_response.response == {"content": FOUND["content"]}
    assert ran.executable_code is not None
    assert ran.executable_code.code == "print(1)"
    assert result.code_execution_result is not None
    assert result.code_execution_result.output == "1\n"
    assert text.text == "It is cold."
    assert whole.citation_metadata is not None
    assert whole.citation_metadata.citations == [{"uri": "https://a.example", "title": "A"}]
    server.say(Part(text="Yes."))
    await answers(model, UserContent("Hi"), whole.content, UserContent("Sure?"))
    sent = server.seen[-1]["messages"][1]["content"]
    assert sent == blocks
    await model.close()


PAUSED: dict[str, Any] = {"stop_reason": "pause_turn", "stop_sequence": None}


class PausingServer(AnthropicServer):
    """Pauses a number of messages after their blocks, and then says the last."""

    def __init__(self) -> None:
        super().__init__()
        self.paused: list[list[dict[str, Any]]] = []

    async def __call__(self, request: Request) -> Response:
        is_stream = (await request.json()).get("stream")
        if not self.paused:
            self.raw = None
            return await super().__call__(request)
        parts = tuple(Part(part_metadata={"anthropic": block}) for block in self.paused.pop(0))
        if is_stream:
            body, _ = self.frames(parts, "STOP")
            delta = {"type": "message_delta", "delta": PAUSED, "usage": {"output_tokens": 5}}
            self.raw = [
                *body,
                frame(delta, event="message_delta"),
                frame({"type": "message_stop"}, event="message_stop"),
            ]
        else:
            self.raw = {**self.whole(parts, "STOP"), **PAUSED}
        return await super().__call__(request)


@pytest.fixture
async def pausing() -> AsyncIterator[PausingServer]:
    async with PausingServer().serving() as running:
        yield running


@pytest.mark.parametrize("stream", [False, True])
async def test_a_paused_message_is_sent_back_and_continued(pausing: PausingServer, stream: bool) -> None:
    pausing.paused = [[SEARCH], [FOUND, RUN]]
    pausing.say(*(Part(part_metadata={"anthropic": block}) for block in (RAN, CITED)))
    model = AnthropicLlm("claude-sonnet-5", api_key=pausing.secret, base_url=pausing.url)
    *partials, whole = await answers(model, stream=stream, tools=[Tool(google_search={}, code_execution={})])
    sent = [[message["content"] for message in body["messages"][1:]] for body in pausing.seen]
    assert sent == [[], [[SEARCH]], [[SEARCH, FOUND, RUN]]]
    assert all(body["tools"] == pausing.seen[0]["tools"] for body in pausing.seen)
    assert whole.finish_reason == "STOP"
    assert whole.content is not None
    assert len(whole.content.parts or ()) == 5
    assert whole.content.text() == "It is cold."
    assert whole.usage_metadata is not None
    assert (whole.usage_metadata.prompt_token_count, whole.usage_metadata.candidates_token_count) == (30, 15)
    assert all(partial.partial for partial in partials)
    await answers(model, UserContent("Hi"), whole.content, UserContent("Sure?"))
    assert pausing.seen[-1]["messages"][1]["content"] == [SEARCH, FOUND, RUN, RAN, CITED]
    await model.close()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_message_that_is_paused_again_and_again_is_an_error(pausing: PausingServer, stream: bool) -> None:
    pausing.paused = [[SEARCH], [FOUND], [RUN]]
    model = AnthropicLlm("claude-sonnet-5", api_key=pausing.secret, base_url=pausing.url)
    model.max_continuations = 2
    *_, whole = await answers(model, stream=stream)
    assert len(pausing.seen) == 3
    assert (whole.error_code, whole.error_message) == ("OTHER", "The service paused the message 3 times")
    await model.close()


def test_calls_of_the_services_tools_travel_with_their_results() -> None:
    def sent(*blocks: dict[str, Any]) -> list[dict[str, Any]]:
        parts = [Part(part_metadata={"anthropic": block}) for block in blocks]
        made = arguments(UserContent("Hi"), Content(role="model", parts=parts), UserContent("Sure?"))
        return [block for message in made["messages"] if message["role"] == "assistant" for block in message["content"]]

    note = {"type": "text", "text": "Let me see."}
    assert sent(note, SEARCH) == [note]
    assert sent(FOUND, note) == [note]
    assert sent(SEARCH, FOUND, RUN) == [SEARCH, FOUND]
    assert sent(SEARCH) == []
    assert sent({"type": "mcp_tool_use", "id": "m1", "name": "x", "input": {}}, note) == [note]


def test_code_that_waits_for_a_tool_of_the_client_is_sent_without_result() -> None:
    caller = {"caller": {"type": "code_execution_20250825", "tool_id": RUN["id"]}}
    call = Part(function_call=FunctionCall(id="a", name="look", args={}), part_metadata={"anthropic": caller})
    result = Part(function_response=FunctionResponse(id="a", name="look", response={"result": "seen"}))
    begun = Part(part_metadata={"anthropic": RUN})
    made = arguments(
        UserContent("Hi"), Content(role="model", parts=[begun, call]), Content(role="user", parts=[result])
    )
    assert [block["type"] for block in made["messages"][1]["content"]] == ["server_tool_use", "tool_use"]


def arguments(*contents: Content, model: str = "claude-opus-5", **config: Any) -> dict[str, Any]:
    request = LlmRequest(contents=list(contents) or [UserContent("Hi")], config=GenerateContentConfig(**config))
    request = RULES.prepare(request).request
    return message_arguments(request, model=model, max_tokens=8192, transform_schema=lambda schema: schema)


def test_turns_become_messages_with_tool_results_first() -> None:
    calls = [Part(function_call=FunctionCall(id=call_id, name="look", args={})) for call_id in ("a", "b:1")]
    results: list[dict[str, Any]] = [{"result": "seen"}, {"error": "dark"}]
    responses = [
        Part(function_response=FunctionResponse(id=call.function_call.id, name="look", response=result))
        for call, result in zip(calls, results, strict=True)
        if call.function_call
    ]
    made = arguments(
        UserContent("Look"),
        Content(role="model", parts=[Part(text="Hm.", thought=True), Part(text=" "), *calls]),
        UserContent("Well?"),
        Content(role="user", parts=responses),
        system_instruction="Be brief.",
    )
    assert made["system"] == "Be brief."
    assert made["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Look"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "a", "name": "look", "input": {}},
                {"type": "tool_use", "id": "toolu_fallback_1", "name": "look", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "seen"},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_fallback_1",
                    "content": '{"error":"dark"}',
                    "is_error": True,
                },
                {"type": "text", "text": "Well?"},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("thinking", "sent"),
    [
        (ThinkingConfig(thinking_budget=0), {"type": "disabled"}),
        (ThinkingConfig(thinking_budget=-1), {"type": "adaptive", "display": "summarized"}),
        (ThinkingConfig(thinking_level="HIGH"), {"type": "adaptive", "display": "summarized"}),
        (ThinkingConfig(thinking_budget=500), {"type": "enabled", "budget_tokens": 1024}),
        (ThinkingConfig(thinking_budget=9000), {"type": "enabled", "budget_tokens": 9000}),
    ],
)
def test_thinking(thinking: ThinkingConfig, sent: dict[str, Any]) -> None:
    made = arguments(thinking_config=thinking, temperature=0.5, model="claude-opus-4@20250514")
    assert made["thinking"] == sent
    assert ("temperature" in made) == (sent["type"] == "disabled")
    assert made["max_tokens"] > (sent.get("budget_tokens") or 0)
    assert made.get("output_config") == ({"effort": "high"} if thinking.thinking_level else None)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("schema", "args", "text"),
    [
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": 1}, '{"a": 1}'),
        ({"type": "array", "items": {"type": "integer"}}, {"structured_output": [1, 2]}, "[1,2]"),
    ],
)
async def test_earlier_models_give_structured_answers_by_a_tool(
    server: AnthropicServer, schema: dict[str, Any], args: dict[str, Any], text: str, stream: bool
) -> None:
    server.say(Part(function_call=FunctionCall(id="t1", name="structured_output", args=args)))
    model = AnthropicLlm("claude-opus-4@20250514", api_key=server.secret, base_url=server.url)
    *partials, whole = await answers(model, stream=stream, response_schema=schema)
    assert not partials
    assert whole.content is not None
    assert (whole.content.text().replace(" ", ""), whole.finish_reason) == (text.replace(" ", ""), "STOP")
    assert server.seen[-1]["tool_choice"] == {"type": "tool", "name": "structured_output"}
    tools = [Tool(function_declarations=[FunctionDeclaration(name="look")])]
    with pytest.raises(MessageConversionError, match="together with tools"):
        await answers(model, response_schema=schema, tools=tools)
    await model.close()


class VertexServer(AnthropicServer):
    path = "/{path:path}"

    def is_stream(self, request: Request, body: dict[str, Any]) -> bool:
        return request.url.path.endswith(":streamRawPredict")


@pytest.mark.parametrize("stream", [False, True])
async def test_claude_on_vertex(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "desk")
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "eu-west1")
    async with VertexServer().serving() as server:
        server.say(Part(text="Hello."))
        credentials = Credentials("token-1")  # type: ignore[no-untyped-call]
        model = Claude("claude-opus-5@1", credentials=credentials, base_url=server.url, headers={"X-Team": "desk"})
        *_, whole = await answers(model, stream=stream)
        await model.close()
    assert whole.content is not None
    assert whole.content.text() == "Hello."
    method = "streamRawPredict" if stream else "rawPredict"
    path = "/projects/desk/locations/eu-west1/publishers/anthropic/models/claude-opus-5@1"
    assert server.paths == [f"{path}:{method}"]
    assert server.headers[0]["authorization"] == "Bearer token-1"
    assert server.headers[0]["x-team"] == "desk"


async def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GOOGLE_CLOUD_LOCATION", "CLOUD_ML_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "desk")
    for model, variable in ((AnthropicLlm("claude-x"), "ANTHROPIC_API_KEY"), (Claude("x"), "GOOGLE_CLOUD_LOCATION")):
        with pytest.raises(ModelError, match=variable) as caught:
            await answers(model)
        assert caught.value.category == "AUTH_ERROR"
        assert isinstance(caught.value, ValueError) == isinstance(model, Claude)  # adk-2.md 4.2.3


@pytest.mark.parametrize(
    ("tool", "named"),
    [
        (Tool(google_search={"time_range_filter": {"start_time": "2026-01-01T00:00:00Z"}}), "time_range_filter"),
        (
            Tool(google_search_retrieval={"dynamic_retrieval_config": {"mode": "MODE_DYNAMIC"}}),
            "dynamic_retrieval_config",
        ),
        (Tool(enterprise_web_search={"blocking_confidence": "BLOCK_LOW_AND_ABOVE"}), "blocking_confidence"),
    ],
)
def test_options_of_built_in_tools_that_the_service_lacks(tool: Tool, named: str) -> None:
    request = LlmRequest(contents=[UserContent("Hi")], config=GenerateContentConfig(tools=[tool]))
    with pytest.raises(MessageConversionError, match=f"no option '{named}' of the built-in tool"):
        message_arguments(request, model="claude-x", max_tokens=9, transform_schema=dict)


def test_options_of_built_in_tools() -> None:
    search = {"exclude_domains": ["a.example"], "openai": {"x": 1}}
    config = GenerateContentConfig(tools=[Tool(google_search=search)])
    sent = message_arguments(
        LlmRequest(contents=[UserContent("Hi")], config=config), model="claude-x", max_tokens=9, transform_schema=dict
    )
    assert sent["tools"] == [{"type": "web_search_20250305", "name": "web_search", "blocked_domains": ["a.example"]}]
    config.tools = [Tool(google_search={"exclude_domains": ["a.example"], "anthropic": {"max_uses": 2}})]
    assert message_arguments(
        LlmRequest(contents=[UserContent("Hi")], config=config), model="claude-x", max_tokens=9, transform_schema=dict
    )["tools"] == [{"type": "web_search_20250305", "name": "web_search", "max_uses": 2}]
    config.tool_config = ToolConfig(retrieval_config={"language_code": "en"})
    config.tools = [Tool(google_search={})]
    with pytest.raises(MessageConversionError, match="retrieval_config"):
        message_arguments(
            LlmRequest(contents=[UserContent("Hi")], config=config),
            model="claude-x",
            max_tokens=9,
            transform_schema=dict,
        )
