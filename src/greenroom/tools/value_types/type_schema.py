"""Python types as models see them: their JSON Schema, and values to and from JSON."""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import sys
from collections.abc import Iterable, Iterator
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from greenroom.errors import AgentConfigError
from greenroom.records.base import JsonObject, JsonValue, Record
from greenroom.records.tool_declaration import FunctionDeclaration, Schema
from greenroom.tools.value_types.plain_types import REF, InvalidValue, PlainType, TypeSchema


def type_schema(tp: object) -> TypeSchema:
    """Takes any annotation that has a JSON form, a JSON Schema (a dict), or a `Schema` record.

    Raises AgentConfigError when the type has no JSON Schema. pydantic serves types that are or
    contain pydantic's, and, where it is installed, the few unions that msgspec can't tell apart;
    without either it is never imported.
    """
    if isinstance(tp, Schema):
        return _GivenSchema(FunctionDeclaration(parameters=tp).json_schema())
    if isinstance(tp, dict):
        return _GivenSchema(cast("JsonObject", tp))

    tp = _with_lists(tp)
    if tp is object:
        tp = Any

    if _needs_pydantic(tp):
        return _pydantic_type(tp)

    try:
        return PlainType(tp)
    except AgentConfigError as refusal:
        if importlib.util.find_spec("pydantic") is None or any(_is_record(part) for part in _parts(tp, set())):
            raise
        try:
            return _pydantic_type(tp)
        except AgentConfigError:
            raise refusal from None


def _with_lists(tp: Any) -> Any:
    """The type with `list[T]` for each `Iterable[T]`, whose items pydantic converts only while they
    are read.
    """
    origin = get_origin(tp)
    arguments = get_args(tp)

    if tp is Iterable or origin is Iterable:
        return list[_with_lists(arguments[0]) if arguments else Any]

    replaced = tuple(_with_lists(argument) for argument in arguments)
    if all(new is old for new, old in zip(replaced, arguments, strict=True)):
        return tp

    return (Union if origin is UnionType else origin)[replaced]


class _GivenSchema(TypeSchema):
    """A schema without a Python type: values stay as they are."""

    def _convert(self, value: JsonValue) -> object:
        """Checks one level only: the author of the schema validates further."""
        if isinstance(value, dict):
            missing = [key for key in self._schema.get("required") or () if key not in value]
            if missing:
                raise InvalidValue("Required, but missing", location=(missing[0],), kind="missing")
        elif self._schema.get("type") == "object":
            raise InvalidValue(f"Expected an object, got {type(value).__name__}")
        return cast("object", value)


def _pydantic_type(tp: object) -> TypeSchema:
    from greenroom.tools.value_types.pydantic_types import PydanticType  # only for those who use pydantic

    return PydanticType(tp)


def _needs_pydantic(tp: object) -> bool:
    """Types of pydantic can only exist after pydantic was imported."""
    return "pydantic" in sys.modules and any(_is_pydantic(part) for part in _parts(tp, set()))


def _is_record(part: object) -> bool:
    """Records can be fields of pydantic models, but only msgspec knows their fields."""
    return isinstance(part, type) and issubclass(part, Record)


def _is_pydantic(part: object) -> bool:
    if _is_record(part):
        return False
    if hasattr(part, "__get_pydantic_core_schema__") or hasattr(part, "__pydantic_core_schema__"):
        return True
    return type(part).__module__.partition(".")[0] in ("pydantic", "annotated_types")


def _parts(tp: object, seen: set[int]) -> Iterator[object]:
    """The type, everything it is made of, and the metadata of `Annotated`."""
    if id(tp) in seen:
        return

    seen.add(id(tp))
    yield tp
    if get_origin(tp) is Annotated:
        yield from get_args(tp)[1:]

    for argument in get_args(tp):
        yield from _parts(argument, seen)

    cls = get_origin(tp) or tp
    if isinstance(cls, type) and _has_fields(cls):
        try:
            hints = get_type_hints(cls, include_extras=True)
        except NameError:
            return
        for hint in hints.values():
            yield from _parts(hint, seen)


def _has_fields(cls: type[Any]) -> bool:
    if dataclasses.is_dataclass(cls) or is_typeddict(cls):
        return True
    return issubclass(cls, msgspec.Struct) or hasattr(cls, "_fields")  # the latter: a NamedTuple


def join_definitions(definitions: JsonObject, schema: JsonObject) -> JsonObject:
    """Returns the schema without its `$defs`, which are moved to `definitions`; different definitions with the same
    name are renamed.
    """
    own: JsonObject = schema.get("$defs", {})
    if not own:
        return schema
    names = {name: _free_name(definitions, name, body) for name, body in own.items()}
    for name, body in own.items():
        definitions[names[name]] = _renamed(body, names)
    return _renamed({key: value for key, value in schema.items() if key != "$defs"}, names)


def used_definitions(schema: JsonValue, definitions: JsonObject) -> JsonObject:
    """The definitions that the schema refers to, directly or through others."""
    used: JsonObject = {}
    pending = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += cast("list[JsonValue]", node)
        elif isinstance(node, dict):
            pending += cast("JsonObject", node).values()
        elif isinstance(node, str) and node.startswith(REF):
            name = node.removeprefix(REF)
            if name in definitions and name not in used:
                used[name] = definitions[name]
                pending.append(definitions[name])

    return used


def _free_name(taken: JsonObject, name: str, body: JsonValue) -> str:
    numbered = (f"{name}_{number}" for number in itertools.count(2))
    return next(free for free in itertools.chain([name], numbered) if taken.get(free, body) == body)


def _renamed(schema: JsonValue, names: dict[str, str]) -> JsonValue:
    if isinstance(schema, list):
        return [_renamed(item, names) for item in cast("list[JsonValue]", schema)]
    if isinstance(schema, dict):
        return {key: _renamed(value, names) for key, value in cast("JsonObject", schema).items()}

    if isinstance(schema, str) and schema.startswith(REF):  # in `$ref`, or in the mapping of a discriminator
        name = schema.removeprefix(REF)
        return REF + names.get(name, name)

    return schema
