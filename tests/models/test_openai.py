"""The real SDK against a real model's HTTP endpoint, and against a small server that speaks the documented format."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from greenroom.errors import ModelError
from greenroom.models.conversion import strict_schema
from greenroom.models.openai.chat import OpenAILlm
from greenroom.models.openai.messages import completion_arguments, messages
from greenroom.models.openai.rules import CHAT
from greenroom.records.answer_metadata import FinishReason
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part, UserContent
from greenroom.records.generation import FunctionCallingConfig, GenerateContentConfig, ThinkingConfig, ToolConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.tool_declaration import FunctionDeclaration, Schema, Tool, Type
from tests.server.quick_server import serving_routes

KEY = "sk-test-1234567890abcdef"

Reply = Callable[[dict[str, Any]], Response]


class Service:
    """Answers as configured; `seen` holds the bodies it was sent."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.reply: Reply = lambda body: completion("hello")
        self.url = ""
        self.hung_up = asyncio.Event()

    async def __call__(self, request: Request) -> Response:
        self.seen.append(await request.json())
        self.headers.append(dict(request.headers))
        return self.reply(self.seen[-1])


@asynccontextmanager
async def serving(service: Service) -> AsyncGenerator[Service]:
    async with serving_routes(Route("/v1/chat/completions", service.__call__, methods=["POST"])) as address:
        service.url = f"{address}/v1"
        yield service


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with serving(Service()) as running:
        yield running


@pytest.fixture
async def model(service: Service) -> AsyncIterator[OpenAILlm]:
    from openai import AsyncOpenAI

    async with AsyncOpenAI(api_key=KEY, base_url=service.url, max_retries=0) as client:
        yield OpenAILlm("openai/gpt-4o-mini", client=client)


ONCE = {"retry_options": {"attempts": 1}}


def completion(text: str | None, finish: str = "stop", **message: Any) -> JSONResponse:
    return JSONResponse(
        {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-4o-mini-2024",
            "choices": [
                {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}
            ],
            "usage": {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 15,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
        }
    )


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> str:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    body = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o-mini-2024", **more}
    return f"data: {json.dumps({**body, 'choices': choices})}\n\n"


def streamed(*chunks: str, done: bool = True) -> Response:
    async def body() -> AsyncIterator[str]:
        for each in chunks:
            yield each
        if done:
            yield "data: [DONE]\n\n"

    return StreamingResponse(body(), media_type="text/event-stream")


def request(text: str = "Hi", *, declarations: list[FunctionDeclaration] | None = None, **config: Any) -> LlmRequest:
    tools = [Tool(function_declarations=declarations)] if declarations else None
    return LlmRequest(contents=[UserContent(text)], config=GenerateContentConfig(tools=tools, **config))


async def responses(model: OpenAILlm, asked: LlmRequest, *, stream: bool = False) -> list[LlmResponse]:
    async with asyncio.timeout(10):
        return [response async for response in model.generate_content_async(asked, stream)]


GET_WEATHER = FunctionDeclaration(
    name="get_weather",
    description="Current weather of a city.",
    parameters=Schema(type=Type.OBJECT, properties={"city": Schema(type=Type.STRING)}, required=["city"]),
)


async def test_a_whole_answer_with_usage(service: Service, model: OpenAILlm) -> None:
    [response] = await responses(model, request("Hi", system_instruction="Be brief.", temperature=0.5, seed=7))
    assert response.content == Content(role="model", parts=[Part(text="hello")])
    assert response.finish_reason == FinishReason.STOP
    assert response.error_code is None
    usage = response.usage_metadata
    assert usage is not None
    assert (usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count) == (10, 3, 2)
    assert (usage.total_token_count, usage.cached_content_token_count) == (15, 4)
    assert service.seen == [
        {
            "model": "gpt-4o-mini",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
            "temperature": 0.5,
            "seed": 7,
        }
    ]


async def test_tools_are_declared_and_called(service: Service, model: OpenAILlm) -> None:
    function = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
    service.reply = lambda body: completion(
        None, "tool_calls", tool_calls=[{"id": "call_a", "type": "function", "function": function}]
    )
    [response] = await responses(model, request(declarations=[GET_WEATHER]))
    assert response.content == Content(
        role="model", parts=[Part(function_call=FunctionCall(id="call_a", name="get_weather", args={"city": "Oslo"}))]
    )
    assert service.seen[0]["tool_choice"] == "auto"
    assert service.seen[0]["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Current weather of a city.",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}},
                    "required": ["city"],
                },
            },
        }
    ]


