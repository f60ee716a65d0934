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
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionCall, Part, PartialArg
from greenroom.records.identifiers import new_function_call_id
from greenroom.records.model_exchange import LlmResponse

_FINISH_REASONS = {
    **dict.fromkeys(("stop", "tool_calls", "function_call", "end_turn", "tool_use", "stop_sequence", "completed",
                     "pause_turn"), FinishReason.STOP),
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "model_context_window_exceeded"),
                    FinishReason.MAX_TOKENS),
    **dict.fromkeys(("content_filter", "refusal", "safety"), FinishReason.SAFETY),
}  # fmt: skip


def nested(given: JsonObject, name: str) -> JsonObject:
    """The object in a field, empty where it is null or left out."""
    return given.get(name) or {}


def finish_reason(said: str | None) -> FinishReason:
    """Of what vendors other than Google call it."""
    return _FINISH_REASONS.get((said or "").lower(), FinishReason.OTHER)


def token_usage(
    prompt: int | None,
    output: int | None,
    total: int | None = None,
    *,
    thoughts: int | None = None,
    cached: int | None = None,
) -> GenerateContentResponseUsageMetadata:
    """As the Gemini API counts: thoughts, which other vendors count as output, are not among the candidates' tokens."""
    prompt, output = prompt or 0, output or 0
    return GenerateContentResponseUsageMetadata(
        prompt_token_count=prompt,
        candidates_token_count=output - (thoughts or 0),
        total_token_count=prompt + output if total is None else total,
        thoughts_token_count=thoughts or None,
        cached_content_token_count=cached or None,
    )


class StreamedCall:
    """A function call whose arguments arrive as pieces of JSON text."""

    __slots__ = ("call", "pieces")

    def __init__(self, call: FunctionCall) -> None:
        self.call, self.pieces = call, list[str]()

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Reply:
    """Each piece added gives the partial response that shows it; `whole` gives the response with everything.

    Replies that aren't streamed are built the same way, so that both ways give equal responses. `response` takes the
    metadata: finish reason, usage, version and so on. Partial calls have `will_continue`, and their `partial_args` the
    path `$` with a piece of the arguments' JSON text. is_complete: the provider has said how the reply ended.
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

    def add_text(self, text: str, *, thought: bool = False) -> LlmResponse:
        if self._texts and self._is_thought != thought:
            self.end_text()
        self._is_thought = thought
        self._texts.append(text)
        return partial(Part(text=text, thought=thought or None))

    def end_text(
        self, *, signature: bytes | None = None, metadata: JsonObject | None = None, thought: bool = True
    ) -> None:
        """Makes the text so far a part of its own; without text, a signature is a part, of a thought or not."""
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
            part = Part(text="", thought=thought or None, thought_signature=signature, part_metadata=metadata)
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
        self.end_text()
        streamed = StreamedCall(FunctionCall(id=call_id or new_function_call_id(), name=name))
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
        """The reply. A call whose arguments are no JSON object makes it an error: MALFORMED_FUNCTION_CALL or, where
        they were cut off, MAX_TOKENS. This call and those after it are left out."""
        self.end_text()
        response = self.response
        parts = self.parts
        for streamed in self._calls:
            try:
                text = streamed.text
                streamed.call.args = msgspec.json.decode(text, type=JsonObject) if text.strip() else {}
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
