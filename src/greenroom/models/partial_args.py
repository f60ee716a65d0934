"""Writes streamed pieces of a function call's arguments where their JSON paths say."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, cast

from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import PartialArg

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_MAX_INDEX = 10_000


def write_partial_args(args: JsonObject, pieces: Iterable[PartialArg]) -> None:
    """Strings are appended, other values replace. Raises ValueError for a path that leads nowhere."""
    for piece in pieces:
        steps = _steps(piece.json_path or "")
        if steps:
            _write(args, steps, _value(piece))


def _value(piece: PartialArg) -> JsonValue:
    for value in (piece.string_value, piece.number_value, piece.bool_value):
        if value is not None:
            if isinstance(value, float) and value.is_integer():
                return int(value)
            return value
    return None


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    at = 1 if path.startswith("$") else 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None or (match[2] and int(match[2]) > _MAX_INDEX):
            raise ValueError(f"Not a JSON path to an argument: {path!r}")
        quoted = match[3] if match[3] is not None else match[4]
        steps.append(int(match[2]) if match[2] else match[1] or re.sub(r"\\(.)", r"\1", quoted or ""))
        at = match.end()

    return steps


def _write(into: Any, steps: list[str | int], value: JsonValue) -> None:
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        present = _at(into, step)
        if following is None:
            if isinstance(present, str) and isinstance(value, str):
                into[step] = present + value
            else:
                into[step] = value
        elif present is None:
            into[step] = [] if isinstance(following, int) else {}

        into = into[step]


def _at(into: Any, step: str | int) -> Any:
    if isinstance(step, str) and isinstance(into, dict):
        return cast("JsonObject", into).get(step)
    if isinstance(step, int) and isinstance(into, list):
        items = cast("list[JsonValue]", into)
        items.extend([None] * (step + 1 - len(items)))
        return items[step]
    raise ValueError(f"The arguments have no place {step!r}")