async def test_streamed_text_comes_in_pieces_and_then_whole(service: Service, model: OpenAILlm) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    service.reply = lambda body: streamed(
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "Greet."}),
        chunk({"content": "Good "}),
        chunk({"content": "day"}),
        chunk({}, "stop"),
        chunk(usage=usage),
    )
    *partials, whole = await responses(model, request(), stream=True)
    assert [
        (p.content.parts[0].text, p.content.parts[0].thought) for p in partials if p.content and p.content.parts
    ] == [
        ("Greet.", True),
        ("Good ", None),
        ("day", None),
    ]
    assert all(partial.partial for partial in partials)
    assert not whole.partial
    assert whole.content is not None
    assert whole.content.text() == "Good day"
    assert whole.usage_metadata is not None
    assert whole.usage_metadata.total_token_count == 5
    assert service.seen[0]["stream_options"] == {"include_usage": True}


async def test_streamed_calls_are_gathered_by_index(service: Service, model: OpenAILlm) -> None:
    def piece(index: int, arguments: str, **first: Any) -> str:
        function = {"arguments": arguments, **({"name": first["name"]} if first else {})}
        head = {"id": first["id"], "type": "function"} if first else {}
        return chunk({"tool_calls": [{"index": index, **head, "function": function}]})

    service.reply = lambda body: streamed(
        chunk({"content": "Let me see."}),
        piece(0, "", id="call_a", name="get_weather"),
        piece(0, '{"ci'),
        piece(1, '{"city":', id="call_b", name="get_weather"),
        piece(0, 'ty": "Oslo"}'),
        piece(1, ' "Rome"}'),
        chunk({}, "tool_calls"),
    )
    *partials, whole = await responses(model, request(declarations=[GET_WEATHER]), stream=True)
    pieces = [p.content.parts[0].function_call for p in partials[1:] if p.content and p.content.parts]
    assert [(piece.id, [a.string_value for a in piece.partial_args or ()]) for piece in pieces if piece] == [
        ("call_a", []),
        ("call_a", ['{"ci']),
        ("call_b", []),
        ("call_b", ['{"city":']),
        ("call_a", ['ty": "Oslo"}']),
        ("call_b", [' "Rome"}']),
    ]
    assert all(piece is not None and piece.will_continue for piece in pieces)
    assert whole.content is not None
    assert whole.content.parts == [
        Part(text="Let me see."),
        Part(function_call=FunctionCall(id="call_a", name="get_weather", args={"city": "Oslo"})),
        Part(function_call=FunctionCall(id="call_b", name="get_weather", args={"city": "Rome"})),
    ]
    assert whole.finish_reason == FinishReason.STOP


async def test_calls_that_share_an_index_are_distinguished_by_id(service: Service, model: OpenAILlm) -> None:
    def whole_call(call_id: str, city: str) -> str:
        function = {"name": "get_weather", "arguments": json.dumps({"city": city})}
        return chunk({"tool_calls": [{"index": 0, "id": call_id, "type": "function", "function": function}]})

    service.reply = lambda body: streamed(whole_call("a", "Oslo"), whole_call("b", "Rome"), chunk({}, "tool_calls"))
    *_, whole = await responses(model, request(declarations=[GET_WEATHER]), stream=True)
    assert whole.content is not None
    assert [p.function_call.args for p in whole.content.parts or () if p.function_call] == [
        {"city": "Oslo"},
        {"city": "Rome"},
    ]


