"""Builds a model's reply out of its pieces, streamed or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from greenroom.records.answer_metadata import (
    Citation,
    CitationMetadata,
    FinishReason,
    GenerateContentResponseUsageMetadata,
)
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, FunctionCall, Part, PartialArg
from greenroom.records.identifiers import new_function_call_id
from greenroom.records.model_exchange import LlmResponse

_STOPS = (
    "stop", "tool_calls", "tool_call", "function_call", "end_turn", "tool_use", "stop_sequence", "completed",
    "pause_turn", "eos", "eos_token",
)  # fmt: skip
_LIMITS = ("length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded")
_REFUSALS = ("content_filter", "refusal", "safety")
_FINISH_REASONS = {
    **{reason.lower(): reason for reason in FinishReason},
    **dict.fromkeys(_STOPS, FinishReason.STOP),
    **dict.fromkeys(_LIMITS, FinishReason.MAX_TOKENS),
    **dict.fromkeys(_REFUSALS, FinishReason.SAFETY),
}
"""Of OpenAI, Anthropic and Google, and of servers compatible with them: TGI, Mistral and others."""


def nested(given: JsonObject, name: str) -> JsonObject:
    """The object in a field, empty where it is null or left out."""
    return given.get(name) or {}


def finish_reason(reason: str | None) -> FinishReason:
    """The finish reason for a vendor's word for it; OTHER for words that aren't known."""
    return _FINISH_REASONS.get((reason or "").lower(), FinishReason.OTHER)


def token_usage(
    prompt: int | None,
    output: int | None,
    total: int | None = None,
    *,
    thoughts: int | None = None,
    cached: int | None = None,
) -> GenerateContentResponseUsageMetadata:
    """The usage as the Gemini API counts it: thoughts are not among the candidates' tokens.

    Most other vendors count them as output. Where the total is the sum of all three, as xAI's is,
    they aren't.
    """
    prompt = prompt or 0
    output = output or 0
    thoughts = thoughts or 0
    has_thoughts_in_output = total is None or total != prompt + output + thoughts

    return GenerateContentResponseUsageMetadata(
        prompt_token_count=prompt,
        candidates_token_count=max(output - thoughts, 0) if has_thoughts_in_output else output,
        total_token_count=prompt + output if total is None else total,
        thoughts_token_count=thoughts or None,
        cached_content_token_count=cached or None,
    )


def arguments_text(arguments: JsonValue) -> str:
    """The JSON text of a call's arguments, which some servers send as an object, or leave out."""
    if arguments is None:
        return ""
    if isinstance(arguments, str):
        return arguments
    return msgspec.json.encode(arguments).decode()


class StreamedCall:
    """A function call whose arguments arrive as pieces of JSON text."""

    __slots__ = ("call", "pieces")

    def __init__(self, call: FunctionCall) -> None:
        self.call = call
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def is_whole(self) -> bool:
        """True if the arguments so far are a whole JSON object."""
        if not self.pieces or not self.pieces[-1].rstrip().endswith("}"):
            return False
        try:
            self.decode()
        except msgspec.DecodeError:
            return False
        return True

    def decode(self) -> JsonObject:
        """The arguments; none are an empty object. Raises DecodeError, or UnicodeEncodeError for
        lone surrogates.
        """
        value = msgspec.json.decode(self.text.strip() or "{}")
        if isinstance(value, str):  # encoded twice
            value = msgspec.json.decode(value.strip() or "{}")
        return msgspec.convert({} if value is None else value, JsonObject)


