"""Features of the Responses API only: items of its service, continuation, failures, Azure."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest

from greenroom.errors import MessageConversionError, ModelError
from greenroom.models.openai.items import response_arguments
from greenroom.models.openai.responses import AzureOpenAIResponsesLlm, OpenAIResponsesLlm
from greenroom.records.content import Content, Part, UserContent
from greenroom.records.generation import GenerateContentConfig, ToolConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.tool_declaration import Tool
from tests.models.wire.openai_responses import ResponsesServer
from tests.models.wire.server import frame

SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "w"}}
RUN = {
    "type": "code_interpreter_call",
    "id": "ci_1",
    "status": "completed",
    "code": "print(1)",
    "container_id": "c1",
    "outputs": [{"type": "logs", "logs": "1"}],
}
PICTURE = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "iVBORw=="}
FUTURE = {"type": "item_of_the_future", "id": "x", "answer": 42}
CITED = {
    "type": "message",
    "id": "msg_9",
    "status": "completed",
    "role": "assistant",
    "content": [
        {
            "type": "output_text",
            "text": "It is cold.",
            "annotations": [
                {"type": "url_citation", "url": "https://a.example", "title": "A", "start_index": 0, "end_index": 5}
            ],
        }
    ],
}


@pytest.fixture
async def server() -> AsyncIterator[ResponsesServer]:
    async with ResponsesServer().serving() as running:
        yield running


@pytest.fixture
async def model(server: ResponsesServer) -> AsyncIterator[OpenAIResponsesLlm]:
    made = OpenAIResponsesLlm("gpt-5", api_key=server.secret, base_url=f"{server.url}/v1", store=False)
    yield made
    await made.close()


async def answers(
    model: OpenAIResponsesLlm, *contents: Content, stream: bool = False, previous: str | None = None, **config: Any
) -> list[LlmResponse]:
    asked = list(contents) or [UserContent("Hi")]
    request = LlmRequest(model=model.model, contents=asked, config=GenerateContentConfig(**config))
    request.previous_interaction_id = previous
    return [response async for response in model.generate_content_async(request, stream)]


@pytest.mark.parametrize("stream", [False, True])
async def test_items_of_the_service_are_kept_and_sent_back(
    server: ResponsesServer, model: OpenAIResponsesLlm, stream: bool
) -> None:
    if stream:
        server.raw = [
            frame({"type": "response.output_item.done", "output_index": n, "item": item, "sequence_number": n})
            for n, item in enumerate([SEARCH, RUN, PICTURE, FUTURE, CITED])
        ] + server.frames((), "STOP")[1]
    else:
        server.raw = {**server.whole((), "STOP"), "output": [SEARCH, RUN, PICTURE, FUTURE, CITED]}
    *_, whole = await answers(model, stream=stream, tools=[Tool(google_search={}, code_execution={})])
    assert [tool["type"] for tool in server.seen[-1]["tools"]] == ["web_search", "code_interpreter"]
    assert server.seen[-1]["include"] == ["reasoning.encrypted_content"]
    assert whole.content is not None
    searched, ran, result, picture, _, text = whole.content.parts or []
    assert searched.tool_call is not None
    assert searched.tool_call.tool_type == "web_search"
    assert ran.executable_code is not None
    assert result.code_execution_result is not None
    assert picture.inline_data is not None
    assert (picture.inline_data.mime_type, text.text) == ("image/png", "It is cold.")
    assert whole.citation_metadata is not None
    assert whole.citation_metadata.citations == [
        {"uri": "https://a.example", "title": "A", "startIndex": 0, "endIndex": 5}
    ]
    assert whole.custom_metadata == {
        "openai_response": {"id": "resp_1", "status": "completed", "service_tier": "default"}
    }
    server.raw = None
    await answers(model, UserContent("Hi"), whole.content, UserContent("Sure?"))
    assert server.seen[-1]["input"][1:-1] == [SEARCH, RUN, PICTURE, FUTURE, CITED]


async def test_a_conversation_that_the_service_keeps_is_continued(
    server: ResponsesServer, model: OpenAIResponsesLlm
) -> None:
    [whole] = await answers(model)
    assert whole.interaction_id == "resp_1"
    assert whole.content is not None
    await answers(model, UserContent("Hi"), whole.content, UserContent("More"), previous="resp_1")
    sent = server.seen[-1]
    assert sent["previous_response_id"] == "resp_1"
    assert [item["content"] for item in sent["input"]] == [[{"type": "input_text", "text": "More"}]]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_that_failed_is_an_error(
    server: ResponsesServer, model: OpenAIResponsesLlm, stream: bool
) -> None:
    error = {"code": "rate_limit_exceeded", "message": "Slow down"}
    failed = {**server.whole((), "STOP"), "status": "failed", "error": error}
    event = {"type": "response.failed", "response": failed, "sequence_number": 1}
    server.raw = [frame(event)] if stream else failed
    with pytest.raises(ModelError, match="Slow down") as caught:
        await answers(model, stream=stream, http_options={"retry_options": {"attempts": 1}})
    assert (caught.value.category, caught.value.retryable) == ("RATE_LIMITED", True)


class AzureServer(ResponsesServer):
    path = "/openai/v1/responses"


async def test_azure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_OPENAI_API_KEY", raising=False)
    async with AzureServer().serving() as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", f"{server.url}/")
        with pytest.raises(ModelError, match="AZURE_OPENAI_API_KEY"):
            await answers(AzureOpenAIResponsesLlm("desk"))
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", server.secret)
        model = AzureOpenAIResponsesLlm("desk")
        server.say(Part(text="Hello."))
        [whole] = await answers(model)
        await model.close()
    assert whole.content is not None
    assert whole.content.text() == "Hello."
    assert server.seen[0]["model"] == "desk"


@pytest.mark.parametrize(
    ("tool", "named"),
    [
        (Tool(google_search={"time_range_filter": {"start_time": "2026-01-01T00:00:00Z"}}), "time_range_filter"),
        (
            Tool(google_search_retrieval={"dynamic_retrieval_config": {"mode": "MODE_DYNAMIC"}}),
            "dynamic_retrieval_config",
        ),
        (Tool(enterprise_web_search={"blocking_confidence": "BLOCK_LOW_AND_ABOVE"}), "blocking_confidence"),
        (Tool(google_search={"exclude_domains": ["a.example"]}), "exclude_domains"),
    ],
)
def test_options_of_built_in_tools_that_the_service_lacks(tool: Tool, named: str) -> None:
    request = LlmRequest(contents=[UserContent("Hi")], config=GenerateContentConfig(tools=[tool]))
    with pytest.raises(MessageConversionError, match=f"no option '{named}' of the built-in tool"):
        response_arguments(request, model="gpt-5")


def test_options_of_built_in_tools() -> None:
    search = {"exclude_domains": [], "anthropic": {"x": 1}, "openai": {"search_context_size": "low"}}
    config = GenerateContentConfig(tools=[Tool(google_search=search)])
    assert response_arguments(LlmRequest(contents=[UserContent("Hi")], config=config), model="gpt-5")["tools"] == [
        {"type": "web_search", "search_context_size": "low"}
    ]
    config.tool_config = ToolConfig(retrieval_config={"language_code": "en"})
    config.tools = [Tool(google_search={})]
    with pytest.raises(MessageConversionError, match="retrieval_config"):
        response_arguments(LlmRequest(contents=[UserContent("Hi")], config=config), model="gpt-5")


async def test_tokens_are_counted() -> None:
    seen: list[Any] = []

    def respond(request: httpx.Request) -> httpx.Response:
        seen.append((request.url.path, json.loads(request.content)))
        return httpx.Response(200, json={"object": "response.input_tokens", "input_tokens": 42})

    async with httpx.AsyncClient(transport=httpx.MockTransport(respond)) as http:
        make_client: Any = openai.AsyncOpenAI
        client = make_client(api_key="none", base_url="http://api.example/v1", http_client=http)
        model = OpenAIResponsesLlm("gpt-5", client=client)
        config = GenerateContentConfig(system_instruction="Be brief.", max_output_tokens=9)
        assert await model.count_tokens(LlmRequest(contents=[UserContent("Hi")], config=config)) == 42
    [(path, body)] = seen
    assert path == "/v1/responses/input_tokens"
    assert set(body) == {"model", "input", "instructions"}


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_function_gives_the_key_of_each_request(server: ResponsesServer, is_async: bool) -> None:
    keys = iter(["key-1", "key-2"])

    async def later() -> str:
        return next(keys)

    model = OpenAIResponsesLlm("gpt-5", base_url=f"{server.url}/v1", api_key=later if is_async else lambda: next(keys))
    for _ in range(2):
        with contextlib.suppress(ModelError):  # the server has a key of its own
            await answers(model)
    await model.close()
    assert [headers["authorization"] for headers in server.headers] == ["Bearer key-1", "Bearer key-2"]
