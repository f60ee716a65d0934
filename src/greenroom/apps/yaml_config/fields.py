"""The fields of records, and the parameters of functions, with their resolved types."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast, get_args, get_type_hints

import msgspec

from greenroom.apps.yaml_config.document import ConfigNode


@dataclasses.dataclass(frozen=True)
class TypedField:
    type: Any
    is_required: bool

    @property
    def may_be_null(self) -> bool:
        return self.type in (Any, object) or type(None) in get_args(self.type)


@functools.lru_cache(maxsize=64)  # bounded, so that the classes of a reloaded app can be freed
def fields_of(record: type[Any]) -> Mapping[str, TypedField]:
    """Returns the fields of a Struct or a dataclass by Python name, without those that aren't arguments of its
    constructor.
    """
    hints = _hints(record, *record.__mro__)
    if issubclass(record, msgspec.Struct):
        return {field.name: TypedField(hints[field.name], field.required) for field in msgspec.structs.fields(record)}

    missing = dataclasses.MISSING
    return {
        field.name: TypedField(
            hints.get(field.name, Any), field.default is missing and field.default_factory is missing
        )
        for field in dataclasses.fields(record)
        if field.init
    }


def parameters_of(function: Callable[..., Any]) -> dict[str, TypedField]:
    """Returns the parameters that can be passed by name; `**` means all others, if they can."""
    called: Any
    if isinstance(function, type):
        called = function.__init__
    else:
        called = function

    hints = _hints(called, inspect.unwrap(called))
    parameters: dict[str, TypedField] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            parameters["**"] = TypedField(Any, is_required=False)
        elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            parameters[parameter.name] = TypedField(
                hints.get(parameter.name, Any),
                parameter.default is parameter.empty,
            )

    return parameters


def _hints(annotated: Any, *holders: Any) -> dict[str, Any]:
    """Resolves annotations to types. If one can only be resolved by type checkers, the others still count."""
    try:
        return get_type_hints(annotated, include_extras=True)
    except (NameError, TypeError, AttributeError):
        pass

    hints: dict[str, Any] = {}
    for holder in reversed(holders):
        names = vars(sys.modules.get(getattr(holder, "__module__", ""), object))
        for name, annotation in cast("dict[str, Any]", getattr(holder, "__annotations__", {})).items():
            stand_in = type("", (), {"__annotations__": {name: annotation}})
            try:
                hints |= get_type_hints(stand_in, dict(names), include_extras=True)
            except (NameError, TypeError, AttributeError):
                hints.pop(name, None)

    return hints


def check_required(
    node: ConfigNode,
    fields: Mapping[str, TypedField],
    values: Collection[str],
    *,
    what: str,
) -> None:
    for name, field in fields.items():
        if field.is_required and name not in values:
            raise node.error(f"{name!r} is missing {what}")
