"""Attributes of an event that the app sets, computes, or lets the model choose."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from greenroom.errors import ToolError
from greenroom.invocation.user_context import ToolContext
from greenroom.tools.functions.signature import read_signature

ATTRIBUTES = ("type", "source", "datacontenttype", "subject", "time", "specversion", "id")
REQUIRED = ("bus", "type", "source")
_NEVER_OMITTED = (*REQUIRED, "id", "specversion")


class Absence(Enum):
    """The reasons for which an attribute has no value."""

    MISSING = "missing"
    """It was not given: the event has its default."""
    OMIT = "omit"
    """The event must not have it."""


MISSING = Absence.MISSING
OMIT = Absence.OMIT


@dataclass
class AgentProvided:
    """An attribute that the model chooses."""

    description: str
    """The model sees it."""
    default: Any = MISSING
    """For calls in which the model does not choose: a text, a function, or OMIT. Without it the model must choose."""

    @property
    def is_required(self) -> bool:
        return self.default is MISSING


Binding = str | Callable[..., Any] | AgentProvided | Absence | None
"""A text, a function of the payload, of the tool context or of both, or a choice of the model."""


@dataclass
class CloudEventAttributesBinding:
    """The attributes of a CloudEvent."""

    type: Binding
    source: Binding
    datacontenttype: Binding = MISSING
    subject: Binding = MISSING
    time: Binding = MISSING
    specversion: Binding = MISSING
    id: Binding = MISSING
    custom_attributes: Mapping[str, Binding] | None = None


class EventBindings:
    """All bindings of a tool by the name of the attribute, the bus included.

    Raises TypeError for a required attribute without a value, and ValueError for an invalid custom attribute.
    """

    def __init__(self, bus: Binding, attributes: CloudEventAttributesBinding) -> None:
        self._bindings: dict[str, Binding] = {"bus": bus}
        for name in ATTRIBUTES:
            self._bindings[name] = getattr(attributes, name)
        self._custom = dict(attributes.custom_attributes or {})
        self._check()

    def parameters(self) -> dict[str, AgentProvided]:
        """Those that the model chooses, by the names of parameters."""
        chosen = {**self._bindings, **self._custom}
        return {parameter_name(name): one for name, one in chosen.items() if isinstance(one, AgentProvided)}

    def values(self, given: Mapping[str, Any], payload: object, tool_context: ToolContext | None) -> dict[str, Any]:
        """The arguments of `publish_message`. given: by the names of parameters. Raises ToolError."""
        values: dict[str, Any] = {}
        for name, binding in self._bindings.items():
            value = self._value(name, binding, given, payload, tool_context)
            if value is OMIT and name in _NEVER_OMITTED:
                raise ToolError(f"The event must have the attribute {name!r}")
            if value is None and name in REQUIRED:
                raise ToolError(f"The event must have the attribute {name!r}")
            if value is OMIT and name in ("time", "datacontenttype"):
                values[name] = ""
            elif value is not OMIT and value is not None:
                values[name] = value

        custom: dict[str, str] = {}
        for name, binding in self._custom.items():
            value = self._value(name, binding, given, payload, tool_context)
            if value is not OMIT and value is not None:
                custom[name] = str(value)
        if custom:
            values["custom_attributes"] = custom
        return values

    def _value(
        self, name: str, binding: Binding, given: Mapping[str, Any], payload: object, tool_context: ToolContext | None
    ) -> Any:
        value: Any = binding
        if isinstance(binding, AgentProvided):
            value = given.get(parameter_name(name))
            if value is None:
                value = binding.default
        if callable(value):
            value = _call(value, payload, tool_context)
        return None if value is MISSING else value

    def _check(self) -> None:
        for name in REQUIRED:
            if self._bindings[name] in (None, MISSING, OMIT):
                raise TypeError(f"{name!r} needs a value")
        for name in _NEVER_OMITTED:
            if self._bindings[name] is OMIT:
                raise TypeError(f"An event must have the attribute {name!r}: it can't be OMIT")
        for name, binding in self._custom.items():
            if name in ATTRIBUTES:
                raise ValueError(f"The custom attribute {name!r} is an attribute of all events")
            if not is_attribute_name(name):
                raise ValueError(f"The custom attribute {name!r} must have lower-case letters and digits only")
            if binding is MISSING:
                raise TypeError(f"The custom attribute {name!r} needs a value")


def is_attribute_name(name: str) -> bool:
    return name.isascii() and name.isalnum() and name == name.lower()


def parameter_name(attribute: str) -> str:
    """A name that a parameter of a Python function can have."""
    if keyword.iskeyword(attribute) or attribute in ("self", "cls"):
        return f"{attribute}_"
    return attribute if attribute.isidentifier() else f"_{attribute}"


def _call(function: Callable[..., Any], payload: object, tool_context: ToolContext | None) -> Any:
    """Passes the payload, and the tool context to the parameter that is annotated with it or to the second one."""
    names = list(inspect.signature(function).parameters)
    context = read_signature(function, name="binding").context
    if context is None and len(names) == 2:
        context = names[1]
    if len(names) > 2:
        raise ToolError("A function for an attribute takes the payload and the tool context")
    return function(*(tool_context if name == context else payload for name in names))
