"""Cost of the models' adapters over the vendors' bare SDKs, and time to the first fallback."""

from __future__ import annotations

import gc
import importlib
import json
import statistics
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx

from benchmarks.bench import Bench
from benchmarks.report import Figure, Table, Target, median
from greenroom.models.anthropic.llm import AnthropicLlm
from greenroom.models.fallback import FallbackModel
from greenroom.models.gemini.llm import Gemini
from greenroom.models.model import BaseLlm
from greenroom.models.openai.chat import OpenAILlm
from greenroom.models.openai.responses import OpenAIResponsesLlm
from greenroom.records.base import JsonObject
from greenroom.records.content import UserContent
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest

CHUNKS = 200
CALLS_PER_ROUND = 20
SHORT_CALLS_PER_ROUND = 60
SYSTEM = "Be brief."
USAGE = {"prompt_tokens": 10, "completion_tokens": CHUNKS, "total_tokens": 10 + CHUNKS}
RESPONSE: JsonObject = {
    "id": "r", "object": "response", "created_at": 1, "model": "gpt-4.1", "tools": [], "tool_choice": "auto",
    "parallel_tool_calls": True, "status": "completed",
    "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15,
              "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}},
}  # fmt: skip


def _frames(events: list[JsonObject], *, named: bool = False) -> bytes:
    return b"".join(
        (f"event: {event['type']}\n" if named else "").encode() + b"data: " + json.dumps(event).encode() + b"\n\n"
        for event in events
    )


def _chat(chunks: int) -> bytes:
    base: JsonObject = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4.1"}

    def chunk(delta: JsonObject, finish: str | None = None) -> JsonObject:
        return {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    events = [chunk({"content": "word "}) for _ in range(chunks)]
    return _frames([*events, chunk({}, "stop"), {**base, "choices": [], "usage": USAGE}]) + b"data: [DONE]\n\n"


def _responses(chunks: int) -> bytes:
    item: JsonObject = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
    position = {"item_id": "m", "output_index": 0, "content_index": 0}
    text: JsonObject = {"type": "output_text", "text": "word " * chunks, "annotations": []}
    events: list[JsonObject] = [
        {"type": "response.created", "response": {**RESPONSE, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        *({"type": "response.output_text.delta", "delta": "word ", "logprobs": [], **position} for _ in range(chunks)),
        {"type": "response.output_item.done", "output_index": 0, "item": {**item, "content": [text]}},
        {"type": "response.completed", "response": {**RESPONSE, "output": [{**item, "content": [text]}]}},
    ]
    return _frames([{**event, "sequence_number": number} for number, event in enumerate(events)], named=True)


def _messages(chunks: int) -> bytes:
    message: JsonObject = {"id": "m", "type": "message", "role": "assistant", "model": "claude", "content": []}
    message |= {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 1}}
    delta = {"type": "text_delta", "text": "word "}
    events: list[JsonObject] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for _ in range(chunks)),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": chunks}},
        {"type": "message_stop"},
    ]
    return _frames(events, named=True)


def _generate_content(chunks: int) -> bytes:
    usage = {"promptTokenCount": 10, "candidatesTokenCount": chunks, "totalTokenCount": 10 + chunks}

    def chunk(**more: Any) -> JsonObject:
        candidate = {"index": 0, "content": {"role": "model", "parts": [{"text": "word "}]}, **more}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-2.5-flash"}

    return _frames([*(chunk() for _ in range(chunks - 1)), chunk(finishReason="STOP")])


@dataclass
class Contender:
    """connect: gives the model, and a function that reads a stream with the bare SDK. http: the SDK's HTTP library."""

    name: str
    body: Callable[[int], bytes]
    connect: Callable[[Any], tuple[BaseLlm, Callable[[], Awaitable[None]]]]
    http: str = "httpx"


def _openai(http: Any) -> Any:
    import openai

    return openai.AsyncOpenAI(api_key="none", http_client=http, max_retries=0)


def _of_chat(http: Any) -> tuple[BaseLlm, Callable[[], Awaitable[None]]]:
    client = _openai(http)

    async def bare() -> None:
        stream = await client.chat.completions.create(
            model="gpt-4.1", messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Hi"}],
            max_tokens=99, stream=True, stream_options={"include_usage": True},
        )  # fmt: skip
        await _read(stream)

    return OpenAILlm("openai/gpt-4.1", client=client), bare


def _of_responses(http: Any) -> tuple[BaseLlm, Callable[[], Awaitable[None]]]:
    client = _openai(http)

    async def bare() -> None:
        await _read(
            await client.responses.create(
                model="gpt-4.1", input="Hi", instructions=SYSTEM, max_output_tokens=99, stream=True
            )
        )

    return OpenAIResponsesLlm("gpt-4.1", client=client), bare


def _of_messages(http: Any) -> tuple[BaseLlm, Callable[[], Awaitable[None]]]:
    import anthropic

    client: Any = anthropic.AsyncAnthropic(api_key="none", http_client=http, max_retries=0)

    async def bare() -> None:
        given = [{"role": "user", "content": "Hi"}]
        await _read(
            await client.messages.create(model="claude", max_tokens=99, system=SYSTEM, messages=given, stream=True)
        )

    return AnthropicLlm("claude", client=client), bare