class ModelReply:
    """Builds a model's reply: `add` returns partial responses for each chunk, `whole` the complete response.

    Replies that aren't streamed are built the same way, so that both ways give equal responses. `response` holds the
    metadata: finish reason, usage, version and so on. Partial calls have `will_continue`, and their `partial_args` have
    the path `$` with a piece of the arguments' JSON text.

    is_complete: the provider has reported how the reply ended.
    """

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.response = LlmResponse()
        self.is_complete = False
        self._citations: list[Citation] = []
        self._texts: list[str] = []
        self._is_thought = False
        self._calls: list[StreamedCall] = []

    def add(self, chunk: Any, /) -> Iterator[LlmResponse]:
        """The partial responses of a chunk or stream event, in the form that the provider has for them."""
        raise NotImplementedError

    def add_whole(self, reply: Any, /) -> None:
        """Adds a reply that wasn't streamed."""
        for _ in self.add(reply):
            pass

    @property
    def is_empty(self) -> bool:
        return not (self.parts or self._texts)

    @property
    def open_text(self) -> str:
        """The text since the last part."""
        return "".join(self._texts)

    @property
    def has_text(self) -> bool:
        """True if there is text of the answer, not only of thoughts."""
        return bool(self._texts and not self._is_thought) or any(part.text and not part.thought for part in self.parts)

    def add_text(self, text: str, *, thought: bool = False) -> LlmResponse:
        if self._texts and self._is_thought != thought:
            self.end_text()
        self._is_thought = thought
        self._texts.append(text)
        return partial(Part(text=text, thought=thought or None))

    def end_text(
        self, *, signature: bytes | None = None, metadata: JsonObject | None = None, thought: bool = True
    ) -> None:
        """Makes the text so far a part of its own; without text, a signature is a part, of a
        thought or not.
        """
        if self._texts:
            self.parts.append(
                Part(
                    text="".join(self._texts),
                    thought=self._is_thought or None,
                    thought_signature=signature,
                    part_metadata=metadata,
                )
            )
            self._texts.clear()
        elif signature is not None:
            part = Part(
                text="",
                thought=thought or None,
                thought_signature=signature,
                part_metadata=metadata,
            )
            self.parts.append(part)

    def add_part(self, part: Part) -> LlmResponse:
        """Adds a part that is complete; a function call gets an id if it has none."""
        self.end_text()
        if part.function_call is not None and not part.function_call.id:
            part.function_call.id = new_function_call_id()
        self.parts.append(part)
        return partial(part)

    def begin_call(
        self, name: str, call_id: str | None, *, signature: bytes | None = None, metadata: JsonObject | None = None
    ) -> tuple[StreamedCall, LlmResponse]:
        """Begins a function call. It gets an id of its own if it has none, or another call's."""
        self.end_text()
        if not call_id or any(streamed_call.call.id == call_id for streamed_call in self._calls):
            call_id = new_function_call_id()

        streamed = StreamedCall(FunctionCall(id=call_id, name=name))
        self._calls.append(streamed)
        self.parts.append(
            Part(function_call=streamed.call, thought_signature=signature, part_metadata=metadata),
        )

        return streamed, partial(Part(function_call=FunctionCall(id=streamed.call.id, name=name, will_continue=True)))

    def add_arguments(self, streamed: StreamedCall, piece: str) -> LlmResponse:
        streamed.pieces.append(piece)
        return partial(
            Part(
                function_call=FunctionCall(
                    id=streamed.call.id,
                    name=streamed.call.name,
                    partial_args=[PartialArg(json_path="$", string_value=piece)],
                    will_continue=True,
                )
            )
        )

    def whole(self) -> LlmResponse:
        """The reply. A call whose arguments are no JSON object makes it an error:
        MALFORMED_FUNCTION_CALL or, where they were cut off, MAX_TOKENS. This call and those
        after it are left out.
        """
        self.end_text()

        response = self.response
        parts = self.parts
        for streamed in self._calls:
            try:
                streamed.call.args = streamed.decode()
            except (msgspec.DecodeError, UnicodeEncodeError):
                if response.finish_reason != FinishReason.MAX_TOKENS:
                    response.finish_reason = FinishReason.MALFORMED_FUNCTION_CALL

                response.error_code = response.finish_reason
                response.error_message = (
                    f"The model called {streamed.call.name!r} with arguments that aren't a JSON object: "
                    f"{streamed.text[:200]!r}"
                )
                cut = next(index for index, part in enumerate(parts) if part.function_call is streamed.call)
                parts = [part for index, part in enumerate(parts) if index < cut or part.function_call is None]
                break

        response.content = Content(role="model", parts=parts)
        if self._citations:
            response.citation_metadata = CitationMetadata(citations=self._citations)

        if response.error_code is None and not parts and response.finish_reason not in (None, FinishReason.STOP):
            response.error_code = response.finish_reason
            response.error_message = response.error_message or f"The model stopped with {response.finish_reason}"

        return response


def partial(part: Part) -> LlmResponse:
    return LlmResponse(content=Content(role="model", parts=[part]), partial=True)
