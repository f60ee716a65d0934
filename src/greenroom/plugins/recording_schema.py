"""Schemas of tools in one spelling, whichever framework wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from greenroom.records.base import JsonObject, JsonValue

_OF_NO_EFFECT = frozenset({"title", "description", "default", "$defs", "definitions", "propertyOrdering"})
_REFERENCE = ("#/$defs/", "#/definitions/")


def one_spelling(schema: JsonObject) -> JsonValue:
    """References put in, types in lower case, null as `nullable`, and no titles, descriptions and defaults."""
    definitions = {**_map(schema.get("definitions")), **_map(schema.get("$defs"))}
    return _node(schema, definitions, ())


def _node(node: JsonValue, definitions: Mapping[str, Any], above: tuple[str, ...]) -> JsonValue:
    if not isinstance(node, dict):
        return node
    schema = cast("JsonObject", node)
    name = _referenced(schema)
    if name in definitions:
        if name in above:  # a type that contains itself
            return {"$ref": name}
        others = {key: value for key, value in schema.items() if key != "$ref"}
        return _node({**_map(definitions[name]), **others}, definitions, (*above, name))
    out: JsonObject = {}
    for key, value in schema.items():
        if key in _OF_NO_EFFECT or (key == "nullable" and not value):
            continue
        if key == "properties":
            out[key] = {name: _node(entry, definitions, above) for name, entry in _map(value).items()}
        elif key in ("anyOf", "oneOf", "any_of") and isinstance(value, list):
            out["anyOf"] = [_node(option, definitions, above) for option in cast("list[Any]", value)]
        elif key == "required" and isinstance(value, list):
            out[key] = sorted(cast("list[str]", value))
        elif key == "type":
            _set_type(out, value)
        else:
            out[key] = _node(value, definitions, above)
    return _without_null_option(out)


def _referenced(schema: JsonObject) -> str:
    reference = schema.get("$ref")
    if isinstance(reference, str):
        for prefix in _REFERENCE:
            if reference.startswith(prefix):
                return reference.removeprefix(prefix)
    return ""


def _set_type(out: JsonObject, value: JsonValue) -> None:
    names = [str(name).lower() for name in (cast("list[Any]", value) if isinstance(value, list) else [value])]
    others = [name for name in names if name != "null"]
    if len(others) < len(names) and others:
        out["nullable"] = True
    out["type"] = others[0] if len(others) == 1 else others or "null"


def _without_null_option(schema: JsonObject) -> JsonObject:
    options = schema.get("anyOf")
    if not isinstance(options, list) or {"type": "null"} not in options:
        return schema
    rest = [option for option in cast("list[JsonObject]", options) if option != {"type": "null"}]
    others = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**others, **(rest[0] if len(rest) == 1 else {"anyOf": rest}), "nullable": True}


def _map(value: JsonValue) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}
