"""Token counts, and why a model stopped."""

from __future__ import annotations

from enum import StrEnum

from greenroom.records.base import Record


class FinishReason(StrEnum):
    """Known values; fields that hold one are plain strings, since services add new ones."""

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
    modality: str | None = None
    token_count: int | None = None


class GenerateContentResponseUsageMetadata(Record, kw_only=True):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    total_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    prompt_tokens_details: list[ModalityTokenCount] | None = None
    candidates_tokens_details: list[ModalityTokenCount] | None = None
    cache_tokens_details: list[ModalityTokenCount] | None = None
    tool_use_prompt_tokens_details: list[ModalityTokenCount] | None = None
    traffic_type: str | None = None
