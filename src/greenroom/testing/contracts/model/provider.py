"""Interface of the suite to a model and the server that it calls, and the suite's requests."""

# pyright: reportUnusedFunction=false

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any, Literal, Protocol

from greenroom.models.model import BaseLlm
from greenroom.records.base import JsonObject
from greenroom.records.content import (
    Content,
    FunctionCall,
    FunctionResponse,
    Part,
    UserContent,
)
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.tool_declaration import FunctionDeclaration, Schema, Tool, Type

Misbehavior = Literal["hangs", "cuts", "ends early", "sends no JSON", "sends an error"]


class ModelProvider(Protocol):
    """A model, and the server that it calls, which answers in its own wire format with the replies
    it is given.
    """

    model: BaseLlm
    lacks: frozenset[str]
    """Features that the model doesn't have, of "parallel calls", "images", "image URLs", "documents", "video",
    "thinking", "schema with tools", "tool choice", "built-in tools" and "context cache"; and "scripted answers" where a
    real model answers: `say`, `fail` and `misbehave` then skip the test where the difference matters, and do nothing
    otherwise.
    """

    seen: list[JsonObject]
    """The bodies of requests, oldest first."""

    secret: str
    """The key that the model was given."""

    metadata_key: str | None
    """The key in `Part.part_metadata` of data that is only for it."""

    def say(self, *parts: Part, finish_reason: str = "STOP") -> None:
        """Sets the answers to all later requests: texts, thoughts with signatures, function calls with ids; streamed in
        several pieces. The prompt has 10 tokens, 4 of them cached, and the answer 5.
        """

    def fail(self, status: int, message: str, *, headers: dict[str, str]) -> None:
        """Answers all later requests with an error of this HTTP status."""

    def misbehave(self, how: Misbehavior) -> None:
        """Breaks off all later answers after their beginning, streamed or not."""


PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAD0lEQVR4nGNowAEYhpYEAILzYAGc7g8kAAAAAElFTkSuQmCC"
)
"""A grey square."""

GET_WEATHER = FunctionDeclaration(
    name="get_weather",
    description="Current weather of a city.",
    parameters=Schema(
        type=Type.OBJECT,
        properties={"city": Schema(type=Type.STRING, description="Its name."), "days": Schema(type=Type.INTEGER)},
        required=["city"],
    ),
)
WEATHER_TOOLS = [Tool(function_declarations=[GET_WEATHER])]
TRIP: JsonObject = {
    "title": "Trip",
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
}


def _call(call_id: str, city: str) -> Part:
    return Part(function_call=FunctionCall(id=call_id, name="get_weather", args={"city": city}))


def _response(call_id: str | None, temperature: int) -> Part:
    return Part(
        function_response=FunctionResponse(id=call_id, name="get_weather", response={"temperature": temperature})
    )


def _request(*contents: Content | str, tools: list[Tool] | None = None, **config: Any) -> LlmRequest:
    config["http_options"] = {"retry_options": {"attempts": 1}, **config.get("http_options", {})}
    made = [UserContent(content) if isinstance(content, str) else content for content in contents or ("Hi",)]
    return LlmRequest(contents=made, config=GenerateContentConfig(tools=tools, **config))


async def _ask(
    provider: ModelProvider, request: LlmRequest, *, stream: bool = False, shown: list[LlmResponse] | None = None
) -> list[LlmResponse]:
    """Returns all responses; `shown` is called with each as it arrives."""
    request.model = provider.model.model
    responses = [] if shown is None else shown
    async with asyncio.timeout(60):
        async for response in provider.model.generate_content_async(request, stream):
            responses.append(response)
    return responses


async def _whole(
    provider: ModelProvider,
    request: LlmRequest,
    *,
    stream: bool = False,
) -> LlmResponse:
    *partials, complete = await _ask(provider, request, stream=stream)
    assert all(partial.partial for partial in partials)
    assert stream or not partials
    assert not complete.partial
    return complete


def _sent(provider: ModelProvider) -> str:
    return json.dumps(provider.seen[-1], ensure_ascii=False)


def _texts(responses: list[LlmResponse], *, thought: bool | None = None) -> str:
    parts = [part for response in responses if response.content for part in response.content.parts or ()]
    return "".join(part.text or "" for part in parts if (part.thought or None) == thought)


def _has_said(provider: ModelProvider, responses: list[LlmResponse], text: str) -> bool:
    """True if the responses have this text or, from a real model, any text."""
    answer = _texts(responses)
    if "scripted answers" in provider.lacks:
        return bool(answer)
    return answer == text


def _calls(response: LlmResponse) -> list[FunctionCall]:
    assert response.content is not None
    return [part.function_call for part in response.content.parts or () if part.function_call is not None]
