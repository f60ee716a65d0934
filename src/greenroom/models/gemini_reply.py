"""Builds replies out of what Gemini's SDK gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from greenroom.models.partial_args import write_partial_args
from greenroom.models.reply import Reply, partial
from greenroom.records.answer_metadata import (
    CitationMetadata,
    FinishReason,
    GenerateContentResponseUsageMetadata,
    GroundingMetadata,
    LogprobsResult,
)
from greenroom.records.base import JsonObject
from greenroom.records.content import FunctionCall, Part
from greenroom.records.identifiers import new_function_call_id
from greenroom.records.model_exchange import LlmResponse


class ContentReply(Reply):
    """A `GenerateContentResponse`, or chunks of one."""

    def __init__(self) -> None:
        super().__init__()
        self.is_complete = False
        self._open: FunctionCall | None = None
        self._usage: Any = None

    def add(self, chunk: Any) -> Iterator[LlmResponse]:
        """The partial responses of a chunk. Only the first candidate is read."""
        response = self.response
        response.model_version = chunk.model_version or response.model_version
        self._usage = chunk.usage_metadata or self._usage
        feedback = chunk.prompt_feedback
        if not chunk.candidates:
            if feedback is not None and feedback.block_reason is not None:
                self.is_complete = True
                response.error_code = response.finish_reason = str(feedback.block_reason.value)
                said = feedback.block_reason_message
                response.error_message = said or f"The prompt was blocked: {response.error_code}"
            return
        candidate = chunk.candidates[0]
        for part in (candidate.content.parts if candidate.content else None) or ():
            shown = self.take_part(part)
            if shown is not None:
                yield shown
        self._note(candidate)

    def whole(self) -> LlmResponse:
        if self.response.finish_reason is None and self.is_empty:
            self.response.finish_reason = FinishReason.OTHER
        if self._usage is not None:  # each chunk has the counts so far
            self.response.usage_metadata = to_record(self._usage, GenerateContentResponseUsageMetadata)
        return super().whole()

    def _note(self, candidate: Any) -> None:
        response = self.response
        if candidate.finish_reason is not None:
            self.is_complete = True
            response.finish_reason = str(candidate.finish_reason.value)
            response.error_message = candidate.finish_message or response.error_message
        if candidate.grounding_metadata is not None:
            response.grounding_metadata = GroundingMetadata(plain(candidate.grounding_metadata))
        if candidate.citation_metadata is not None:
            response.citation_metadata = CitationMetadata(plain(candidate.citation_metadata))
        if candidate.logprobs_result is not None:
            response.logprobs_result = LogprobsResult(plain(candidate.logprobs_result))
        if candidate.avg_logprobs is not None:
            response.avg_logprobs = candidate.avg_logprobs
        more: JsonObject = {}
        if candidate.url_context_metadata is not None:
            more["urlContextMetadata"] = plain(candidate.url_context_metadata)
        if candidate.safety_ratings:
            more["safetyRatings"] = [plain(rating) for rating in candidate.safety_ratings]
        if more:
            response.custom_metadata = {"gemini": more}

    def take_part(self, part: Any) -> LlmResponse | None:
        if part.text is not None and part.model_fields_set <= {"text", "thought", "thought_signature"}:
            shown = self.add_text(part.text, thought=bool(part.thought)) if part.text else None
            if part.thought_signature is not None:
                self.end_text(signature=part.thought_signature, thought=bool(part.thought))
            return shown
        made = to_record(part, Part)
        call = made.function_call
        if call is None:
            return self.add_part(made)
        if self._open is not None and not call.name:
            return self._go_on_with(self._open, call)
        self._open = None
        if call.partial_args is None and not call.will_continue:
            return self.add_part(made)
        call.id = call.id or new_function_call_id()
        shown = msgspec.structs.replace(made, function_call=msgspec.structs.replace(call))
        pieces, call.partial_args, call.will_continue = call.partial_args, None, None
        args: JsonObject = call.args or {}
        write_partial_args(args, pieces or ())
        call.args = args
        self._open = call
        self.add_part(made)
        return partial(shown)

    def _go_on_with(self, opened: FunctionCall, piece: FunctionCall) -> LlmResponse | None:
        assert opened.args is not None
        write_partial_args(opened.args, piece.partial_args or ())
        if not piece.will_continue:
            self._open = None
        piece.id, piece.name = opened.id, opened.name
        return partial(Part(function_call=piece))


def plain(record: Any) -> JsonObject:
    return record.model_dump(mode="json", by_alias=True, exclude_none=True)


def to_record(given: Any, kind: type[Any]) -> Any:
    return kind.model_validate(plain(given))  # reads the URL-safe base64 that the SDK writes
