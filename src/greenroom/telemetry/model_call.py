"""What the span of a model call holds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

from greenroom.records.base import Record
from greenroom.records.content import Content
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.usage import GenerateContentResponseUsageMetadata
from greenroom.telemetry import names
from greenroom.telemetry.span import NO_SPAN, Span

NEWEST_CONTENTS = 50
"""So many contents of a request are kept, so that the cost of a trace does not grow with the conversation."""


class SentRequest(Record, kw_only=True):
    """contents_left_out: how many older ones the request had."""

    model: str | None = None
    config: GenerateContentConfig | None = None
    contents: list[Content]
    contents_left_out: int | None = None


def model_call_span(parent: Span | None, *, agent_name: str, model: str | None) -> AbstractContextManager[Span | None]:
    return NO_SPAN if parent is None else begin_model_call(parent, agent_name=agent_name, model=model)


def begin_model_call(parent: Span, *, agent_name: str, model: str | None) -> Span:
    span = parent.child(names.CALL_LLM)
    trace = span.trace
    span.attributes = {
        names.OPERATION: "generate_content",
        names.SYSTEM: names.SCOPE,
        names.REQUEST_MODEL: model or "",
        names.AGENT_NAME: agent_name,
        names.CONVERSATION_ID: trace.key.session_id,
        names.INVOCATION_ID: trace.run_id,
        names.SESSION_ID: trace.key.session_id,
    }
    return span


def note_event(span: Span, event_id: str) -> None:
    """The event that is going to hold the reply. The UI refuses a model call without one, even one that failed."""
    span.attributes[names.EVENT_ID] = event_id


def note_request(span: Span, request: LlmRequest) -> None:
    """As it goes to the model, after all callbacks."""
    config, contents = request.config, request.contents
    if config.top_p is not None:
        span.attributes[names.REQUEST_TOP_P] = config.top_p
    if config.max_output_tokens is not None:
        span.attributes[names.REQUEST_MAX_TOKENS] = config.max_output_tokens
    left_out = max(len(contents) - NEWEST_CONTENTS, 0)
    span.content[names.LLM_REQUEST] = SentRequest(
        model=request.model,
        config=config,
        contents=list(contents[left_out:] if left_out else contents),
        contents_left_out=left_out or None,
    )


def note_first_reply(span: Span) -> None:
    if not span.first_reply_time:
        span.first_reply_time = time.time_ns()


def note_reply(span: Span, reply: LlmResponse) -> None:
    """A whole reply."""
    attributes = span.attributes
    span.content[names.LLM_RESPONSE] = reply
    if reply.finish_reason:
        attributes[names.FINISH_REASONS] = [reply.finish_reason.lower()]
    if reply.error_code:
        span.fail(reply.error_code)
    if reply.usage_metadata is not None:
        note_usage(span, reply.usage_metadata)


def note_usage(span: Span, usage: GenerateContentResponseUsageMetadata) -> None:
    attributes = span.attributes
    attributes[names.INPUT_TOKENS] = (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0)
    attributes[names.OUTPUT_TOKENS] = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
    if usage.cached_content_token_count is not None:
        attributes[names.CACHED_TOKENS] = usage.cached_content_token_count
    if usage.thoughts_token_count is not None:
        attributes[names.REASONING_TOKENS] = usage.thoughts_token_count


def sent_history_span(
    parent: Span | None, contents: Sequence[Content], *, event_id: str
) -> AbstractContextManager[Span | None]:
    """The span of a live connection's history on its way to the model, as ADK has it."""
    if parent is None:
        return NO_SPAN
    span = parent.child(names.SEND_DATA)
    span.attributes = {names.INVOCATION_ID: span.trace.run_id, names.EVENT_ID: event_id}
    span.content[names.DATA] = list(contents[-NEWEST_CONTENTS:])
    return span
