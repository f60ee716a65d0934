"""A finished span as it is stored and shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content
from greenroom.telemetry import names
from greenroom.telemetry.agent_spans import ModelCallSpan, SentRequest
from greenroom.telemetry.span import AttributeValue, Span, Trace

MAX_CONTENT_BYTES = 64 * 1024
"""Of one attribute. A longer model request is shown with fewer of its contents, anything else not at all."""

_OF_EVENTS = (names.CALL_LLM, names.SEND_DATA, names.EXECUTE_TOOL, names.GENERATE_CONTENT)


class SpanRecord(msgspec.Struct, kw_only=True):
    """A span of a trace. Its fields are snake_case, as ADK's UI reads them."""

    name: str
    """The operation."""
    trace_id: str
    """Id of the trace, as hex text."""
    span_id: str
    """Id of the span, as hex text."""
    parent_span_id: str | None
    """Id of the parent; None for the root."""
    start_time: int
    """Nanoseconds since the epoch."""
    end_time: int
    """Nanoseconds since the epoch."""
    attributes: dict[str, AttributeValue]
    """Attributes by name; no value is null."""
    logs: list[JsonObject] = []
    """Filled in when the span is shown, never null."""

    @property
    def event_id(self) -> str | None:
        """The id of the event that the span is shown for; None for spans that only contain others."""
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
    """The attributes, with requests, replies, arguments and results as JSON texts. Without content,
    each is `{}`, as in ADK."""
    attributes = span.attributes()
    if span.error is not None:
        attributes[names.ERROR_TYPE] = span.error
    for name, value in span.content().items():
        attributes[name] = _json(_redacted(span, value)) if with_content else "{}"
    return attributes


def _redacted(span: Span, value: object) -> object:
    redact = span.run.redact
    if redact is None:
        return value
    if isinstance(value, SentRequest):
        return msgspec.structs.replace(value, contents=[redact(content) for content in value.contents])
    return redact(value)


def spans_for_display(spans: Iterable[SpanRecord]) -> list[SpanRecord]:
    """Sorted by start time, with logs. A span whose parent is the caller's, or is no longer stored,
    becomes a root: the UI hangs each span on its parent."""
    spans = sorted(spans, key=lambda span: span.start_time)
    span_ids = {span.span_id for span in spans}
    for span in spans:
        if span.parent_span_id not in span_ids:
            span.parent_span_id = None
        if span.name == names.CALL_LLM:
            span.logs = _completion_logs(span.attributes)
    return spans


def _completion_logs(attributes: dict[str, AttributeValue]) -> list[JsonObject]:
    """The request and the reply as OpenTelemetry's event of a completion; none if content isn't traced.

    Without it, ADK's UI falls back to the attributes, in which it reports each change of the system instruction.
    """
    shown = _messages(attributes)
    return [{"event_name": "gen_ai.client.inference.operation.details", "attributes": shown}] if shown else []


def _messages(attributes: dict[str, AttributeValue]) -> JsonObject:
    """The request and the reply of a model call by OpenTelemetry's conventions; empty if content isn't traced."""
    request, reply = (_decoded(attributes.get(name)) for name in (names.LLM_REQUEST, names.LLM_RESPONSE))
    if not request:
        return {}

    config = _object(request, "config")
    system = config.get("systemInstruction")
    if isinstance(system, str):
        instruction: JsonObject = {"parts": [{"text": system}]}
    else:
        instruction = _object(config, "systemInstruction")
    declarations = [each for tool in _objects(config, "tools") for each in _objects(tool, "functionDeclarations")]
    shown: JsonObject = {
        names.SYSTEM_INSTRUCTIONS: _message_parts(instruction),
        names.INPUT_MESSAGES: [_message(content) for content in _objects(request, "contents")],
        names.TOOL_DEFINITIONS: [_definition(declaration) for declaration in declarations],
    }
    if reply:
        parts = _message_parts(_object(reply, "content"))
        finish_reason = str(reply.get("finishReason") or "").lower()
        shown[names.OUTPUT_MESSAGES] = [{"role": "assistant", "parts": parts, "finish_reason": finish_reason}]

    return shown


