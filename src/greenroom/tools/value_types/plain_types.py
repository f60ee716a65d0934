"""Types that msgspec knows: built-in ones, dataclasses, Structs, TypedDicts, NamedTuples, enums."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self, cast

import msgspec
import msgspec.inspect as inspect_types

from greenroom.errors import AgentConfigError, InvalidRequest
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue, Record
from greenroom.tools.result import to_plain, with_ints


class InvalidValue(InvalidRequest, ValueError):
    """A JSON value that doesn't fit a Python type.

    location: path to the invalid part; empty for the whole value.
    """

    def __init__(
        self,
        reason: str,
        *,
        location: tuple[str | int, ...] = (),
        kind: str = "type_error",
    ) -> None:
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location).lstrip(".")
        super().__init__(f"{where}: {reason}" if where else reason, location=location, kind=kind)
        self.reason = reason


REF = "#/$defs/"


class TypeSchema:
    """A Python type as models see it: its JSON Schema, and values to and from JSON."""

    def __init__(self, schema: JsonObject) -> None:
        self._schema = inline_root(schema)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # it never changes

    def json_schema(self) -> JsonObject:
        """The whole schema, with nested classes under `$defs`. Shared, so not to be changed."""
        return self._schema

    def convert(self, value: JsonValue) -> Any:
        """An instance of the type. Raises InvalidValue.

        Accepts numbers as models write them: integral floats for ints, and numeric strings for
        numbers.
        """
        try:
            return self._convert(value)
        except RecursionError:
            raise InvalidValue("Nested too deeply") from None

    def to_json(self, value: object) -> JsonValue:
        """JSON data that `convert` accepts."""
        return to_plain(value)

    def _convert(self, value: JsonValue) -> object:
        raise NotImplementedError


def inline_root(schema: JsonObject) -> JsonObject:
    """The same schema with its outermost object in place, since some models refuse a reference there."""
    reference: object = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith(REF):
        return schema

    name = reference.removeprefix(REF)
    definitions: JsonObject = dict(schema["$defs"])
    root = definitions.pop(name)
    if f'"$ref":"{reference}"'.encode() in msgspec.json.encode([root, definitions]):
        definitions[name] = root

    inlined = {**root, **{key: value for key, value in schema.items() if key not in ("$ref", "$defs")}}
    if definitions:
        inlined["$defs"] = definitions

    return inlined


class PlainType(TypeSchema):
    """A type that msgspec knows. Raises AgentConfigError for what msgspec can't model."""

    def __init__(self, tp: Any) -> None:
        self._type: Any = tp

        try:
            (schema,), definitions = msgspec.json.schema_components(
                [tp],
                ref_template=REF + "{name}",
            )
            info = inspect_types.type_info(tp)
        except (TypeError, NameError, ValueError) as error:
            raise AgentConfigError(_reason(error)) from None
        except KeyError as error:  # what msgspec raises when even the full names of two classes are the same
            raise AgentConfigError(f"{error} is the name of two different classes in it") from None

        self._has_records = _refine(info, schema, definitions, set())
        super().__init__({**schema, "$defs": definitions} if definitions else schema)

    def _convert(self, value: JsonValue) -> object:
        if self._has_records:
            try:
                return wire.from_plain(value, self._type)
            except InvalidRequest:
                pass  # msgspec's lenient mode may accept it, and otherwise locates the fault better

        try:
            return msgspec.convert(value, self._type, strict=False)
        except msgspec.ValidationError as error:
            try:
                return msgspec.convert(
                    with_ints(value), self._type, strict=False
                )  # msgspec refuses 1.0 in enums and literals
            except msgspec.ValidationError:
                raise _invalid(error) from None


def _refine(
    info: inspect_types.Type,
    schema: JsonObject,
    definitions: JsonObject,
    done: set[str],
) -> bool:
    """Adds to a schema what msgspec leaves out: formats of times, types of enums, their members'
    own order, and the items of arrays of anything.

    Returns whether the type contains records.
    """
    while isinstance(info, inspect_types.Metadata):
        info = info.type

    if "$ref" in schema:
        name: str = schema["$ref"].removeprefix(REF)
        if name in done:
            return False
        done.add(name)
        schema = definitions[name]

    match info:
        case inspect_types.DateTimeType():
            schema.setdefault("format", "date-time")
        case inspect_types.TimeType():
            schema.setdefault("format", "time")
        case inspect_types.EnumType():
            schema["enum"] = [member.value for member in info.cls]
            _set_type_of_values(schema)
        case inspect_types.LiteralType():
            _set_type_of_values(schema)
        case inspect_types.CollectionType():
            schema.setdefault("items", {})  # vendors refuse arrays without it
        case _:
            pass

    has_records = isinstance(info, inspect_types.StructType) and issubclass(info.cls, Record)
    for part, part_schema in _parts(info, schema):
        if part_schema is not None:
            has_records |= _refine(part, part_schema, definitions, done)

    return has_records


def _parts(
    info: inspect_types.Type,
    schema: JsonObject,
) -> Iterable[tuple[inspect_types.Type, JsonObject | None]]:
    match info:
        case inspect_types.CollectionType():
            return [(info.item_type, schema.get("items"))]
        case inspect_types.DictType():
            return [(info.value_type, schema.get("additionalProperties"))]
        case inspect_types.TupleType():
            return zip(info.item_types, schema.get("prefixItems", []), strict=False)
        case inspect_types.NamedTupleType():
            return zip([field.type for field in info.fields], schema["prefixItems"], strict=False)
        case inspect_types.UnionType():
            return zip(_in_schema_order(info), _options(schema), strict=False)
        case inspect_types.StructType() | inspect_types.DataclassType() | inspect_types.TypedDictType():
            properties: JsonObject = schema.get("properties", {})
            return [(field.type, properties.get(field.encode_name)) for field in info.fields]
        case _:
            return ()


def _in_schema_order(union: inspect_types.UnionType) -> list[inspect_types.Type]:
    """msgspec's schema of a union lists Structs after the others, and null at the end."""

    def rank(info: inspect_types.Type) -> int:
        while isinstance(info, inspect_types.Metadata):
            info = info.type
        if isinstance(info, inspect_types.NoneType):
            return 2
        return 1 if isinstance(info, inspect_types.StructType) else 0

    return sorted(union.types, key=rank)


def _options(schema: JsonObject) -> list[JsonObject]:
    """The options of a union, in which several Structs form a nested union."""
    flat: list[JsonObject] = []
    for option in cast("list[JsonObject]", schema.get("anyOf", [])):
        flat.extend(option.get("anyOf", [option]))
    return flat


def _set_type_of_values(schema: JsonObject) -> None:
    names: dict[object, str] = {bool: "boolean", int: "integer", str: "string", type(None): "null"}
    types = {names.get(type(value)) for value in cast("list[object]", schema["enum"])}
    if len(types) == 1:
        schema["type"] = types.pop()


def _invalid(error: msgspec.ValidationError) -> InvalidValue:
    text, location, is_missing = wire.fault_of(str(error))
    if is_missing:
        return InvalidValue("Required, but missing", location=location, kind="missing")
    return InvalidValue(text.replace("`", ""), location=location)


def _reason(error: Exception) -> str:
    """Returns msgspec's message, without its advice to authors of schema hooks."""
    text = str(error)
    if text.startswith("Generating JSON schema"):
        return text.rpartition("\n\n")[2]
    return text