@pytest.mark.parametrize("arguments", ['{"city": ', '["Oslo"]', "Oslo"])
async def test_arguments_that_are_no_object_are_an_error_of_the_answer(
    service: Service, model: OpenAILlm, arguments: str
) -> None:
    function = {"name": "get_weather", "arguments": arguments}
    service.reply = lambda body: completion(
        "Well.", "tool_calls", tool_calls=[{"id": "a", "type": "function", "function": function}]
    )
    [response] = await responses(model, request(declarations=[GET_WEATHER]))
    assert response.error_code == "MALFORMED_FUNCTION_CALL"
    assert response.error_message is not None
    assert "get_weather" in response.error_message
    assert response.content == Content(role="model", parts=[Part(text="Well.")])


@pytest.mark.parametrize(
    ("said", "reason"),
    [("length", "MAX_TOKENS"), ("content_filter", "SAFETY"), ("function_call", "STOP"), ("tired", "OTHER")],
)
async def test_an_abnormal_end_is_an_error_only_without_an_answer(
    service: Service, model: OpenAILlm, said: str, reason: str
) -> None:
    service.reply = lambda body: completion("so far", said)
    [response] = await responses(model, request())
    assert (response.finish_reason, response.error_code) == (reason, None)
    assert response.content is not None
    assert response.content.text() == "so far"
    service.reply = lambda body: completion(None, said)
    [response] = await responses(model, request())
    assert (response.finish_reason, response.error_code) == (reason, None if reason == "STOP" else reason)


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (401, "invalid_api_key", False),
        (400, "context_length_exceeded", False),
        (429, "rate_limit_exceeded", True),
        (429, "insufficient_quota", False),
        (500, None, True),
        (503, None, True),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_refusals_of_the_service(
    service: Service, model: OpenAILlm, status: int, code: str | None, retryable: bool, stream: bool
) -> None:
    message = f"No good: {KEY}, also sk-proj-abcdefgh12345678."
    service.reply = lambda body: JSONResponse({"error": {"message": message, "code": code}}, status)
    with pytest.raises(ModelError, match=f"HTTP {status}.*No good") as caught:
        await responses(model, request(http_options=ONCE), stream=stream)
    assert caught.value.retryable is retryable
    assert caught.value.model == "openai/gpt-4o-mini"
    assert "1234567890" not in caught.value.detail
    assert "abcdefgh" not in caught.value.detail


async def test_a_stream_that_ends_early_may_be_tried_again(service: Service, model: OpenAILlm) -> None:
    service.reply = lambda body: streamed(chunk({"content": "Half an ans"}), done=False)
    with pytest.raises(ModelError) as caught:
        await responses(model, request(), stream=True)
    assert caught.value.retryable


async def test_a_broken_stream_may_be_tried_again() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        data = chunk({"content": "Half"}).encode()
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        model = OpenAILlm("gpt-4o", base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY)
        answer = aiter(model.generate_content_async(request(), True))
        partial = await anext(answer)
        with pytest.raises(ModelError) as caught:
            await anext(answer)
        await model.close()
    assert partial.content == Content(role="model", parts=[Part(text="Half")])
    assert caught.value.retryable


async def test_nobody_there_may_be_tried_again(unused_port: int) -> None:
    model = OpenAILlm("gpt-4o", base_url=f"http://127.0.0.1:{unused_port}/v1", api_key=KEY)
    with pytest.raises(ModelError) as caught:
        await responses(model, request(http_options=ONCE))
    assert caught.value.retryable
    await model.close()


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_a_missing_key_is_said_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_ADMIN_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ModelError, match=r"api_key|OPENAI_API_KEY"):
        await responses(OpenAILlm("gpt-4o"), request())


