"""A call of a tool, and the event that answers several."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.records.base import JsonValue
from greenroom.records.content import FunctionCall
from greenroom.records.event import Event
from greenroom.telemetry import names
from greenroom.telemetry.span import AttributeValue, Span

NO_SUCH_TOOL = "ToolNotFound"


class ToolCallSpan(Span):
    """event_id: of the event that answers the call."""

    __slots__ = ("_call", "_description", "_kind", "_response", "event_id")

    def __init__(self, parent: Span, call: FunctionCall, *, description: str, kind: str | None) -> None:
        """kind: the tool's class; None for a tool that doesn't exist."""
        super().__init__(parent.run)
        self._call = call
        self._description = description
        self._kind = kind
        self._response: JsonValue = None
        self.event_id = ""
        if kind is None:
            self.fail(NO_SUCH_TOOL)
        parent.add(self)

    def note_response(self, response: JsonValue, error: Exception | None) -> None:
        self._response = response
        if error is not None:
            self.fail(error.__cause__ or error)

    @property
    def tool_name(self) -> str:
        """As the model called it."""
        return self._call.name or ""

    @property
    def is_of_a_tool(self) -> bool:
        """Not of a name that the model made up."""
        return self._kind is not None

    @property
    def name(self) -> str:
        return f"{names.EXECUTE_TOOL} {self.tool_name}"

    def attributes(self) -> dict[str, AttributeValue]:
        attributes: dict[str, AttributeValue] = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL_NAME: self.tool_name,
            names.TOOL_DESCRIPTION: self._description,
            names.TOOL_TYPE: self._kind or "",
            names.TOOL_CALL_ID: self._call.id or "",
        }
        if self.event_id:
            attributes[names.EVENT_ID] = self.event_id
        return attributes

    def content(self) -> dict[str, object]:
        content: dict[str, object] = {
            names.LLM_REQUEST: {},
            names.LLM_RESPONSE: {},
            names.TOOL_CALL_ARGS: self._call.args or {},
        }
        if self.end_time:
            content[names.TOOL_RESPONSE] = {} if self._response is None else self._response
        return content


class MergedResponsesSpan(Span):
    """All calls of a reply are answered by one event. ADK adds a span for the event when it answers more than one."""

    __slots__ = ("_event",)

    def __init__(self, parent: Span, calls: Sequence[ToolCallSpan], event: Event) -> None:
        super().__init__(parent.run)
        self.start_time = min(call.start_time for call in calls)
        self._event = event
        self.end()
        parent.add(self)

    @property
    def name(self) -> str:
        return f"{names.EXECUTE_TOOL} (merged)"

    def attributes(self) -> dict[str, AttributeValue]:
        return {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL_NAME: names.MERGED_TOOLS,
            names.TOOL_DESCRIPTION: names.MERGED_TOOLS,
            names.TOOL_CALL_ID: self._event.id,
            names.EVENT_ID: self._event.id,
        }

    def content(self) -> dict[str, object]:
        return {
            names.LLM_REQUEST: {},
            names.LLM_RESPONSE: {},
            names.TOOL_CALL_ARGS: "N/A",
            names.TOOL_RESPONSE: self._event,
        }


def note_response_event(parent: Span, calls: Sequence[ToolCallSpan], event: Event) -> None:
    for call in calls:
        call.event_id = event.id
    if len(calls) > 1:
        MergedResponsesSpan(parent, calls, event)
