"""A finished span as it is stored and shown: attributes, and of what was said as much as is wanted."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from greenroom.records import wire
from greenroom.records.base import JsonValue
from greenroom.records.content import Content
from greenroom.telemetry import names
from greenroom.telemetry.model_call import SentRequest
from greenroom.telemetry.span import AttributeValue, Span
from greenroom.telemetry.trace import Trace

MOST_CONTENT_BYTES = 64 * 1024
"""Of one attribute. A longer model request is shown with fewer of its contents, anything else not at all."""

_OF_EVENTS = (names.CALL_LLM, names.SEND_DATA, names.EXECUTE_TOOL, "generate_content")


class SpanRecord(msgspec.Struct, kw_only=True):
    """Snake case, as ADK's UI reads it. Ids are hex text, times nanoseconds since the epoch; parent_span_id None for
    the root. No attribute is null."""

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str | None
    start_time: int
    end_time: int
    attributes: dict[str, AttributeValue]

    @property
    def event_id(self) -> str | None:
        """Of the event that the span is shown for; None for spans that only contain others."""
        value = self.attributes.get(names.EVENT_ID)
        return value if isinstance(value, str) and self.name.startswith(_OF_EVENTS) else None

    def flat(self) -> dict[str, AttributeValue]:
        return {**self.attributes, "trace_id": self.trace_id, "span_id": self.span_id}


def span_records(trace: Trace, *, with_content: bool) -> list[SpanRecord]:
    trace_id = f"{trace.run.trace_id:032x}"
    return [
        SpanRecord(
            name=span.name,
            trace_id=trace_id,
            span_id=f"{span.span_id:016x}",
            parent_span_id=_hex(trace.parent_id(parent)),
            start_time=span.start_time,
            end_time=span.end_time,
            attributes=all_attributes(span, with_content=with_content),
        )
        for span, parent in trace.spans()
    ]


def _hex(span_id: int | None) -> str | None:
    return None if span_id is None else f"{span_id:016x}"


def all_attributes(span: Span, *, with_content: bool) -> dict[str, AttributeValue]:
    """With what was said as JSON texts, `{}` for each when content is not wanted, as ADK has it."""
    attributes = span.attributes()
    if span.error is not None:
        attributes[names.ERROR_TYPE] = span.error
    for name, value in span.content().items():
        attributes[name] = _json(value) if with_content else "{}"
    return attributes


def with_known_parents(spans: Iterable[SpanRecord]) -> list[SpanRecord]:
    """In the order of their beginning. The UI hangs a span on its parent; one whose parent is the caller's, or is no
    longer kept, becomes a root."""
    spans = sorted(spans, key=lambda span: span.start_time)
    known = {span.span_id for span in spans}
    for span in spans:
        if span.parent_span_id not in known:
            span.parent_span_id = None
    return spans


def _json(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, SentRequest):
        return _json_of_request(value)
    data = _encode(value)
    return data.decode() if len(data) <= MOST_CONTENT_BYTES else "{}"


def _json_of_request(request: SentRequest) -> str:
    contents = [_without_blobs(content) for content in request.contents]
    left_out = request.contents_left_out or 0
    # A schema may be any object of the user's; ADK leaves it out too.
    config = msgspec.structs.replace(request.config, response_schema=None) if request.config is not None else None
    while True:
        shown = msgspec.structs.replace(request, config=config, contents=contents, contents_left_out=left_out or None)
        data = _encode(shown)
        if len(data) <= MOST_CONTENT_BYTES:
            return data.decode()
        if not contents:
            return "{}"
        half = (len(contents) + 1) // 2
        contents, left_out = contents[half:], left_out + half


def _without_blobs(content: Content) -> Content:
    parts = content.parts
    if not parts or all(part.inline_data is None for part in parts):
        return content
    return Content(role=content.role, parts=[part for part in parts if part.inline_data is None])


def _encode(value: JsonValue) -> bytes:
    try:
        return wire.encode(value)
    except (TypeError, ValueError, RecursionError):  # a user's value that has no JSON form
        return b"{}"
