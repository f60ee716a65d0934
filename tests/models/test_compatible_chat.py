"""Chat completions of compatible servers, which read OpenAI's documentation in their own ways, through the real SDK."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenroom.errors import ModelError
from greenroom.models.openai.chat import OpenAILlm
from greenroom.records.answer_metadata import FinishReason
from greenroom.records.base import JsonObject
from greenroom.records.content import UserContent
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from tests.fuzz.extent import IS_LONG
from tests.models.random_replies import Calls, Draw, calls, calls_of, cut, shown_parts, texts_of, words
from tests.models.wire.openai_chat import ChatServer
from tests.models.wire.server import frame

pytestmark = pytest.mark.slow

ONCE: JsonObject = {"retry_options": {"attempts": 1}}


@pytest.fixture
async def server() -> AsyncIterator[ChatServer]:
    async with ChatServer().serving() as running:
        yield running


@pytest.fixture
async def model(server: ChatServer) -> AsyncIterator[OpenAILlm]:
    made = OpenAILlm("openai/some", base_url=f"{server.url}/v1", api_key=server.secret)
    yield made
    await made.close()


async def responses(model: OpenAILlm, *, stream: bool) -> list[LlmResponse]:
    config = GenerateContentConfig(http_options=ONCE)
    request = LlmRequest(model=model.model, contents=[UserContent("Hi")], config=config)
    return [response async for response in model.generate_content_async(request, stream)]


async def answer(model: OpenAILlm, *, stream: bool) -> LlmResponse:
    return (await responses(model, stream=stream))[-1]


def completion(message: JsonObject, finish: str | None = "stop", **more: Any) -> JsonObject:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": "some", "choices": [choice], **more}


def chunk(delta: JsonObject | None, finish: str | None = None, **more: Any) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, **more}
    return frame({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "some", "choices": [choice]})


DONE = "data: [DONE]\n\n"


def calling(*calls: JsonObject) -> JsonObject:
    """A delta or message; the fields `name` and `arguments` are those of the function."""
    entries: list[JsonObject] = []
    for call in calls:
        function = {name: call[name] for name in ("name", "arguments") if name in call}
        entries.append({**{name: call[name] for name in call if name not in function}, "function": function})
    return {"content": None, "tool_calls": entries}


def said(server: ChatServer, message: JsonObject, finish: str | None = "stop", *, stream: bool) -> None:
    """Has the server send a message, in a stream as one delta."""
    server.raw = [chunk(message), chunk({}, finish), DONE] if stream else completion(message, finish)


TWICE: Calls = [("look", {"a": 1}), ("look", {"a": 2})]


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param(
            [[{"name": "look", "arguments": '{"a": 1}'}], [{"name": "look", "arguments": '{"a": 2}'}]],
            id="no id, index",
        ),
        pytest.param(
            [[{"name": "look", "arguments": '{"a": 1}'}, {"name": "look", "arguments": '{"a": 2}'}]], id="in one chunk"
        ),
        pytest.param(
            [
                [{"index": 0, "id": "0", "name": "look", "arguments": '{"a": 1}'}],
                [{"index": 0, "id": "0", "name": "look", "arguments": '{"a": 2}'}],
            ],
            id="the same id and index",
        ),
        pytest.param(
            [
                [{"index": 0, "id": "r1", "name": "look"}],
                [{"index": 0, "id": "r2", "arguments": '{"a"'}],
                [{"index": 0, "id": "r3", "arguments": ": 1}"}],
                [{"index": 1, "id": "r4", "name": "look"}],
                [{"index": 1, "id": "r5", "arguments": '{"a": 2}'}],
            ],
            id="an id for each delta",
        ),
        pytest.param(
            [
                [{"id": "a", "name": "look", "arguments": ""}],
                [{"arguments": '{"a": 1}'}],
                [{"id": "b", "name": "look", "arguments": ""}],
                [{"arguments": '{"a": 2}'}],
            ],
            id="ids, no index",
        ),
        pytest.param(
            [
                [{"index": 0, "id": "", "name": "look", "arguments": "{"}],
                [{"index": 0, "id": "", "name": "look", "arguments": '"a": 1'}],
                [{"index": 0, "id": "", "name": "look", "arguments": "}"}],
                [{"index": 0, "id": "", "name": "look", "arguments": '{"a": 2}'}],
            ],
            id="the name in each delta",
        ),
        pytest.param(
            [
                [{"index": 0, "id": "a", "name": "look", "arguments": None}],
                [{"index": 1, "id": "b", "name": "look", "arguments": {"a": 2}}],
                [{"index": 0, "id": "a", "name": "look", "arguments": {"a": 1}}],
                [{"index": 0, "id": "a", "name": "look", "arguments": {"a": 1}}],
            ],
            id="objects, the first again in the last delta",
        ),
    ],
)
async def test_deltas_belong_to_their_calls(
    server: ChatServer, model: OpenAILlm, deltas: list[list[JsonObject]]
) -> None:
    server.raw = [*(chunk(calling(*each)) for each in deltas), chunk({}, "tool_calls"), DONE]
    *partials, whole = await responses(model, stream=True)
    assert calls_of(whole) == TWICE
    assert {part.function_call.id for part in shown_parts(partials) if part.function_call} == {
        part.function_call.id for part in shown_parts([whole]) if part.function_call
    }


async def test_calls_that_are_numbered_come_in_any_order(server: ChatServer, model: OpenAILlm) -> None:
    server.raw = [
        chunk(calling({"index": 0, "id": "a", "name": "look", "arguments": ""})),
        chunk(calling({"index": 1, "id": "b", "name": "look", "arguments": ""})),
        chunk(calling({"index": 1, "arguments": '{"a":'}, {"index": 0, "arguments": '{"a": 1'})),
        chunk(calling({"index": 0, "arguments": "}"}, {"index": 1, "arguments": " 2}"})),
        chunk({}, "tool_calls"),
        DONE,
    ]
    assert calls_of(await answer(model, stream=True)) == TWICE


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("arguments", "args"),
    [
        ({"a": 1}, {"a": 1}),
        ({}, {}),
        ("", {}),
        (" ", {}),
        (None, {}),
        ("null", {}),
        ('{"a": 1}', {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
    ],
)
async def test_arguments_as_servers_send_them(
    server: ChatServer, model: OpenAILlm, arguments: JsonObject | str | None, args: JsonObject, stream: bool
) -> None:
    said(server, calling({"id": "a", "name": "look", "arguments": arguments}), "tool_calls", stream=stream)
    assert calls_of(await answer(model, stream=stream)) == [("look", args)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "message",
    [
        {"tool_calls": {"id": "a", "function": {"name": "look", "arguments": '{"a": 1}'}}},
        {"function_call": {"name": "look", "arguments": '{"a": 1}'}},
        {"tool_calls": None, "function_call": {"name": "look", "arguments": {"a": 1}}},
    ],
)
async def test_calls_that_are_not_in_a_list(
    server: ChatServer, model: OpenAILlm, message: JsonObject, stream: bool
) -> None:
    said(server, message, "function_call", stream=stream)
    assert calls_of(await answer(model, stream=stream)) == [("look", {"a": 1})]


MISTRAL: list[JsonObject | str] = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "Let me"}, {"type": "text", "text": " see."}]},
    {"type": "text", "text": "It is "},
    {"type": "reference", "reference_ids": [3]},
    {"type": "tool_reference", "tool": "web_search", "title": "A", "url": "https://a.example"},
    {"type": "part_of_the_future", "answer": 42},
    "cold.",
]


@pytest.mark.parametrize("stream", [False, True])
async def test_content_as_a_list_of_parts(server: ChatServer, model: OpenAILlm, stream: bool) -> None:
    said(server, {"content": MISTRAL}, stream=stream)
    whole = await answer(model, stream=stream)
    assert texts_of(whole, thought=True) == "Let me see."
    assert texts_of(whole) == "It is cold."
    assert whole.citation_metadata is not None
    cited = [(one.uri, one.title) for one in whole.citation_metadata.citations or ()]
    assert cited == [(None, "3"), ("https://a.example", "A")]
    server.raw = None
    assert whole.content is not None
    request = LlmRequest(model=model.model, contents=[UserContent("Hi"), whole.content, UserContent("Sure?")])
    assert [reply async for reply in model.generate_content_async(request)]
    assert server.seen[-1]["messages"][1] == {"role": "assistant", "content": "It is cold."}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
async def test_reasoning_beside_the_content(server: ChatServer, model: OpenAILlm, field: str, stream: bool) -> None:
    said(server, {field: "Hm.", "content": "Yes."}, stream=stream)
    whole = await answer(model, stream=stream)
    assert (texts_of(whole, thought=True), texts_of(whole)) == ("Hm.", "Yes.")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("body", "message", "category", "http_status"),
    [
        ({"error": {"message": "No such model", "type": "not_found_error"}}, "No such model", "CLIENT_ERROR", None),
        ({"error": {"message": "Slow down", "code": 429}}, "Slow down", "RATE_LIMITED", 429),
        ({"error": {"message": "Bad key", "code": "401"}}, "Bad key", "AUTH_ERROR", 401),
        ({"error": "Model is busy", "error_type": "overloaded"}, "Model is busy", "SERVER_ERROR", None),
        ({"error": "It broke"}, "It broke", "SERVER_ERROR", None),
        ({"error": {"code": 3051, "message": "It broke"}}, "It broke", "SERVER_ERROR", None),
        (
            {"object": "error", "message": "Too long", "type": "invalid_request_error", "code": 400},
            "Too long",
            "CLIENT_ERROR",
            400,
        ),
        (
            {"object": "error", "message": {"detail": [{"msg": "no tools"}]}, "type": "invalid_request_error"},
            "no tools",
            "CLIENT_ERROR",
            None,
        ),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}}, "Busy", "SERVER_ERROR", None),
        (
            {"error": {"message": "Provider returned error", "code": 502, "metadata": {"raw": "upstream died"}}},
            "Provider returned error: upstream died",
            "SERVER_ERROR",
            502,
        ),
    ],
)
async def test_an_error_with_status_200(
    server: ChatServer,
    model: OpenAILlm,
    body: JsonObject,
    message: str,
    category: str,
    http_status: int | None,
    stream: bool,
) -> None:
    for raw in (body, [frame(body)], [chunk({"content": "So"}), frame(body)]) if stream else (body,):
        server.raw = raw
        with pytest.raises(ModelError, match=message) as caught:
            await answer(model, stream=stream)
        if "error_type" not in body or not isinstance(raw, list):  # the SDK drops what is beside `error`
            assert caught.value.category == category
        assert caught.value.http_status == http_status
        assert caught.value.retryable is (category in ("RATE_LIMITED", "SERVER_ERROR"))


@pytest.mark.parametrize("body", [{"detail": "Model not loaded"}, {"choices": None}, {"choices": []}, {"x": 1}])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_body_without_choices(server: ChatServer, model: OpenAILlm, body: JsonObject, stream: bool) -> None:
    server.raw = body
    with pytest.raises(ModelError, match=body.get("detail", "no 'choices'")) as caught:
        await answer(model, stream=stream)
    assert caught.value.category == "SERVER_ERROR"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reason", ["error", "abort", "insufficient_system_resource"])
async def test_a_finish_reason_that_is_an_error(
    server: ChatServer, model: OpenAILlm, reason: str, stream: bool
) -> None:
    said(server, {"content": "Half an ans"}, reason, stream=stream)
    with pytest.raises(ModelError, match=reason) as caught:
        await answer(model, stream=stream)
    assert (caught.value.category, caught.value.retryable) == ("SERVER_ERROR", True)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_of_the_choice(server: ChatServer, model: OpenAILlm, stream: bool) -> None:
    error = {"code": 429, "message": "Slow down"}
    if stream:
        server.raw = [chunk({"content": ""}, "error", error=error), DONE]
    else:
        server.raw = completion({"content": ""}, "error")
        server.raw["choices"][0]["error"] = error
    with pytest.raises(ModelError, match="Slow down") as caught:
        await answer(model, stream=stream)
    assert (caught.value.category, caught.value.http_status) == ("RATE_LIMITED", 429)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("reason", "meant"),
    [
        ("eos_token", FinishReason.STOP),
        ("stop_sequence", FinishReason.STOP),
        ("STOP", FinishReason.STOP),
        ("model_length", FinishReason.MAX_TOKENS),
        ("MAX_TOKENS", FinishReason.MAX_TOKENS),
        ("recitation", FinishReason.RECITATION),
    ],
)
async def test_other_finish_reasons(
    server: ChatServer, model: OpenAILlm, reason: str, meant: FinishReason, stream: bool
) -> None:
    said(server, {"content": "Hello"}, reason, stream=stream)
    assert (await answer(model, stream=stream)).finish_reason == meant


async def test_an_empty_finish_reason_is_no_end(server: ChatServer, model: OpenAILlm) -> None:
    server.raw = [chunk({"content": "He"}, ""), chunk({"content": "llo"}, ""), chunk(None, "stop"), DONE]
    assert texts_of(await answer(model, stream=True)) == "Hello"
    server.raw = [chunk({"content": "He"}, ""), chunk({"content": "llo"}, "")]
    with pytest.raises(ModelError) as caught:
        await answer(model, stream=True)
    assert caught.value.category == "NETWORK_ERROR"


async def test_usage_after_the_last_choice_ends_a_stream_without_finish_reason(
    server: ChatServer, model: OpenAILlm
) -> None:
    usage = frame({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
    server.raw = [chunk({"content": "Hello"}), usage, DONE]
    whole = await answer(model, stream=True)
    assert texts_of(whole) == "Hello"
    assert whole.usage_metadata is not None
    assert whole.usage_metadata.total_token_count == 5


@pytest.mark.parametrize("stream", [False, True])
async def test_usage_that_is_missing_or_null(server: ChatServer, model: OpenAILlm, stream: bool) -> None:
    for usage in ({}, {"usage": None}, {"usage": {}}):
        if stream:
            server.raw = [chunk({"content": "Hello"}, "stop"), frame({"choices": None, **usage}), DONE]
        else:
            server.raw = {**completion({"content": "Hello"}), **usage}
        whole = await answer(model, stream=stream)
        assert (texts_of(whole), whole.usage_metadata) == ("Hello", None)


async def test_thoughts_that_are_not_counted_as_output(server: ChatServer, model: OpenAILlm) -> None:
    details = {"completion_tokens_details": {"reasoning_tokens": 40}}
    for completion_tokens in (2, 42):
        usage = {"prompt_tokens": 3, "completion_tokens": completion_tokens, "total_tokens": 45, **details}
        server.raw = completion({"content": "Hello"}, usage=usage)
        read = (await answer(model, stream=False)).usage_metadata
        assert read is not None
        assert (read.candidates_token_count, read.thoughts_token_count) == (2, 40)


@pytest.mark.parametrize("has_deltas", [False, True])
async def test_a_message_in_the_last_chunk_is_read_once(server: ChatServer, model: OpenAILlm, has_deltas: bool) -> None:
    calls: JsonObject = calling({"id": "a", "name": "look", "arguments": '{"a": 1}'})
    deltas = [chunk({"content": "Let me"}), chunk({"content": " see."})]
    last = {"message": {**calls, "content": "Let me see."}}
    server.raw = [*(deltas if has_deltas else ()), chunk(None, "tool_calls", **last), DONE]
    whole = await answer(model, stream=True)
    assert (texts_of(whole), calls_of(whole)) == ("Let me see.", [("look", {"a": 1})])
    begun = chunk(calling({"id": "a", "name": "look", "arguments": ""}))
    server.raw = [*(deltas if has_deltas else ()), begun, chunk(None, "tool_calls", **last), DONE]
    assert calls_of(await answer(model, stream=True)) == [("look", {"a": 1})]


@pytest.mark.parametrize("content_type", ["text/plain", "application/json"])
async def test_json_and_events_under_other_media_types(server: ChatServer, content_type: str) -> None:
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    from tests.server.quick_server import serving_routes

    async def reply(request: Any) -> PlainTextResponse:
        if (await request.json()).get("stream"):
            body = "".join([chunk({"content": "Hello"}), chunk({}, "stop"), DONE])
        else:
            body = json.dumps(completion({"content": "Hello"}))
        return PlainTextResponse(body, media_type=content_type)

    async with serving_routes(Route("/v1/chat/completions", reply, methods=["POST"])) as address:
        model = OpenAILlm("openai/some", base_url=f"{address}/v1", api_key=server.secret)
        for stream in (False, True):
            assert texts_of(await answer(model, stream=stream)) == "Hello"
        await model.close()


@pytest.mark.parametrize("raw", [completion({"content": "Hello"})])
async def test_a_server_that_does_not_stream(server: ChatServer, model: OpenAILlm, raw: JsonObject) -> None:
    server.raw = raw
    assert texts_of(await answer(model, stream=True)) == "Hello"


@pytest.mark.parametrize("broken", [{"choices": ["x"]}, {"choices": [{"message": {"tool_calls": [7]}}]}])
async def test_a_reply_of_another_form(server: ChatServer, model: OpenAILlm, broken: JsonObject) -> None:
    for raw, stream in ((broken, False), ([frame(broken)], True)):
        server.raw = raw
        with pytest.raises(ModelError, match="does not have the API's form") as caught:
            await answer(model, stream=stream)
        assert caught.value.category == "SERVER_ERROR"


# Random replies, in deltas as each server sends them.


def numbered(draw: Draw, wanted: Calls) -> list[JsonObject]:
    """OpenAI, llama.cpp: an index with each delta; the id and the name with the first."""
    deltas: list[JsonObject] = []
    for index, (name, args) in enumerate(wanted):
        deltas.append(calling({"index": index, "id": f"c{index}", "type": "function", "name": name, "arguments": ""}))
        deltas += [calling({"index": index, "arguments": piece}) for piece in cut(draw, json.dumps(args))]
    return deltas


def interleaved(draw: Draw, wanted: Calls) -> list[JsonObject]:
    """The same, with the deltas of several calls mixed and some in one chunk. The calls begin in their order."""
    per_call = [
        [{"index": index, "id": f"c{index}", "name": name}]
        + [{"index": index, "arguments": piece} for piece in cut(draw, json.dumps(args))]
        for index, (name, args) in enumerate(wanted)
    ]
    deltas: list[JsonObject] = []
    begun = 0
    while any(per_call):
        waiting = [entries for entries in per_call[: begun + 1] if entries]
        chosen = draw(st.lists(st.sampled_from(range(len(waiting))), min_size=1, unique=True))
        deltas.append(calling(*(waiting[at].pop(0) for at in sorted(chosen))))
        if begun < len(per_call) and len(waiting) - 1 in chosen:
            begun += 1
    return deltas


def vllm(draw: Draw, wanted: Calls) -> list[JsonObject]:
    """An id of its own for each delta."""
    deltas: list[JsonObject] = []
    for index, (name, args) in enumerate(wanted):
        for at, piece in enumerate(["", *cut(draw, json.dumps(args))]):
            head = {"index": index, "id": f"chatcmpl-tool-{len(deltas)}"}
            deltas.append(calling({**head, "arguments": piece} if at else {**head, "name": name}))
    return deltas


def tgi(draw: Draw, wanted: Calls) -> list[JsonObject]:
    """One object, not a list; index 0, the id `0` and the name in each delta."""
    deltas: list[JsonObject] = []
    for name, args in wanted:
        for piece in cut(draw, json.dumps(args)):
            function = {"name": name, "arguments": piece}
            deltas.append({"tool_calls": {"index": 0, "id": "", "type": "function", "function": function}})
    return deltas


def bare(draw: Draw, wanted: Calls) -> list[JsonObject]:
    """Neither index nor id."""
    deltas: list[JsonObject] = []
    for name, args in wanted:
        deltas.append(calling({"name": name, "arguments": ""}))
        deltas += [calling({"arguments": piece}) for piece in cut(draw, json.dumps(args))]
    return deltas


def mistral(draw: Draw, wanted: Calls) -> list[JsonObject]:
    """Whole calls with ids, all in one chunk, with arguments as text or object."""
    entries: list[JsonObject] = []
    for at, (name, args) in enumerate(wanted):
        given_arguments = args if draw(st.booleans()) else json.dumps(args)
        entries.append({"id": f"id{at}", "name": name, "arguments": given_arguments})
    return [calling(*entries)] if entries else []


def gemini(draw: Draw, wanted: Calls) -> list[JsonObject]:
    """Whole calls with index 0 and an empty id, one or several in a chunk."""
    entries: list[JsonObject] = [
        {"index": 0, "id": "", "name": name, "arguments": json.dumps(args)} for name, args in wanted
    ]
    deltas: list[JsonObject] = []
    while entries:
        count = draw(st.integers(1, len(entries)))
        deltas.append(calling(*entries[:count]))
        del entries[:count]
    return deltas


SERVERS = [numbered, interleaved, vllm, tgi, bare, mistral, gemini]


@st.composite
def streams(draw: Any) -> tuple[str, str, Calls, list[str]]:
    """Thoughts, text and calls, and the frames in which one of the servers sends them."""
    thought, text, wanted = draw(st.one_of(st.just(""), words)), draw(st.one_of(st.just(""), words)), draw(calls)
    how = draw(st.sampled_from(SERVERS))
    field = draw(st.sampled_from(["reasoning", "reasoning_content", None]))
    deltas: list[JsonObject] = []
    for piece in cut(draw, thought):
        parts = [{"type": "thinking", "thinking": [{"type": "text", "text": piece}]}]
        deltas.append({field: piece} if field else {"content": parts})
    for piece in cut(draw, text):
        deltas.append({"content": piece if draw(st.booleans()) else [{"type": "text", "text": piece}]})
    deltas += how(draw, wanted)
    empty = draw(st.sampled_from(["", None]))
    frames = [chunk(delta, empty) for delta in deltas]
    return thought, text, wanted, [*frames, chunk({}, "tool_calls" if wanted else "stop"), DONE]


@given(streams())
@settings(
    max_examples=120 if IS_LONG else 40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
async def test_random_replies_in_deltas_of_each_server(
    server: ChatServer, model: OpenAILlm, stream: tuple[str, str, Calls, list[str]]
) -> None:
    thought, text, wanted, frames = stream
    server.raw = frames
    *partials, whole = await responses(model, stream=True)
    assert (texts_of(whole, thought=True), texts_of(whole), calls_of(whole)) == (thought, text, wanted)
    shown = shown_parts(partials)
    assert "".join(part.text or "" for part in shown if not part.thought) == text
    assert len([part for part in shown if part.function_call and not part.function_call.partial_args]) == len(wanted)