async def test_a_server_of_ones_own_needs_no_key(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_ADMIN_KEY", raising=False)
    model = OpenAILlm("openai/llama3.2", base_url=service.url)
    [response] = await responses(model, request())
    assert response.content is not None
    assert response.content.text() == "hello"
    assert service.seen[0]["model"] == "llama3.2"
    await model.close()


async def test_headers_are_sent_with_each_request(service: Service) -> None:
    model = OpenAILlm("openai/llama3.2", base_url=service.url, api_key=KEY, headers={"X-Team": "desk"})
    await responses(model, request())
    assert service.headers[0]["x-team"] == "desk"
    assert service.headers[0]["authorization"] == f"Bearer {KEY}"
    await model.close()


async def test_a_cancelled_stream_hangs_up(service: Service, model: OpenAILlm) -> None:
    async def endless() -> AsyncIterator[str]:
        try:
            while True:
                yield chunk({"content": "and "})
                await asyncio.sleep(0.001)
        finally:
            service.hung_up.set()

    service.reply = lambda body: StreamingResponse(endless(), media_type="text/event-stream")
    has_begun = asyncio.Event()

    async def read() -> None:
        async for _ in model.generate_content_async(request(), True):
            has_begun.set()

    task = asyncio.create_task(read())
    async with asyncio.timeout(5):
        await has_begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await service.hung_up.wait()


def test_calls_and_responses_without_ids_are_paired() -> None:
    asked = LlmRequest(
        contents=[
            UserContent("Weather in Oslo and Rome?"),
            Content(
                role="model",
                parts=[
                    Part(text="Let me see."),
                    Part.from_function_call(name="get_weather", args={"city": "Oslo"}),
                    Part.from_function_call(name="get_weather", args={"city": "Rome"}),
                ],
            ),
            Content(
                role="user",
                parts=[
                    Part.from_function_response(name="get_weather", response={"temp": 4}),
                    Part(function_response=FunctionResponse(name="get_weather", response={"temp": 20})),
                    Part(text="Quick, please."),
                ],
            ),
        ]
    )
    _, assistant, first, second, user = messages(CHAT.prepare(asked).request)
    assert [(c["id"], c["function"]["arguments"]) for c in assistant["tool_calls"]] == [
        ("call_1", '{"city":"Oslo"}'),
        ("call_2", '{"city":"Rome"}'),
    ]
    assert assistant["content"] == "Let me see."
    assert first == {"role": "tool", "tool_call_id": "call_1", "content": '{"temp":4}'}
    assert second == {"role": "tool", "tool_call_id": "call_2", "content": '{"temp":20}'}
    assert user == {"role": "user", "content": "Quick, please."}


def test_media_of_a_user_message() -> None:
    asked = LlmRequest(
        contents=[
            UserContent(
                [
                    Part(text="Look:"),
                    Part.from_bytes(data=b"\x89PNG", mime_type="image/png"),
                    Part.from_uri(file_uri="https://example.com/cat.jpg", mime_type="image/jpeg"),
                    Part.from_bytes(data=b"caf\xc3\xa9", mime_type="text/plain"),
                ]
            )
        ]
    )
    [message] = messages(asked)
    assert message["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
        {"type": "image_url", "image_url": {"url": "https://example.com/cat.jpg"}},
        {"type": "text", "text": "café"},
    ]


def test_reasoning_models_get_their_own_settings() -> None:
    asked = request(
        system_instruction="Think.",
        temperature=0.2,
        top_p=1,
        max_output_tokens=50,
        thinking_config=ThinkingConfig(thinking_level="LOW"),
    )
    arguments = completion_arguments(asked, model="o3-mini")
    assert arguments["messages"][0] == {"role": "developer", "content": "Think."}
    assert {k: v for k, v in arguments.items() if k not in ("messages", "model")} == {
        "max_completion_tokens": 50,
        "top_p": 1,
        "reasoning_effort": "low",
    }
    assert completion_arguments(asked, model="gpt-5-chat-latest")["max_tokens"] == 50


@pytest.mark.parametrize(("mode", "choice"), [("ANY", "required"), ("NONE", "none"), ("AUTO", "auto")])
def test_tool_choice(mode: str, choice: str) -> None:
    calling = FunctionCallingConfig(mode=mode, allowed_function_names=["get_weather"])
    other = FunctionDeclaration(name="other")
    asked = request(declarations=[GET_WEATHER, other], tool_config=ToolConfig(function_calling_config=calling))
    arguments = completion_arguments(asked, model="gpt-4o")
    assert arguments["tool_choice"] == choice
    assert [tool["function"]["name"] for tool in arguments["tools"]] == ["get_weather"]


def test_an_output_schema_is_made_strict() -> None:
    schema = {
        "title": "Trip plan",
        "type": "object",
        "properties": {
            "stops": {"type": "array", "items": {"$ref": "#/$defs/Stop", "description": "One"}},
            "default": {"type": "string", "default": "x"},
        },
        "$defs": {"Stop": {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}}},
    }
    arguments = completion_arguments(request(response_schema=schema), model="gpt-4o")
    assert arguments["response_format"]["json_schema"]["name"] == "Trip_plan"
    assert strict_schema(schema) == {
        "title": "Trip plan",
        "type": "object",
        "properties": {
            "stops": {"type": "array", "items": {"$ref": "#/$defs/Stop"}},
            "default": {"type": "string"},
        },
        "$defs": {
            "Stop": {
                "type": "object",
                "properties": {"b": {"type": "integer"}, "a": {"type": "string"}},
                "additionalProperties": False,
                "required": ["a", "b"],
            }
        },
        "additionalProperties": False,
        "required": ["default", "stops"],
    }
    plain = completion_arguments(request(response_mime_type="application/json"), model="gpt-4o")
    assert plain["response_format"] == {"type": "json_object"}


