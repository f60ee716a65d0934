"""Anthropic's Messages API of compatible servers, such as llama.cpp's, vLLM's and gateways', through the real SDK."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenroom.errors import ModelError
from greenroom.models.anthropic.llm import AnthropicLlm
from greenroom.records.answer_metadata import FinishReason
from greenroom.records.base import JsonObject
from greenroom.records.content import UserContent
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from tests.fuzz.extent import IS_LONG
from tests.models.random_replies import Calls, Draw, calls, calls_of, cut, shown_parts, texts_of, words
from tests.models.wire.anthropic import AnthropicServer
from tests.models.wire.server import frame

pytestmark = pytest.mark.slow

ONCE: JsonObject = {"retry_options": {"attempts": 1}}


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer().serving() as running:
        yield running


@pytest.fixture
async def model(server: AnthropicServer) -> AsyncIterator[AnthropicLlm]:
    made = AnthropicLlm("some", base_url=server.url, api_key=server.secret)
    yield made
    await made.close()


async def responses(model: AnthropicLlm, *, stream: bool) -> list[LlmResponse]:
    config = GenerateContentConfig(http_options=ONCE)
    request = LlmRequest(model=model.model, contents=[UserContent("Hi")], config=config)
    return [response async for response in model.generate_content_async(request, stream)]


async def answer(model: AnthropicLlm, *, stream: bool) -> LlmResponse:
    return (await responses(model, stream=stream))[-1]


def message(content: Any, stop_reason: str | None = "end_turn", **more: Any) -> JsonObject:
    return {"id": "m1", "type": "message", "role": "assistant", "content": content, "stop_reason": stop_reason, **more}


def event(kind: str, **fields: Any) -> str:
    return frame({"type": kind, **fields}, event=kind)


def begun(block: JsonObject, index: int = 0) -> str:
    return event("content_block_start", index=index, content_block=block)


def delta(index: int = 0, **fields: Any) -> str:
    return event("content_block_delta", index=index, delta=fields)


START = event("message_start", message=message([], None))
END = [event("message_delta", delta={"stop_reason": "end_turn"}), event("message_stop")]
STOP = event("content_block_stop", index=0)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("given_input", "args"), [({"a": 1}, {"a": 1}), ({}, {}), (None, {}), ("", {}), ('{"a": 1}', {"a": 1})]
)
async def test_input_as_servers_send_it(
    server: AnthropicServer, model: AnthropicLlm, given_input: Any, args: JsonObject, stream: bool
) -> None:
    block = {"type": "tool_use", "name": "look", "input": given_input}
    server.raw = [START, begun(block), STOP, *END] if stream else message([block], "tool_use")
    assert calls_of(await answer(model, stream=stream)) == [("look", args)]


CALL: JsonObject = {"type": "tool_use", "id": "a", "name": "look", "input": {"a": 1}}


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([START, begun(CALL), STOP, *END], id="whole at the start of the block"),
        pytest.param([START, begun(CALL), *END], id="without an end of the block"),
        pytest.param([START, begun(CALL), event("message_stop")], id="without a stop reason"),
        pytest.param([event("message_start", message=message([CALL], None)), *END], id="with the start of the message"),
        pytest.param(
            [
                START,
                begun(CALL),
                delta(type="input_json_delta", partial_json='{"a"'),
                delta(type="input_json_delta", partial_json=": 1}"),
                STOP,
                *END,
            ],
            id="at the start and in deltas",
        ),
        pytest.param(
            [START, begun({**CALL, "input": {}}), delta(type="input_json_delta", partial_json={"a": 1}), STOP, *END],
            id="an object in the delta",
        ),
    ],
)
async def test_a_call_is_read_wherever_its_input_is(
    server: AnthropicServer, model: AnthropicLlm, frames: list[str]
) -> None:
    server.raw = frames
    *partials, whole = await responses(model, stream=True)
    assert calls_of(whole) == [("look", {"a": 1})]
    shown = [part.function_call for part in shown_parts(partials) if part.function_call]
    pieces = [piece.string_value or "" for call in shown for piece in call.partial_args or ()]
    assert json.loads("".join(pieces)) == {"a": 1}


async def test_text_and_thoughts_at_the_start_of_a_block(server: AnthropicServer, model: AnthropicLlm) -> None:
    thinking = {"type": "thinking", "thinking": "Hm", "signature": "sig"}
    server.raw = [
        START,
        begun(thinking),
        delta(type="thinking_delta", thinking="."),
        begun({"type": "text", "text": "Hel"}, 1),
        delta(1, type="text_delta", text="lo"),
        *END,
    ]
    whole = await answer(model, stream=True)
    thought, text = shown_parts([whole])
    assert (thought.text, thought.thought_signature, text.text) == ("Hm.", b"sig", "Hello")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reason", ["stop", "end_turn", None])
async def test_a_text_as_content_and_other_stop_reasons(
    server: AnthropicServer, model: AnthropicLlm, reason: str | None, stream: bool
) -> None:
    server.raw = message("Hello", reason, usage=None)
    whole = await answer(model, stream=stream)
    assert (texts_of(whole), whole.usage_metadata) == ("Hello", None)
    assert whole.finish_reason == (FinishReason.STOP if reason else None)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("body", "text", "category"),
    [
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down"}}, "Slow down", "RATE_LIMITED"),
        ({"error": {"message": "No such model", "code": 404}}, "No such model", "CLIENT_ERROR"),
        ({"error": "It broke"}, "It broke", "SERVER_ERROR"),
        ({"detail": "It broke"}, "It broke", "SERVER_ERROR"),
        ({"id": "m1", "type": "message"}, "no 'content'", "SERVER_ERROR"),
    ],
)
async def test_an_error_with_status_200(
    server: AnthropicServer, model: AnthropicLlm, body: JsonObject, text: str, category: str, stream: bool
) -> None:
    raws: list[Any] = [body, [START, frame(body, event="error")]] if stream and "error" in body else [body]
    for raw in raws:
        server.raw = raw
        with pytest.raises(ModelError, match=text) as caught:
            await answer(model, stream=stream)
        assert caught.value.category == category


# Random replies, in events as servers send them.


def block_events(draw: Draw, block: JsonObject, index: int) -> list[str]:
    """A block whole at its start, or in deltas; with or without its end."""
    field = {"text": "text", "thinking": "thinking", "tool_use": "input"}[block["type"]]
    is_call = field == "input"
    whole: str = json.dumps(block[field]) if is_call else block[field]
    if draw(st.booleans()):
        events = [begun(block, index)]
    else:
        kind, name = ("input_json_delta", "partial_json") if is_call else (f"{field}_delta", field)
        events = [begun({**block, field: {} if is_call else ""}, index)]
        events += [delta(index, type=kind, **{name: piece}) for piece in cut(draw, whole)]
    return [*events, event("content_block_stop", index=index)] if draw(st.booleans()) else events


@st.composite
def streams(draw: Any) -> tuple[str, str, Calls, list[str]]:
    """Thoughts, text and calls, and the events in which a server sends them."""
    thought, text, wanted = draw(st.one_of(st.just(""), words)), draw(st.one_of(st.just(""), words)), draw(calls)
    blocks: list[JsonObject] = [{"type": "thinking", "thinking": thought}] if thought else []
    blocks += [{"type": "text", "text": text}] if text else []
    has_ids = draw(st.booleans())
    for at, (name, args) in enumerate(wanted):
        blocks.append({"type": "tool_use", "name": name, "input": args, **({"id": f"t{at}"} if has_ids else {})})
    at_start = draw(st.integers(0, len(blocks)))
    start = event("message_start", message=message(blocks[:at_start], None))
    events = [each for at, block in enumerate(blocks[at_start:]) for each in block_events(draw, block, at)]
    return thought, text, wanted, [start, *events, *draw(st.sampled_from([END, END[:1], END[1:]]))]


@given(streams())
@settings(
    max_examples=100 if IS_LONG else 35, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
async def test_random_replies_in_events_of_servers(
    server: AnthropicServer, model: AnthropicLlm, stream: tuple[str, str, Calls, list[str]]
) -> None:
    thought, text, wanted, frames = stream
    server.raw = frames
    *partials, whole = await responses(model, stream=True)
    assert (texts_of(whole, thought=True), texts_of(whole), calls_of(whole)) == (thought, text, wanted)
    assert "".join(part.text or "" for part in shown_parts(partials) if not part.thought) == text