def content_attributes(span: Span, attributes: dict[str, AttributeValue]) -> dict[str, AttributeValue]:
    """The content of a span in the attributes of OpenTelemetry's conventions, as JSON texts. Of a run or an agent: the
    message that its first model call answers, and the reply of its last one.

    attributes: the span's others.
    """
    if names.TOOL_CALL_ARGS in attributes:
        content = {names.CALL_ARGUMENTS: attributes[names.TOOL_CALL_ARGS]}
        if names.TOOL_RESPONSE in attributes:
            content[names.CALL_RESULT] = attributes[names.TOOL_RESPONSE]
        return content

    messages = _messages(attributes) or _conversation(list(_model_calls(span)))
    return {name: _encode(value).decode() for name, value in messages.items()}


def _model_calls(span: Span) -> Iterator[ModelCallSpan]:
    for child in span.children:
        if isinstance(child, ModelCallSpan):
            yield child
        else:
            yield from _model_calls(child)


def _conversation(calls: Sequence[ModelCallSpan]) -> JsonObject:
    messages: JsonObject = {}
    for name, content in (
        (names.INPUT_MESSAGES, calls[0].newest_content if calls else None),
        (names.OUTPUT_MESSAGES, calls[-1].reply_content if calls else None),
    ):
        if content is not None:
            redact = calls[0].run.redact
            data = _encode(_without_blobs(content if redact is None else redact(content)))
            if len(data) <= MAX_CONTENT_BYTES:
                messages[name] = [_message(msgspec.json.decode(data))]
    return messages


def _definition(declaration: JsonObject) -> JsonObject:
    parameters = declaration.get("parametersJsonSchema") or declaration.get("parameters")
    definition = {"type": "function", "name": declaration.get("name") or "", "parameters": parameters}
    return {**definition, "description": declaration.get("description") or ""}


def _message(content: JsonObject) -> JsonObject:
    parts = _message_parts(content)
    if content.get("role") == "model":
        role = "assistant"
    elif any(part["type"] == "tool_call_response" for part in parts):
        role = "tool"
    else:
        role = "user"
    return {"role": role, "parts": parts}


def _message_parts(content: JsonObject) -> list[JsonObject]:
    return [_message_part(part) for part in _objects(content, "parts")]


def _message_part(part: JsonObject) -> JsonObject:
    if call := _object(part, "functionCall"):
        return {
            "type": "tool_call",
            "id": call.get("id"),
            "name": call.get("name") or "",
            "arguments": call.get("args"),
        }

    if response := _object(part, "functionResponse"):
        return {"type": "tool_call_response", "id": response.get("id"), "response": response.get("response")}
    if blob := _object(part, "inlineData"):
        return {"type": "blob", "mime_type": blob.get("mimeType") or "", "data": blob.get("data")}
    if file := _object(part, "fileData"):
        return {"type": "file_data", "mime_type": file.get("mimeType") or "", "uri": file.get("fileUri") or ""}

    text = part.get("text")
    return {"type": "text", "content": _encode(part).decode() if text is None else text}


def _object(parent: JsonObject, key: str) -> JsonObject:
    return parent.get(key) or {}


def _objects(parent: JsonObject, key: str) -> list[JsonObject]:
    return parent.get(key) or []


def _decoded(text: AttributeValue | None) -> JsonObject:
    return msgspec.json.decode(text) if isinstance(text, str) else {}


def _json(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, SentRequest):
        return _json_of_request(value)
    data = _encode(value)
    return data.decode() if len(data) <= MAX_CONTENT_BYTES else "{}"


def _json_of_request(request: SentRequest) -> str:
    contents = [_without_blobs(content) for content in request.contents]
    left_out = request.contents_left_out or 0
    # A schema may be any object of the user's; ADK leaves it out too.
    config = msgspec.structs.replace(request.config, response_schema=None)

    while True:
        shown = msgspec.structs.replace(request, config=config, contents=contents, contents_left_out=left_out or None)
        data = _encode(shown)
        if len(data) <= MAX_CONTENT_BYTES:
            return data.decode()
        if not contents:
            return "{}"
        half = (len(contents) + 1) // 2
        contents = contents[half:]
        left_out += half


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