@pytest.mark.model
@pytest.mark.parametrize("stream", [False, True])
async def test_a_real_model_over_the_same_protocol(llama_server_url: str, stream: bool) -> None:
    model = OpenAILlm("openai/smollm2", base_url=llama_server_url, api_key="none")
    asked = request("What is the capital of France?", temperature=0.0, max_output_tokens=24)
    async with asyncio.timeout(60):
        *partials, whole = [response async for response in model.generate_content_async(asked, stream)]
    assert whole.content is not None
    assert whole.content.text()
    assert "".join(p.content.text() for p in partials if p.content) == (whole.content.text() if stream else "")
    assert whole.usage_metadata is not None
    assert (whole.usage_metadata.prompt_token_count or 0) > 5
    assert 0 < (whole.usage_metadata.candidates_token_count or 0) <= 24
    await model.close()


@pytest.mark.parametrize("stream", [False, True])
async def test_reasoning_details_and_sources_are_kept(service: Service, model: OpenAILlm, stream: bool) -> None:
    """OpenRouter's signatures of thoughts go back as they came; sources become citations."""
    whole = {"type": "reasoning.text", "text": "Let me see", "signature": "sig", "index": 0}
    source = {"type": "url_citation", "url_citation": {"url": "https://a.example", "title": "A", "start_index": 0}}
    if stream:
        first = {"type": "reasoning.text", "text": "Let me", "index": 0}
        rest = {"type": "reasoning.text", "text": " see", "signature": "sig", "index": 0}
        service.reply = lambda body: streamed(
            chunk({"reasoning": "Let me", "reasoning_details": [first]}),
            chunk({"reasoning": " see", "reasoning_details": [rest]}),
            chunk({"content": "Hi", "annotations": [source]}),
            chunk({}, "stop"),
        )
    else:
        service.reply = lambda body: completion(
            "Hi", reasoning="Let me see", reasoning_details=[whole], annotations=[source]
        )
    reply = (await responses(model, request(), stream=stream))[-1]
    assert reply.content is not None
    assert reply.citation_metadata is not None
    assert [one.uri for one in reply.citation_metadata.citations or ()] == ["https://a.example"]
    service.reply = lambda body: completion("ok")
    asked = request("More")
    asked.contents[:0] = [reply.content]
    await responses(model, asked)
    sent = service.seen[-1]["messages"][1]
    assert (sent["reasoning"], sent["reasoning_details"], sent["content"]) == ("Let me see", [whole], "Hi")
