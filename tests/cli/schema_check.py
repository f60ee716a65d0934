"""Checks a value against the words of JSON Schema that `greenroom schema` uses, and fails on any other word."""

from __future__ import annotations

import re
from typing import Any

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
    "null": type(None),
}  # fmt: skip
_SAY_NOTHING = {"$schema", "$defs", "title", "description", "default", "contentEncoding"}


def mistakes(value: Any, schema: dict[str, Any], root: dict[str, Any] | None = None, where: str = "$") -> list[str]:
    root = root if root is not None else schema
    found: list[str] = []
    for word, wanted in schema.items():
        if word in _SAY_NOTHING:
            continue
        found += _check(word, wanted, value, schema, root, where)
    return found


def _check(word: str, wanted: Any, value: Any, schema: dict[str, Any], root: dict[str, Any], where: str) -> list[str]:
    match word:
        case "$ref":
            return mistakes(value, root["$defs"][wanted.rpartition("/")[2]], root, where)
        case "anyOf" | "oneOf":
            failed = [mistakes(value, option, root, where) for option in wanted]
            right = sum(not one for one in failed)
            return [] if right == 1 or (right > 1 and word == "anyOf") else [f"{where}: {right} fit of {failed}"]
        case "not":
            return [] if mistakes(value, wanted, root, where) else [f"{where}: {value!r} is ruled out"]
        case "type":
            kinds = [wanted] if isinstance(wanted, str) else wanted
            fits = any(isinstance(value, _TYPES[k]) and (k == "boolean" or not isinstance(value, bool)) for k in kinds)
            return [] if fits else [f"{where}: {value!r} is no {wanted}"]
        case "enum":
            return [] if any(value == one and type(value) is type(one) for one in wanted) else [f"{where}: {value!r}"]
        case "pattern":
            return [] if not isinstance(value, str) or re.search(wanted, value) else [f"{where}: {value!r}"]
        case "minLength":
            return [] if not isinstance(value, str) or len(value) >= wanted else [f"{where}: too short"]
        case "minimum":
            return [] if not isinstance(value, (int, float)) or value >= wanted else [f"{where}: too small"]
        case "required":
            missing = [key for key in wanted if isinstance(value, dict) and key not in value]
            return [f"{where}: {key} is missing" for key in missing]
        case "items":
            items = enumerate(value) if isinstance(value, list) else ()
            return [one for index, item in items for one in mistakes(item, wanted, root, f"{where}[{index}]")]
        case "properties" | "additionalProperties":
            return _keys(word, wanted, value, schema, root, where)
        case _:
            raise AssertionError(f"{where}: the schema has a word that this check doesn't know: {word}")


def _keys(word: str, wanted: Any, value: Any, schema: dict[str, Any], root: dict[str, Any], where: str) -> list[str]:
    found: list[str] = []
    known = schema.get("properties", {})
    for key, entry in value.items() if isinstance(value, dict) else ():
        if word == "properties" and key in known:
            found += mistakes(entry, known[key], root, f"{where}.{key}")
        elif word == "additionalProperties" and key not in known:
            if wanted is False:
                found.append(f"{where}: unknown key {key}")
            elif wanted is not True:
                found += mistakes(entry, wanted, root, f"{where}.{key}")
    return found