def _of_generate_content(http: Any) -> tuple[BaseLlm, Callable[[], Awaitable[None]]]:
    from google import genai

    client: Any = genai.Client(api_key="none", http_options={"httpx_async_client": http})  # type: ignore[arg-type]

    async def bare() -> None:
        config = {"system_instruction": SYSTEM, "max_output_tokens": 99}
        contents = [{"role": "user", "parts": [{"text": "Hi"}]}]
        given = {"model": "gemini-2.5-flash", "contents": contents, "config": config}
        await _read(await client.aio.models.generate_content_stream(**given))

    return Gemini("gemini-2.5-flash", client=client), bare


CONTENDERS = [
    Contender("Chat Completions", _chat, _of_chat),
    Contender("Responses", _responses, _of_responses),
    Contender("Claude", _messages, _of_messages, "httpx2"),
    Contender("Gemini", _generate_content, _of_generate_content),
]


async def _read(replies: AsyncIterator[Any]) -> None:
    async for _ in replies:
        pass


def _request() -> LlmRequest:
    config = GenerateContentConfig(system_instruction=SYSTEM, max_output_tokens=99)
    return LlmRequest(contents=[UserContent("Hi")], config=config)


async def _overhead(contender: Contender, chunks: int, rounds: int) -> tuple[list[float], list[float]]:
    """CPU seconds per stream in each round, of the bare SDK and of the model: the calls take turns."""
    body = contender.body(chunks)

    library: Any = importlib.import_module(contender.http)

    def respond(request: Any) -> Any:
        return library.Response(200, headers={"content-type": "text/event-stream"}, content=body)

    async with library.AsyncClient(transport=library.MockTransport(respond)) as http:
        model, bare = contender.connect(http)

        async def ours() -> None:
            await _read(model.generate_content_async(_request(), True))

        sides: tuple[list[float], list[float]] = [], []
        for number in range(-1, rounds):
            taken: tuple[list[float], list[float]] = [], []
            calls = [(0, bare), (1, ours)]
            gc.collect()
            gc.disable()  # or it would fall to either side by chance
            for _ in range(CALLS_PER_ROUND if chunks > 1 else SHORT_CALLS_PER_ROUND):
                for side, call in calls:
                    began = time.process_time()
                    await call()
                    taken[side].append(time.process_time() - began)
                calls.reverse()  # so that each side is as often the second, with the caches of the first
            gc.enable()
            if number >= 0:
                for side, values in zip(sides, taken, strict=True):
                    side.append(statistics.median(values))
        await model.close()
        return sides


async def _fallback_ms() -> float:
    """From the first model's refusal to the second's first reply."""
    failed_at = 0.0

    def respond(request: httpx.Request) -> httpx.Response:
        nonlocal failed_at
        if not failed_at:
            failed_at = time.perf_counter()
            return httpx.Response(503, json={"error": {"message": "overloaded"}})
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=_chat(1))

    async with httpx.AsyncClient(transport=httpx.MockTransport(respond)) as http:
        first, second = (OpenAILlm(f"openai/{name}", client=_openai(http)) for name in ("first", "second"))
        await second.load()
        replies: AsyncGenerator[Any] = FallbackModel([first, second]).generate_content_async(_request(), True)  # type: ignore[assignment]
        await anext(replies)
        taken = time.perf_counter() - failed_at
        await replies.aclose()
        return taken * 1e3


async def model_overhead(bench: Bench) -> list[Table]:
    rounds = bench.scale.rounds
    figures: list[Figure] = []
    for contender in CONTENDERS:
        long_bare, long_ours = await _overhead(contender, CHUNKS, rounds)
        short_bare, short_ours = await _overhead(contender, 1, rounds)
        per_chunk = [
            [(long - short) / (CHUNKS - 1) * 1e6 for long, short in zip(*side, strict=True)]
            for side in ((long_bare, short_bare), (long_ours, short_ours))
        ]
        added = (median(per_chunk[1]) / median(per_chunk[0]) - 1) * 100
        per_call = [(ours - bare) * 1e3 for bare, ours in zip(short_bare, short_ours, strict=True)]
        figures += [
            Figure(f"{contender.name}: CPU per chunk", "µs", per_chunk[0], per_chunk[1]),
            Figure(f"{contender.name}: added per chunk", "%", [], [added], target=Target(at_most=15)),
            Figure(
                f"{contender.name}: CPU per call of one chunk", "ms",
                [seconds * 1e3 for seconds in short_bare], [seconds * 1e3 for seconds in short_ours],
            ),
            Figure(f"{contender.name}: added per call", "ms", [], per_call, target=Target(at_most=0.3)),
        ]  # fmt: skip
    waits = [await _fallback_ms() for _ in range(rounds)]
    figures.append(Figure("failure to fallback's first reply", "ms", [], waits, target=Target(at_most=50)))
    notes = [
        "Both sides send the same request. The SDKs' HTTP client answers out of memory, in "
        f"{CHUNKS} chunks ({CALLS_PER_ROUND} calls of each side in a round, in turn) or in one "
        f"({SHORT_CALLS_PER_ROUND} calls). A round's figure is the median of its calls, without garbage collection. "
        "Per chunk: the difference of the two lengths."
    ]
    return [Table("Models over the bare SDKs", figures, notes, peer_name="SDK")]
