"""What the span of a tool call holds."""

from __future__ import annotations

from greenroom.records.base import JsonValue
from greenroom.records.content import FunctionCall
from greenroom.records.event import Event
from greenroom.telemetry import names
from greenroom.telemetry.span import Span

NO_SUCH_TOOL = "ToolNotFound"


def begin_tool_call(parent: Span, call: FunctionCall, *, description: str, kind: str | None) -> Span:
    """kind: the tool's class; None for a tool that doesn't exist."""
    name = call.name or ""
    span = parent.child(f"{names.EXECUTE_TOOL} {name}")
    span.attributes = {
        names.OPERATION: names.EXECUTE_TOOL,
        names.TOOL_NAME: name,
        names.TOOL_DESCRIPTION: description,
        names.TOOL_TYPE: kind or "",
        names.TOOL_CALL_ID: call.id or "",
    }
    if kind is None:
        span.fail(NO_SUCH_TOOL)
    span.content = {names.LLM_REQUEST: {}, names.LLM_RESPONSE: {}, names.TOOL_CALL_ARGS: call.args or {}}
    return span


def note_response(span: Span, response: JsonValue, error: Exception | None) -> None:
    span.content[names.TOOL_RESPONSE] = {} if response is None else response
    if error is not None:
        span.fail(error.__cause__ or error)


def note_response_event(parent: Span, spans: list[Span], event: Event) -> None:
    """All calls of a reply are answered by one event. ADK adds a span for the event when it answers more than one."""
    for span in spans:
        span.attributes[names.EVENT_ID] = event.id
    if len(spans) < 2:
        return
    merged = parent.child(f"{names.EXECUTE_TOOL} (merged)")
    merged.start_time = min(span.start_time for span in spans)
    merged.attributes = {
        names.OPERATION: names.EXECUTE_TOOL,
        names.TOOL_NAME: names.MERGED_TOOLS,
        names.TOOL_DESCRIPTION: names.MERGED_TOOLS,
        names.TOOL_CALL_ID: event.id,
        names.EVENT_ID: event.id,
    }
    merged.content = {
        names.LLM_REQUEST: {},
        names.LLM_RESPONSE: {},
        names.TOOL_CALL_ARGS: "N/A",
        names.TOOL_RESPONSE: event,
    }
    merged.end()
