"""Input and output of a graph: the user's messages and the session's state become its input, and the values of its
channels become state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from typing import Any, cast

import msgspec
from langchain_core.messages import BaseMessage, SystemMessage
from langgraph.pregel import Pregel
from pydantic import BaseModel

from greenroom.agents.frameworks.langgraph.messages import messages_in, to_messages
from greenroom.errors import AgentConfigError, InvalidRequest, ToolError
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content
from greenroom.tools.result import to_plain

MESSAGES = "messages"
_ROOT = "__root__"
"""The only channel of a graph whose state is a list."""


class GraphInput:
    """The form of a graph's input, read from its schema."""

    def __init__(self, graph: Pregel[Any, Any, Any, Any], *, agent: str) -> None:
        self._agent = agent
        builder = cast("Any", graph).builder if hasattr(graph, "builder") else None
        if builder is not None:
            self.fields: Sequence[str] = list(builder.schemas[builder.input_schema])
            self._type = "array" if self.fields == [_ROOT] else "object"
        else:
            schema = graph.get_input_jsonschema()
            self.fields = list(schema.get("properties", {}))
            self._type = str(schema.get("type", "object"))

    def make(
        self, contents: Sequence[Content], *, instruction: str, state: JsonObject, before: Sequence[BaseMessage]
    ) -> Any:
        """The input for the user's messages.

        instruction: a system message to begin with. state: values for other fields. before: messages that the graph
        hasn't seen. Raises InvalidRequest for a text that isn't what the graph takes.
        """
        messages = to_messages(contents)
        if instruction:
            messages.insert(0, SystemMessage(instruction))
        if self._type == "array":
            return messages

        text = "\n".join(message.text for message in messages)
        if self._type == "string":
            return text

        fields = {name: value for name, value in state.items() if name in self.fields and name != MESSAGES}
        if MESSAGES in self.fields or not self.fields:
            return {**fields, MESSAGES: [*before, *messages]}
        return {**fields, **self._read(text, fields)}

    def _read(self, text: str, given: Mapping[str, JsonValue]) -> JsonObject:
        """The fields in a text: an object in JSON, or the value of the only field."""
        try:
            value: object = msgspec.json.decode(text)
        except msgspec.DecodeError:
            value = text
        if isinstance(value, dict):
            return cast("JsonObject", value)
        if len(self.fields) == 1:
            return {self.fields[0]: text}
        if given and not text:
            return {}
        raise InvalidRequest(
            f"The graph of agent {self._agent!r} takes no messages. Send a JSON object with its fields "
            f"{', '.join(self.fields)}"
        )


def changed_fields(state: Mapping[str, JsonValue], values: Mapping[str, Any], fields: Sequence[str]) -> JsonObject:
    """The fields of the session's state that differ from the graph's values, as a client has changed them."""
    return {
        name: state[name]
        for name in fields
        if name in state and (name not in values or state[name] != exported(values[name]))
    }


_SCALARS = (str, int, bool, float)
_EXPORTED = (BaseModel, dict, list, tuple, str, int, float)


def exported(value: Any) -> JsonValue:
    """A channel's value as JSON; None for one with messages, and for one that JSON can't have."""
    if type(value) in _SCALARS:
        return value
    if issubclass(type(value), _EXPORTED) or is_dataclass(value):
        if isinstance(value, BaseMessage) or next(messages_in(value), None) is not None:
            return None
        with suppress(ToolError):
            return to_plain(value)
    return None


def shown(value: Any) -> JsonValue:
    """A value of the app's code as JSON, or as text where JSON can't have it."""
    try:
        return to_plain(value)
    except ToolError:
        return str(value)


def state_delta(values: Mapping[str, Any], channels: Sequence[str], state: Mapping[str, JsonValue]) -> JsonObject:
    """The values of the output channels that differ from the session's state."""
    delta: JsonObject = {}
    for channel in channels:
        if channel.startswith("__") or channel not in values:
            continue
        value = exported(values[channel])
        if value is not None and state.get(channel) != value:
            delta[channel] = value
    return delta


def check_graph(graph: Any, *, agent: str) -> Pregel[Any, Any, Any, Any]:
    """The graph, compiled. Raises AgentConfigError for other objects."""
    from langgraph.graph import StateGraph

    compiled: Any = graph
    if isinstance(compiled, StateGraph):
        compiled = cast("Any", compiled).compile()
    if not isinstance(compiled, Pregel):
        raise AgentConfigError(f"Agent {agent!r}: graph must be a graph of LangGraph, not {type(compiled).__name__}")
    return cast("Pregel[Any, Any, Any, Any]", compiled)
