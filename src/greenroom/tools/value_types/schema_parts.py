"""Putting JSON Schemas together."""

from __future__ import annotations

from typing import cast

from greenroom.records.base import JsonObject, JsonValue

_REF = "#/$defs/"


def inline_root(schema: JsonObject) -> JsonObject:
    """The same schema with its outermost object in place, since some models refuse a reference there."""
    reference: object = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith(_REF):
        return schema
    name = reference.removeprefix(_REF)
    definitions: JsonObject = dict(schema["$defs"])
    root = definitions.pop(name)
    if _mentions(reference, [root, definitions]):
        definitions[name] = root
    inlined = {**root, **{key: value for key, value in schema.items() if key not in ("$ref", "$defs")}}
    if definitions:
        inlined["$defs"] = definitions
    return inlined


def join_definitions(definitions: JsonObject, schema: JsonObject) -> JsonObject:
    """The schema without its `$defs`, which are moved to `definitions`; different ones of one name get new names."""
    own: JsonObject = schema.get("$defs", {})
    if not own:
        return schema
    names = {name: _free_name(definitions, name, body) for name, body in own.items()}
    for name, body in own.items():
        definitions[names[name]] = _renamed(body, names)
    return _renamed({key: value for key, value in schema.items() if key != "$defs"}, names)


def _free_name(taken: JsonObject, name: str, body: JsonValue) -> str:
    candidate, number = name, 1
    while candidate in taken and taken[candidate] != body:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def _renamed(schema: JsonValue, names: dict[str, str]) -> JsonValue:
    if isinstance(schema, list):
        return [_renamed(item, names) for item in cast("list[JsonValue]", schema)]
    if isinstance(schema, dict):
        return {key: _renamed(value, names) for key, value in cast("JsonObject", schema).items()}
    if isinstance(schema, str) and schema.startswith(_REF):  # in `$ref`, or in the mapping of a discriminator
        name = schema.removeprefix(_REF)
        return _REF + names.get(name, name)
    return schema


def _mentions(reference: str, schema: JsonValue) -> bool:
    if isinstance(schema, dict):
        entries = cast("JsonObject", schema)
        return entries.get("$ref") == reference or any(_mentions(reference, value) for value in entries.values())
    return isinstance(schema, list) and any(_mentions(reference, item) for item in cast("list[JsonValue]", schema))
