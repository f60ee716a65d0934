"""Builds replies from the chunks of Gemini's SDK."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from greenroom.models.partial_args import write_partial_args
from greenroom.models.reply import ModelReply, nested, partial
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

_TEXT_FIELDS = {"text", "thought", "thoughtSignature"}


class ContentReply(ModelReply):
    """A `GenerateContentResponse` as JSON, or chunks of one."""

    def __init__(self) -> None:
        super().__init__()
        self._open: FunctionCall | None = None
        self._usage: JsonObject | None = None

    def add(self, chunk: JsonObject) -> Iterator[LlmResponse]:
        """Adds the first candidate of a chunk; others are ignored."""
        response = self.response
        response.model_version = chunk.get("modelVersion") or response.model_version
        self._usage = chunk.get("usageMetadata") or self._usage

        if not chunk.get("candidates"):
            feedback: JsonObject = chunk.get("promptFeedback") or {}
            if feedback.get("blockReason"):
                self.is_complete = True
                response.error_code = response.finish_reason = feedback["blockReason"]
                block_message = feedback.get("blockReasonMessage")
                response.error_message = block_message or f"The prompt was blocked: {response.error_code}"
            return

        candidate: JsonObject = chunk["candidates"][0]
        for part in nested(candidate, "content").get("parts") or ():
            shown = self.take_part(part)
            if shown is not None:
                yield shown

        self._note(candidate)

    def whole(self) -> LlmResponse:
        if self.response.finish_reason is None and self.is_empty:
            self.response.finish_reason = FinishReason.OTHER
        if self._usage is not None:  # each chunk has the counts so far
            self.response.usage_metadata = GenerateContentResponseUsageMetadata.model_validate(self._usage)
        return super().whole()

    def _note(self, candidate: JsonObject) -> None:
        response = self.response
        if candidate.get("finishReason") is not None:
            self.is_complete = True
            response.finish_reason = candidate["finishReason"]
            response.error_message = candidate.get("finishMessage") or response.error_message

        if candidate.get("groundingMetadata") is not None:
            response.grounding_metadata = GroundingMetadata(candidate["groundingMetadata"])

        if citations := candidate.get("citationMetadata"):
            if "citationSources" in citations:  # the Gemini API's name
                citations = {"citations": citations["citationSources"]}
            response.citation_metadata = CitationMetadata(citations)

        if candidate.get("logprobsResult") is not None:
            response.logprobs_result = LogprobsResult(candidate["logprobsResult"])

        if candidate.get("avgLogprobs") is not None:
            response.avg_logprobs = candidate["avgLogprobs"]

        more = {name: candidate[name] for name in ("urlContextMetadata", "safetyRatings") if candidate.get(name)}
        if more:
            response.custom_metadata = {"gemini": more}

    def take_part(self, part: JsonObject) -> LlmResponse | None:
        text: str | None = part.get("text")
        if text is not None and part.keys() <= _TEXT_FIELDS:
            is_thought = bool(part.get("thought"))
            if text:
                shown = self.add_text(text, thought=is_thought)
            else:
                shown = None

            if part.get("thoughtSignature") is not None:
                self.end_text(
                    signature=Part.model_validate(part).thought_signature,
                    thought=is_thought,
                )

            return shown

        converted = Part.model_validate(part)
        call = converted.function_call
        if call is None:
            return self.add_part(converted)
        if self._open is not None and not call.name:
            return self._continue_call(self._open, call)

        self._open = None

        if call.partial_args is None and not call.will_continue:
            return self.add_part(converted)

        call.id = call.id or new_function_call_id()
        shown = msgspec.structs.replace(converted, function_call=msgspec.structs.replace(call))
        pieces = call.partial_args
        call.partial_args = None
        call.will_continue = None
        args: JsonObject = call.args or {}
        write_partial_args(args, pieces or ())
        call.args = args
        self._open = call
        self.add_part(converted)

        return partial(shown)

    def _continue_call(self, opened: FunctionCall, piece: FunctionCall) -> LlmResponse | None:
        assert opened.args is not None
        write_partial_args(opened.args, piece.partial_args or ())
        if not piece.will_continue:
            self._open = None
        piece.id = opened.id
        piece.name = opened.name
        return partial(Part(function_call=piece))


def continuation_token(chunk: JsonObject) -> str | None:
    for candidate in (chunk.get("candidates") or ())[:1]:
        if candidate.get("finishReason") == "CONTINUATION":
            return candidate.get("continuationToken")
    return None


def plain(record: Any) -> JsonObject:
    return record.model_dump(mode="json", by_alias=True, exclude_none=True)


def to_record(given: Any, kind: type[Any]) -> Any:
    return kind.model_validate(plain(given))  # reads the URL-safe base64 that the SDK writes
