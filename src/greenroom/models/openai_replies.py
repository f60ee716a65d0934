"""What a chat completion says, as our responses; whole ones, and streams gathered piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from greenroom.records.answer_metadata import FinishReason, GenerateContentResponseUsageMetadata
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.model_exchange import LlmResponse

if TYPE_CHECKING:
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessage
    from openai.types.chat.chat_completion_chunk import ChoiceDelta, ChoiceDeltaToolCall

_FINISH_REASONS = {
    "stop": FinishReason.STOP,
    "tool_calls": FinishReason.STOP,
    "function_call": FinishReason.STOP,
    "length": FinishReason.MAX_TOKENS,
    "content_filter": FinishReason.SAFETY,
}


def reply(completion: ChatCompletion) -> LlmResponse:
    """The first choice of a completion that wasn't streamed."""
    gathered = GatheredReply()
    gathered.model_version = completion.model
    gathered.usage = completion.usage
    if completion.choices:
        choice = completion.choices[0]
        message = choice.message
        gathered.finish_reason = choice.finish_reason
        gathered.thought = _reasoning(message) or ""
        gathered.text = (message.content or "") + (message.refusal or "")
        for call in message.tool_calls or ():
            if call.type == "function":
                gathered.calls.append(_StreamedCall(None, call.id, call.function.name, call.function.arguments))
    return gathered.response()


@dataclass
class _StreamedCall:
    index: int | None
    id: str | None
    name: str
    arguments: str


class GatheredReply:
    """A streamed completion: `add` every chunk, then take the whole `response`."""

    def __init__(self) -> None:
        self.text = ""
        self.thought = ""
        self.calls: list[_StreamedCall] = []
        self.finish_reason: str | None = None
        self.usage: CompletionUsage | None = None
        self.model_version: str | None = None

    @property
    def is_complete(self) -> bool:
        return self.finish_reason is not None

    def add(self, chunk: ChatCompletionChunk) -> Iterator[LlmResponse]:
        """The partial responses that the chunk is worth."""
        self.usage = chunk.usage or self.usage
        self.model_version = chunk.model or self.model_version
        if not chunk.choices:
            return
        choice = chunk.choices[0]
        self.finish_reason = choice.finish_reason or self.finish_reason
        thought = _reasoning(choice.delta) or ""
        text = (choice.delta.content or "") + (choice.delta.refusal or "")
        self.thought += thought
        self.text += text
        if thought:
            yield _partial(Part(text=thought, thought=True))
        if text:
            yield _partial(Part(text=text))
        for call in choice.delta.tool_calls or ():
            self._add_call(call)

    def response(self) -> LlmResponse:
        parts: list[Part] = []
        if self.thought:
            parts.append(Part(text=self.thought, thought=True))
        if self.text:
            parts.append(Part(text=self.text))
        finish_reason = _FINISH_REASONS.get(self.finish_reason or "", FinishReason.OTHER)
        response = LlmResponse(
            content=Content(role="model", parts=parts),
            finish_reason=finish_reason,
            usage_metadata=_usage(self.usage),
            model_version=self.model_version,
        )
        if finish_reason != FinishReason.STOP and not (parts or self.calls):
            response.error_code = finish_reason
            response.error_message = f"The model stopped with {self.finish_reason!r}"
        for call in self.calls:
            arguments = _arguments(call.arguments)
            if arguments is None:
                response.error_code = FinishReason.MALFORMED_FUNCTION_CALL
                response.error_message = (
                    f"The model called {call.name!r} with arguments that aren't a JSON object: {call.arguments[:200]!r}"
                )
                response.content = Content(role="model", parts=[p for p in parts if p.function_call is None])
                break
            parts.append(Part(function_call=FunctionCall(id=call.id, name=call.name, args=arguments)))
        return response

    def _add_call(self, delta: ChoiceDeltaToolCall) -> None:
        """Pieces belong together by their index; some servers give every call the same, or none, but its own id."""
        function = delta.function
        name = (function.name if function else None) or ""
        arguments = (function.arguments if function else None) or ""
        for call in reversed(self.calls):
            if call.index == delta.index and (not delta.id or not call.id or call.id == delta.id):
                call.id = call.id or delta.id
                call.name = call.name or name
                call.arguments += arguments
                return
        self.calls.append(_StreamedCall(delta.index, delta.id, name, arguments))


def _arguments(text: str) -> JsonObject | None:
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text, type=JsonObject)
    except msgspec.DecodeError:
        return None


def _reasoning(message: ChatCompletionMessage | ChoiceDelta) -> str | None:
    """What DeepSeek, vLLM and others put beside `content`; OpenAI's own API never shows it."""
    extra = message.model_extra or {}
    said = extra.get("reasoning_content") or extra.get("reasoning")
    return said if isinstance(said, str) else None


def _partial(part: Part) -> LlmResponse:
    return LlmResponse(content=Content(role="model", parts=[part]), partial=True)


def _usage(usage: CompletionUsage | None) -> GenerateContentResponseUsageMetadata | None:
    """As the Gemini API counts: thoughts are not among the candidates' tokens."""
    if usage is None:
        return None
    details = usage.completion_tokens_details
    thoughts = (details.reasoning_tokens if details else None) or 0
    cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None
    return GenerateContentResponseUsageMetadata(
        prompt_token_count=usage.prompt_tokens,
        candidates_token_count=usage.completion_tokens - thoughts,
        total_token_count=usage.total_tokens,
        thoughts_token_count=thoughts or None,
        cached_content_token_count=cached or None,
    )
