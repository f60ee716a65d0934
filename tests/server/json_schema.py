"""Checks JSON against the words of JSON Schema that our OpenAPI document uses, and fails on any other word."""

from __future__ import annotations

import re
from typing import Any

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
    "null": type(None),
}  # fmt: skip
_KNOWN = {
    "$ref", "title", "description", "default", "type", "properties", "required", "items", "anyOf", "enum",
    "additionalProperties", "contentEncoding", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "maxLength",
    "maxItems", "minLength", "pattern",
}  # fmt: skip


def check(value: Any, schema: dict[str, Any], document: dict[str, Any], where: str = "$") -> None:
    """Raises AssertionError. Keys that a record's schema doesn't name are refused: we never emit unknown keys."""
    assert set(schema) <= _KNOWN, f"{where}: unknown words {set(schema) - _KNOWN}"
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        check(value, document["components"]["schemas"][name], document, f"{where}<{name}>")
        return

    if "anyOf" in schema:
        reasons: list[str] = []
        for option in schema["anyOf"]:
            try:
                check(value, option, document, where)
            except AssertionError as error:
                reasons.append(str(error))
            else:
                return
        raise AssertionError("; ".join(reasons))

    if "type" in schema:
        kinds = _TYPES[schema["type"]]
        right = isinstance(value, kinds) and not (isinstance(value, bool) and schema["type"] in ("integer", "number"))
        assert right, f"{where}: {value!r} is no {schema['type']}"

    if "enum" in schema:
        assert value in schema["enum"], f"{where}: {value!r} is none of {schema['enum']}"
    if isinstance(value, str) and "pattern" in schema:
        assert re.search(schema["pattern"], value), f"{where}: {value!r} doesn't look like {schema['pattern']}"
    if isinstance(value, str):
        assert len(value) >= schema.get("minLength", 0), f"{where}: {value!r} is too short"
    if isinstance(value, list):
        assert len(value) <= schema.get("maxItems", len(value)), f"{where}: too many items"
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            check(item, schema["items"], document, f"{where}[{index}]")
    if isinstance(value, dict):
        _check_keys(value, schema, document, where)


def _check_keys(value: dict[str, Any], schema: dict[str, Any], document: dict[str, Any], where: str) -> None:
    missing = set(schema.get("required", ())) - set(value)
    assert not missing, f"{where}: {missing} missing"
    properties = schema.get("properties")
    for key, inner in value.items():
        if properties is not None and key in properties:
            check(inner, properties[key], document, f"{where}.{key}")
        elif isinstance(schema.get("additionalProperties"), dict):
            check(inner, schema["additionalProperties"], document, f"{where}.{key}")
        else:
            assert properties is None, f"{where}: unknown key {key!r}"
