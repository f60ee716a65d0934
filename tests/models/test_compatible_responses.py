"""The Responses API of compatible servers, such as vLLM's, llama.cpp's and gateways', through the real SDK."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenroom.errors import ModelError
from greenroom.models.openai.responses import OpenAIResponsesLlm
from greenroom.records.answer_metadata import FinishReason
from greenroom.records.base import JsonObject
from greenroom.records.content import UserContent
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from tests.fuzz.extent import IS_LONG
from tests.models.random_replies import Calls, Draw, calls, calls_of, cut, shown_parts, texts_of, words
from tests.models.wire.openai_responses import ResponsesServer
from tests.models.wire.server import frame

pytestmark = pytest.mark.slow

ONCE: JsonObject = {"retry_options": {"attempts": 1}}


@pytest.fixture
async def server() -> AsyncIterator[ResponsesServer]:
    async with ResponsesServer().serving() as running:
        yield running


@pytest.fixture
async def model(server: ResponsesServer) -> AsyncIterator[OpenAIResponsesLlm]:
    made = OpenAIResponsesLlm("some", base_url=f"{server.url}/v1", api_key=server.secret)
    yield made
    await made.close()


async def responses(model: OpenAIResponsesLlm, *, stream: bool) -> list[LlmResponse]:
    config = GenerateContentConfig(http_options=ONCE)
    request = LlmRequest(model=model.model, contents=[UserContent("Hi")], config=config)
    return [response async for response in model.generate_content_async(request, stream)]


async def answer(model: OpenAIResponsesLlm, *, stream: bool) -> LlmResponse:
    return (await responses(model, stream=stream))[-1]


def response(*output: JsonObject, **more: Any) -> JsonObject:
    return {"id": "r1", "model": "some", "status": "completed", "output": list(output), **more}


def event(kind: str, **fields: Any) -> str:
    return frame({"type": f"response.{kind}", **fields}, event=f"response.{kind}")


def function_call(arguments: JsonObject | str | None, **more: Any) -> JsonObject:
    return {"type": "function_call", "call_id": "c1", "name": "look", "arguments": arguments, **more}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("arguments", "args"),
    [({"a": 1}, {"a": 1}), ({}, {}), ("", {}), (None, {}), ("null", {}), ('{"a": 1}', {"a": 1})],
)
async def test_arguments_as_servers_send_them(
    server: ResponsesServer,
    model: OpenAIResponsesLlm,
    arguments: JsonObject | str | None,
    args: JsonObject,
    stream: bool,
) -> None:
    item = function_call(arguments)
    server.raw = [event("output_item.done", item=item), event("completed", response=response(item))]
    if not stream:
        server.raw = response(item)
    assert calls_of(await answer(model, stream=stream)) == [("look", args)]


CALL = function_call('{"a": 1}', id="fc_1")
BEGUN = {**CALL, "arguments": ""}


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([event("output_item.added", item=CALL)], id="whole at the start, and last"),
        pytest.param([event("output_item.added", item=BEGUN)], id="only last"),
        pytest.param([], id="only last, without a start"),
        pytest.param(
            [
                event("output_item.added", item=BEGUN),
                event("function_call_arguments.delta", delta='{"a"'),
                event("function_call_arguments.delta", delta=": 1}"),
            ],
            id="deltas without index and id",
        ),
        pytest.param(
            [
                event("output_item.added", item=BEGUN),
                event("function_call_arguments.delta", item_id="fc_1", delta='{"a": 1}'),
                event("function_call_arguments.done", item_id="fc_1", arguments='{"a": 1}'),
                event("output_item.done", item=CALL),
            ],
            id="deltas with the item's id",
        ),
        pytest.param(
            [
                event("output_item.added", item=BEGUN, output_index=0),
                event("function_call_arguments.done", output_index=0, arguments={"a": 1}),
            ],
            id="an object at the end of the arguments",
        ),
    ],
)
async def test_a_call_is_read_wherever_its_arguments_are(
    server: ResponsesServer, model: OpenAIResponsesLlm, events: list[str]
) -> None:
    server.raw = [*events, event("completed", response=response(CALL))]
    *partials, whole = await responses(model, stream=True)
    assert calls_of(whole) == [("look", {"a": 1})]
    shown = [part.function_call for part in shown_parts(partials) if part.function_call]
    pieces = [piece.string_value or "" for call in shown for piece in call.partial_args or ()]
    assert json.loads("".join(pieces)) == {"a": 1}
    assert not shown[0].partial_args


async def test_calls_with_the_same_id_are_two(server: ResponsesServer, model: OpenAIResponsesLlm) -> None:
    server.raw = response(function_call('{"a": 1}'), function_call('{"a": 2}'))
    assert calls_of(await answer(model, stream=False)) == [("look", {"a": 1}), ("look", {"a": 2})]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "output",
    [
        {"output": [{"type": "message", "role": "assistant", "content": "Hello"}]},
        {"output": [{"role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}]},
        {"output": [{"type": "message", "content": ["Hel", "lo"]}]},
        {"output": [{"type": "reasoning", "summary": ["Hm."]}, {"type": "message", "content": "Hello"}]},
        {"output": [{"type": "reasoning", "content": "Hm."}, {"type": "message", "content": "Hello"}]},
        {"output": None, "output_text": "Hello"},
        {"output": [], "output_text": "Hello"},
        {"output": [{"type": "message", "content": "Hello"}], "status": None, "usage": None},
    ],
)
async def test_texts_as_servers_send_them(
    server: ResponsesServer, model: OpenAIResponsesLlm, output: JsonObject, stream: bool
) -> None:
    body = {**response(), **output}
    server.raw = [event("completed", response=body)] if stream else body
    whole = await answer(model, stream=stream)
    assert texts_of(whole) == "Hello"
    assert texts_of(whole, thought=True) == ("Hm." if "Hm." in str(output) else "")
    assert whole.finish_reason == FinishReason.STOP


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("body", "message", "category"),
    [
        ({"error": {"message": "Slow down", "code": "rate_limit_exceeded"}}, "Slow down", "RATE_LIMITED"),
        ({"error": {"message": "No such model", "code": 404}}, "No such model", "CLIENT_ERROR"),
        ({"error": "It broke"}, "It broke", "SERVER_ERROR"),
        ({"object": "error", "message": "Bad key", "type": "authentication_error"}, "Bad key", "AUTH_ERROR"),
        ({"detail": "It broke"}, "It broke", "SERVER_ERROR"),
        ({"status": "failed", "error": {"code": "server_error", "message": "It broke"}}, "It broke", "SERVER_ERROR"),
        ({"status": "cancelled", "output": []}, "The response was cancelled", "SERVER_ERROR"),
        ({"id": "r1"}, "no 'output'", "SERVER_ERROR"),
    ],
)
async def test_an_error_with_status_200(
    server: ResponsesServer, model: OpenAIResponsesLlm, body: JsonObject, message: str, category: str, stream: bool
) -> None:
    raws: list[Any] = [body]
    if stream:
        last = event("failed" if "status" in body else "completed", response=body)
        raws = [body, [last]] if "error" not in body else [body, [last], [frame(body)]]
    for raw in raws:
        server.raw = raw
        with pytest.raises(ModelError, match=message) as caught:
            await answer(model, stream=stream)
        assert caught.value.category == category


async def test_an_error_event(server: ResponsesServer, model: OpenAIResponsesLlm) -> None:
    for fields in ({"code": "rate_limit_exceeded", "message": "Slow down"}, {"error": {"message": "Slow down: 429"}}):
        server.raw = [event("created", response=response()), frame({"type": "error", **fields})]
        with pytest.raises(ModelError, match="Slow down") as caught:
            await answer(model, stream=True)
        assert caught.value.category == "RATE_LIMITED"


# Random replies, in events as servers send them.


def item_events(draw: Draw, item: JsonObject, index: int, *, names: bool, deltas: bool, ends: bool) -> list[str]:
    """names: events say the item's index or id. deltas: texts and arguments come in deltas. ends: the item is sent at
    its end."""
    at: JsonObject = draw(st.sampled_from([{"output_index": index}, {"item_id": item["id"]}])) if names else {}
    on_item: JsonObject = {"output_index": index} if names and draw(st.booleans()) else {}
    events = [event("output_item.added", item={**item, "arguments": "", "content": [], "summary": []}, **on_item)]
    kind = item["type"]
    if deltas and kind == "function_call":
        events += [event("function_call_arguments.delta", **at, delta=one) for one in cut(draw, item["arguments"])]
    elif deltas and kind == "message":
        events += [event("output_text.delta", **at, delta=one) for one in cut(draw, item["content"][0]["text"])]
    elif deltas:
        events += [event("reasoning_text.delta", **at, delta=one) for one in cut(draw, item["content"][0]["text"])]
    return [*events, event("output_item.done", item=item, **on_item)] if ends else events


@st.composite
def streams(draw: Any) -> tuple[str, str, Calls, list[str]]:
    """Thoughts, text and calls, and the events in which a server sends them."""
    thought, text, wanted = draw(st.one_of(st.just(""), words)), draw(st.one_of(st.just(""), words)), draw(calls)
    output: list[JsonObject] = []
    if thought:
        output.append({"type": "reasoning", "id": "rs", "content": [{"type": "reasoning_text", "text": thought}]})
    if text:
        output.append({"type": "message", "id": "msg", "content": [{"type": "output_text", "text": text}]})
    for at, (name, args) in enumerate(wanted):
        output.append(function_call(json.dumps(args), name=name, call_id=f"c{at}", id=f"fc_{at}"))
    names = draw(st.booleans())
    deltas = draw(st.booleans())
    ends = draw(st.booleans())
    events = [
        each
        for index, item in enumerate(output)
        for each in item_events(draw, item, index, names=names, deltas=deltas, ends=ends)
    ]
    return thought, text, wanted, [*events, event("completed", response=response(*output))]


@given(streams())
@settings(
    max_examples=120 if IS_LONG else 40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
async def test_random_replies_in_events_of_servers(
    server: ResponsesServer, model: OpenAIResponsesLlm, stream: tuple[str, str, Calls, list[str]]
) -> None:
    thought, text, wanted, frames = stream
    server.raw = frames
    *partials, whole = await responses(model, stream=True)
    assert (texts_of(whole, thought=True), texts_of(whole), calls_of(whole)) == (thought, text, wanted)
    assert "".join(part.text or "" for part in shown_parts(partials) if not part.thought) == text
