"""OpenAPI schemas as JSON Schema without references, which every model understands."""

from __future__ import annotations

from typing import Any, cast

from greenroom.records.base import JsonObject, JsonValue
from greenroom.tools.openapi.document import ApiDocument, reference_of

MAX_NODES = 3_000
"""Schemas of one operation beyond which deeper parts are named, not spelled out: a model's prompt must hold them."""

_ONE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "dependentSchemas")
_DROPPED = frozenset({"xml", "externalDocs", "example", "discriminator", "nullable", "readOnly", "writeOnly", "$defs"})


class SchemaReader:
    """Reads the schemas of one operation. A schema that holds itself is broken off where it begins again."""

    def __init__(self, document: ApiDocument) -> None:
        self._document = document
        self._nodes_left = MAX_NODES

    def read(self, schema: JsonValue) -> JsonObject:
        return self._read(schema, ())

    def _read(self, schema: JsonValue, above: tuple[int, ...]) -> JsonObject:
        if not isinstance(schema, dict):
            return {"not": {}} if schema is False else {}
        reference = reference_of(cast("JsonObject", schema))
        found = self._document.resolve(cast("JsonObject", schema))
        # Identity tells a circle: every reference to a schema ends at the same object.
        at = id(self._target(schema))
        if at in above or self._nodes_left <= 0:
            return _named(found, reference)
        self._nodes_left -= 1
        above = (*above, at)
        out: JsonObject = {}
        for key, value in found.items():
            if key in _DROPPED or key.startswith("x-"):
                continue
            out[key] = self._value(key, value, above)
        _from_openapi_3_0(out, found)
        return out

    def _target(self, schema: JsonValue) -> JsonValue:
        target: JsonValue = schema
        for _ in range(64):
            reference = reference_of(target)
            if reference is None:
                break
            target = self._document._look_up(reference)
        return target

    def _value(self, key: str, value: JsonValue, above: tuple[int, ...]) -> JsonValue:
        if key in _ONE and isinstance(value, dict):
            return self._read(value, above)
        if key in _LISTS and isinstance(value, list):
            return [self._read(item, above) for item in cast("list[JsonValue]", value)]
        if key in _MAPS and isinstance(value, dict):
            entries = cast("JsonObject", value).items()
            return {name: self._read(entry, above) for name, entry in entries if not self._is_read_only(entry)}
        return value

    def _is_read_only(self, schema: JsonValue) -> bool:
        return isinstance(schema, dict) and self._document.resolve(cast("JsonObject", schema)).get("readOnly") is True


def _named(schema: JsonObject, reference: str | None) -> JsonObject:
    out: JsonObject = {}
    if "type" in schema:
        out["type"] = schema["type"]
    name = schema.get("title") or (reference or "").rpartition("/")[2]
    if name:
        out["title"] = name
    if "description" in schema:
        out["description"] = schema["description"]
    return out


def _from_openapi_3_0(out: JsonObject, found: JsonObject) -> None:
    """What 3.0 spells otherwise: `nullable`, and limits that are excluded by a flag; read-only properties are gone."""
    if found.get("nullable") is True and isinstance(out.get("type"), str):
        out["type"] = [out["type"], "null"]
        options: Any = out.get("enum")
        if isinstance(options, list) and None not in options:
            out["enum"] = [*cast("list[JsonValue]", options), None]
    for limit, flag in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(out.get(flag), bool):
            excluded = out.pop(flag)
            if excluded and limit in out:
                out[flag] = out.pop(limit)
    declared: JsonObject = found.get("properties") or {}
    shown: JsonObject = out.get("properties") or {}
    read_only = declared.keys() - shown.keys()
    if read_only and isinstance(found.get("required"), list):
        out["required"] = [name for name in found["required"] if name not in read_only]
