"""Writes `src/wire.ts` from the server's OpenAPI document: `python ui/client/generate.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from greenroom.server.endpoints import ENDPOINTS, SOCKETS
from greenroom.server.openapi import build_openapi

WIRE = Path(__file__).parent / "src" / "wire.ts"

_HEAD = """\
// Records of the server's HTTP interface. Written by ui/client/generate.py; don't edit.

export type JsonValue = null | boolean | number | string | readonly JsonValue[] | JsonObject;
export type JsonObject = { readonly [key: string]: JsonValue };
"""
_WRITTEN = {
    "Event": {"id", "invocationId", "timestamp", "actions"},
    "FunctionCall": {"name"},
    "FunctionResponse": {"name"},
    "Session": {"state", "events", "lastUpdateTime"},
}
"""Fields with a default that the server writes all the same."""
_SIMPLE = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def wire() -> str:
    """The text of `wire.ts`: a type for each schema of the document."""
    schemas: dict[str, dict[str, Any]] = build_openapi(ENDPOINTS, SOCKETS)["components"]["schemas"]
    return "\n".join([_HEAD, *(_declaration(name, schema) for name, schema in sorted(schemas.items()))])


def _declaration(name: str, schema: dict[str, Any]) -> str:
    if "properties" not in schema:
        return f"{_comment(schema, '')}export type {name} = {_type(schema)};\n"
    required = {*schema.get("required", ()), *_WRITTEN.get(name, ())}
    fields = "".join(
        f"{_comment(one, '  ')}  readonly {field}{'' if field in required else '?'}: {_type(one)};\n"
        for field, one in schema["properties"].items()
    )
    return f"{_comment(schema, '')}export type {name} = {{\n{fields}}};\n"


def _comment(schema: dict[str, Any], indent: str) -> str:
    lines = schema.get("description", "").replace("*/", "").splitlines()
    if len(lines) < 2:
        return f"{indent}/** {lines[0]} */\n" if lines else ""
    return f"{indent}/**\n" + "".join(f"{indent} * {line}".rstrip() + "\n" for line in lines) + f"{indent} */\n"


def _type(schema: dict[str, Any]) -> str:
    """The schema in TypeScript. `null` is left out where it means the same as a missing field."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    kind = schema.get("type")
    if variants := schema.get("anyOf"):
        kept = [one for one in variants if one != {"type": "null"} or schema.get("default", ...) is not None]
        return " | ".join(dict.fromkeys(_type(one) for one in kept))
    if prefix := schema.get("prefixItems"):
        return f"readonly [{', '.join(map(_type, prefix))}]"
    if kind == "array":
        items = _type(schema.get("items", {}))
        return f"readonly ({items})[]" if " " in items else f"readonly {items}[]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"{{ readonly [key: string]: {_type(values)} }}" if values else "JsonObject"
    return _SIMPLE[kind] if kind else "JsonValue"


if __name__ == "__main__":
    WIRE.write_text(wire())
