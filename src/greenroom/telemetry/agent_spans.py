"""The spans of agents, of workflows and their nodes, of model calls and of tool calls."""

from __future__ import annotations

import time
from collections.abc import Mapping, MutableSequence, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Protocol

from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.base import JsonValue, Record
from greenroom.records.content import Content, FunctionCall
from greenroom.records.event import Event
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.telemetry import names
from greenroom.telemetry.span import NO_SPAN, AttributeValue, Span


class PlainSpan(Span):
    """A span whose attributes and content are known when it begins."""

    __slots__ = ("_attributes", "_content")

    def __init__(
        self,
        parent: Span,
        name: str,
        attributes: dict[str, AttributeValue],
        content: dict[str, object] | None = None,
    ) -> None:
        super().__init__(parent.run, name)
        self._attributes = attributes
        self._content = content or {}
        parent.add(self)

    def attributes(self) -> dict[str, AttributeValue]:
        return self._attributes

    def content(self) -> dict[str, object]:
        return self._content

    def exported_attributes(self) -> dict[str, AttributeValue]:
        attributes = super().exported_attributes()
        if (agent_name := self._attributes.get(names.AGENT_NAME)) is not None:
            attributes[names.AGENT_ID] = self.run.agent_id(str(agent_name))
            attributes[names.PROVIDER] = self._provider_name()
        return attributes

    def _provider_name(self) -> str:
        """The provider of the agent's model; for an agent that called none, the framework's name."""
        for child in self.children:
            if type(child) is ModelCallSpan:
                return child.provider_name
        return names.SCOPE


class RemoteAgentSpan(PlainSpan):
    """A run of an agent on another server."""

    __slots__ = ()

    is_client = True


def operation_span(
    parent: Span,
    operation: str,
    name: str,
    described: Mapping[str, AttributeValue],
    *,
    kind: type[PlainSpan] = PlainSpan,
) -> PlainSpan:
    """A run of an agent or of a workflow, or one attempt at a node of a workflow."""
    conversation = {names.CONVERSATION_ID: parent.run.key.session_id}
    return kind(parent, f"{operation} {name}", {names.OPERATION: operation, **described, **conversation})


NEWEST_CONTENTS = 50
"""Number of a request's contents in a trace, so that its cost does not grow with the conversation."""


class SentRequest(Record, kw_only=True):
    """The part of a model request that is recorded."""

    model: str | None = None
    config: GenerateContentConfig
    contents: MutableSequence[Content]
    contents_left_out: int | None = None
    """Number of older contents of the request that are not recorded."""


class Provided(Protocol):
    """A model."""

    @property
    def provider_name(self) -> str: ...


class ModelCallSpan(Span):
    """The span of a model call.

    event_id: id of the event for the reply. The UI refuses a model call without one, even one that failed.
    first_reply_time: arrival of the first chunk. model: the agent's name for it. usage: None until reported.
    """

    is_client = True

    __slots__ = ("_agent_name", "_called", "_reply", "_sent", "event_id", "first_reply_time", "model", "usage")

    def __init__(self, parent: Span, *, agent_name: str, model: str | None, called: Provided) -> None:
        super().__init__(parent.run, names.CALL_LLM)
        self._agent_name = agent_name
        self._called = called
        self.model = model or ""
        self._sent: SentRequest | None = None
        self._reply: LlmResponse | None = None
        self.usage: GenerateContentResponseUsageMetadata | None = None
        self.event_id = ""
        self.first_reply_time = 0
        parent.add(self)

    def note_request(self, request: LlmRequest) -> None:
        """The request as sent to the model, after all callbacks."""
        contents = request.contents
        left_out = max(len(contents) - NEWEST_CONTENTS, 0) or None
        self._sent = SentRequest(
            model=request.model,
            config=request.config,
            contents=contents if left_out is None else contents[left_out:],
            contents_left_out=left_out,
        )

    def note_first_reply(self) -> None:
        self.first_reply_time = self.first_reply_time or time.time_ns()

    def note_reply(self, reply: LlmResponse) -> None:
        """A whole reply."""
        self._reply = reply
        if reply.usage_metadata is not None:
            self.usage = reply.usage_metadata
        if reply.error_code:
            self.fail(reply.error_code)

    def attributes(self) -> dict[str, AttributeValue]:
        run = self.run
        attributes: dict[str, AttributeValue] = {
            names.OPERATION: names.GENERATE_CONTENT,
            names.SYSTEM: names.SCOPE,
            names.REQUEST_MODEL: self.model,
            names.AGENT_NAME: self._agent_name,
            names.CONVERSATION_ID: run.key.session_id,
            names.INVOCATION_ID: run.run_id,
            names.SESSION_ID: run.key.session_id,
            names.EVENT_ID: self.event_id,
        }
        optional: dict[str, AttributeValue | None] = {}
        if self._sent is not None:
            optional[names.REQUEST_TOP_P] = self._sent.config.top_p
            optional[names.REQUEST_MAX_TOKENS] = self._sent.config.max_output_tokens
        if self._reply is not None and self._reply.finish_reason:
            optional[names.FINISH_REASONS] = [self._reply.finish_reason.lower()]
        if (usage := self.usage) is not None:
            optional[names.INPUT_TOKENS] = usage.input_tokens
            optional[names.OUTPUT_TOKENS] = usage.output_tokens
            optional[names.CACHED_TOKENS] = usage.cached_content_token_count
            optional[names.REASONING_TOKENS] = usage.thoughts_token_count

        attributes.update((name, value) for name, value in optional.items() if value is not None)
        return attributes

    @property
    def exported_name(self) -> str:
        return f"{names.GENERATE_CONTENT} {self.model}" if self.model else names.GENERATE_CONTENT

    def exported_attributes(self) -> dict[str, AttributeValue]:
        attributes = super().exported_attributes()
        attributes[names.AGENT_ID] = self.run.agent_id(self._agent_name)
        attributes[names.PROVIDER] = self.provider_name

        optional: dict[str, AttributeValue | None] = {}
        if self._sent is not None:
            optional[names.REQUEST_TEMPERATURE] = self._sent.config.temperature
        optional[names.RESPONSE_MODEL] = self.response_model
        if self.first_reply_time:
            optional[names.TIME_TO_FIRST_CHUNK] = (self.first_reply_time - self.start_time) / 1e9

        attributes.update((name, value) for name, value in optional.items() if value is not None)
        return attributes

    @property
    def newest_content(self) -> Content | None:
        """The newest content of the request."""
        return self._sent.contents[-1] if self._sent is not None and self._sent.contents else None

    @property
    def reply_content(self) -> Content | None:
        return None if self._reply is None else self._reply.content

    @property
    def response_model(self) -> str | None:
        """The model that answered, as the provider names it."""
        return None if self._reply is None else self._reply.model_version

    @property
    def provider_name(self) -> str:
        """The provider of the model by OpenTelemetry's conventions."""
        with suppress(Exception):  # of a model of the user's, or of one whose package is missing
            return self._called.provider_name
        return names.SCOPE

    def content(self) -> dict[str, object]:
        content: dict[str, object] = {}
        if self._sent is not None:
            content[names.LLM_REQUEST] = self._sent
        if self._reply is not None:
            content[names.LLM_RESPONSE] = self._reply
        return content


