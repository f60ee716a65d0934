"""Metadata of a model's answer: why it ended, tokens, sources, citations and log probabilities.

Source of names: the Gemini API.
"""

from __future__ import annotations

from enum import StrEnum
from operator import attrgetter
from typing import Self

from greenroom.records.base import JsonObject, OpenRecord, Record


class FinishReason(StrEnum):
    """Known values. The fields that hold them are plain strings, since services add new ones."""

    FINISH_REASON_UNSPECIFIED = "FINISH_REASON_UNSPECIFIED"
    STOP = "STOP"
    MAX_TOKENS = "MAX_TOKENS"
    SAFETY = "SAFETY"
    RECITATION = "RECITATION"
    LANGUAGE = "LANGUAGE"
    OTHER = "OTHER"
    BLOCKLIST = "BLOCKLIST"
    PROHIBITED_CONTENT = "PROHIBITED_CONTENT"
    SPII = "SPII"
    MALFORMED_FUNCTION_CALL = "MALFORMED_FUNCTION_CALL"
    IMAGE_SAFETY = "IMAGE_SAFETY"
    IMAGE_PROHIBITED_CONTENT = "IMAGE_PROHIBITED_CONTENT"
    IMAGE_OTHER = "IMAGE_OTHER"
    NO_IMAGE = "NO_IMAGE"
    IMAGE_RECITATION = "IMAGE_RECITATION"
    UNEXPECTED_TOOL_CALL = "UNEXPECTED_TOOL_CALL"
    TOO_MANY_TOOL_CALLS = "TOO_MANY_TOOL_CALLS"
    MISSING_THOUGHT_SIGNATURE = "MISSING_THOUGHT_SIGNATURE"
    MALFORMED_RESPONSE = "MALFORMED_RESPONSE"
    ESCALATION = "ESCALATION"
    CONTINUATION = "CONTINUATION"
    MODEL_ARMOR = "MODEL_ARMOR"


class ModalityTokenCount(Record, kw_only=True):
    """Token counts of one modality."""

    modality: str | None = None
    """TEXT, IMAGE, AUDIO, VIDEO or DOCUMENT."""
    token_count: int | None = None
    """Tokens of this modality."""


class GenerateContentResponseUsageMetadata(Record, kw_only=True):
    """Token counts of a model call."""

    prompt_token_count: int | None = None
    """Tokens of the prompt, with the cached ones."""
    candidates_token_count: int | None = None
    """Tokens of the answer."""
    total_token_count: int | None = None
    """All tokens of the call."""
    thoughts_token_count: int | None = None
    """Tokens of the model's reasoning."""
    cached_content_token_count: int | None = None
    """Tokens of the prompt that were read from a cache."""
    tool_use_prompt_token_count: int | None = None
    """Tokens of results of the provider's tools."""
    prompt_tokens_details: list[ModalityTokenCount] | None = None
    """The prompt's tokens by modality."""
    candidates_tokens_details: list[ModalityTokenCount] | None = None
    """The answer's tokens by modality."""
    cache_tokens_details: list[ModalityTokenCount] | None = None
    """The cached tokens by modality."""
    tool_use_prompt_tokens_details: list[ModalityTokenCount] | None = None
    """Tokens of tool results by modality."""
    traffic_type: str | None = None
    """The provider's billing class of the call."""

    @property
    def input_tokens(self) -> int:
        """Tokens of the prompt and of the results of the provider's tools."""
        return (self.prompt_token_count or 0) + (self.tool_use_prompt_token_count or 0)

    @property
    def output_tokens(self) -> int:
        """Tokens of the answer and of the reasoning."""
        return (self.candidates_token_count or 0) + (self.thoughts_token_count or 0)

    @classmethod
    def counts_of(cls, usage: GenerateContentResponseUsageMetadata) -> Self:
        """A copy without the details by modality."""
        return cls(**dict(zip(_COUNTS, _counts(usage), strict=True)))

    def add(self, more: GenerateContentResponseUsageMetadata) -> None:
        """Adds the counts of `more`; details by modality are not added."""
        for name, count in zip(_COUNTS, _counts(more), strict=True):
            if count is not None:
                setattr(self, name, (getattr(self, name) or 0) + count)


_COUNTS = [name for name in GenerateContentResponseUsageMetadata.__struct_fields__ if name.endswith("_count")]
_counts = attrgetter(*_COUNTS)


class GroundingChunkWeb(OpenRecord):
    uri: str | None = None
    title: str | None = None
    domain: str | None = None


class GroundingChunkRetrievedContext(OpenRecord):
    uri: str | None = None
    title: str | None = None
    text: str | None = None
    document_name: str | None = None
    rag_chunk: JsonObject | None = None


class GroundingChunkMaps(OpenRecord):
    uri: str | None = None
    title: str | None = None
    text: str | None = None
    place_id: str | None = None


class GroundingChunk(OpenRecord):
    web: GroundingChunkWeb | None = None
    retrieved_context: GroundingChunkRetrievedContext | None = None
    maps: GroundingChunkMaps | None = None
    image: JsonObject | None = None


class Segment(OpenRecord):
    """Position in the answer: the part's index, and bytes in its text."""

    part_index: int | None = None
    start_index: int | None = None
    end_index: int | None = None
    text: str | None = None


class GroundingSupport(OpenRecord):
    """The chunks, by index, that support a segment of the answer."""

    segment: Segment | None = None
    grounding_chunk_indices: list[int] | None = None
    confidence_scores: list[float] | None = None


class SearchEntryPoint(OpenRecord):
    rendered_content: str | None = None
    sdk_blob: str | None = None


class GroundingMetadata(OpenRecord):
    grounding_chunks: list[GroundingChunk] | None = None
    grounding_supports: list[GroundingSupport] | None = None
    web_search_queries: list[str] | None = None
    image_search_queries: list[str] | None = None
    retrieval_queries: list[str] | None = None
    search_entry_point: SearchEntryPoint | None = None
    retrieval_metadata: JsonObject | None = None
    google_maps_widget_context_token: str | None = None


class Citation(OpenRecord):
    uri: str | None = None
    title: str | None = None
    license: str | None = None
    start_index: int | None = None
    end_index: int | None = None
    publication_date: JsonObject | None = None


class CitationMetadata(OpenRecord):
    citations: list[Citation] | None = None


class LogprobsResultCandidate(OpenRecord):
    token: str | None = None
    token_id: int | None = None
    log_probability: float | None = None


class LogprobsResultTopCandidates(OpenRecord):
    candidates: list[LogprobsResultCandidate] | None = None


class LogprobsResult(OpenRecord):
    """The log probabilities of an answer, one entry per token."""

    chosen_candidates: list[LogprobsResultCandidate] | None = None
    top_candidates: list[LogprobsResultTopCandidates] | None = None
    log_probability_sum: float | None = None