def model_call_span(
    parent: Span | None, *, agent_name: str, model: str | None, called: Provided
) -> AbstractContextManager[ModelCallSpan | None]:
    """The span of a call of the model `called`, which the request names `model`."""
    if parent is None:
        return NO_SPAN
    return ModelCallSpan(parent, agent_name=agent_name, model=model, called=called)


def sent_history_span(
    parent: Span | None, contents: Sequence[Content], *, event_id: str
) -> AbstractContextManager[PlainSpan | None]:
    """Sending a live connection's history to the model, as in ADK."""
    if parent is None:
        return NO_SPAN
    attributes: dict[str, AttributeValue] = {names.INVOCATION_ID: parent.run.run_id, names.EVENT_ID: event_id}
    return PlainSpan(parent, names.SEND_DATA, attributes, {names.DATA: list(contents[-NEWEST_CONTENTS:])})


NO_SUCH_TOOL = "ToolNotFound"

_NO_REQUEST: dict[str, object] = {names.LLM_REQUEST: {}, names.LLM_RESPONSE: {}}
"""ADK's UI expects both in each span of an event."""


class ToolCallSpan(Span):
    """The span of a tool call.

    event_id: id of the event with the response. tool_name: the name in the model's call. is_of_a_tool: False for a name
    that the model made up. mcp_method: the method by which a tool of an MCP server was called.
    """

    __slots__ = ("_call", "_description", "_kind", "_response", "event_id", "is_of_a_tool", "mcp_method", "tool_name")

    def __init__(self, parent: Span, call: FunctionCall, *, description: str, kind: str | None) -> None:
        """Begins the span. `kind` is the tool's class; None for a tool that doesn't exist."""
        self.tool_name = call.name or ""
        super().__init__(parent.run, f"{names.EXECUTE_TOOL} {self.tool_name}")
        self._call = call
        self._description = description
        self._kind = kind or ""
        self._response: JsonValue = None
        self.is_of_a_tool = kind is not None
        self.event_id = ""
        self.mcp_method: str | None = None
        if kind is None:
            self.fail(NO_SUCH_TOOL)
        parent.add(self)

    def note_response(self, response: JsonValue, error: Exception | None) -> None:
        self._response = response
        if error is not None:
            self.fail(error.__cause__ or error)

    def attributes(self) -> dict[str, AttributeValue]:
        attributes: dict[str, AttributeValue] = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL_NAME: self.tool_name,
            names.TOOL_DESCRIPTION: self._description,
            names.TOOL_TYPE: self._kind,
            names.TOOL_CALL_ID: self._call.id or "",
        }
        if self.event_id:
            attributes[names.EVENT_ID] = self.event_id
        return attributes

    def exported_attributes(self) -> dict[str, AttributeValue]:
        attributes = super().exported_attributes()
        if self.mcp_method is not None:
            attributes[names.MCP_METHOD] = self.mcp_method
        return attributes

    def content(self) -> dict[str, object]:
        content: dict[str, object] = {**_NO_REQUEST, names.TOOL_CALL_ARGS: self._call.args or {}}
        if self.end_time:
            content[names.TOOL_RESPONSE] = {} if self._response is None else self._response
        return content


def note_response_event(parent: Span, calls: Sequence[ToolCallSpan], event: Event) -> None:
    """Links the calls of a reply to the event that answers them. ADK adds a span for an event that answers several."""
    for call in calls:
        call.event_id = event.id

    if len(calls) > 1:
        attributes: dict[str, AttributeValue] = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL_NAME: names.MERGED_TOOLS,
            names.TOOL_DESCRIPTION: names.MERGED_TOOLS,
            names.TOOL_CALL_ID: event.id,
            names.EVENT_ID: event.id,
        }
        content: dict[str, object] = {**_NO_REQUEST, names.TOOL_CALL_ARGS: "N/A", names.TOOL_RESPONSE: event}
        merged = PlainSpan(parent, f"{names.EXECUTE_TOOL} (merged)", attributes, content)
        merged.start_time = min(call.start_time for call in calls)
        merged.end()
