"""Results of tools as plain data for a function response, and the media in them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

import msgspec

from greenroom.errors import ToolError
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Blob, FileData, FunctionResponsePart, Part
from greenroom.records.event import EventActions
from greenroom.records.genai_types import own
from greenroom.records.state import TEMP_PREFIX

MAX_LEVELS = 100
"""Greatest depth of a nested result, as of a request: far from where an encoder fails."""

_TOO_DEEP = f"result is nested more than {MAX_LEVELS} levels deep"


def to_response(value: object) -> JsonObject:
    """A mapping as it is, anything else as `{"result": value}`; a copy, in plain data. Raises
    ToolError.
    """
    plain = to_plain(value)
    if isinstance(plain, dict) and isinstance(value, Mapping):
        return cast("JsonObject", plain)
    return {"result": plain}


def to_plain(value: object) -> JsonValue:
    """A copy of the value in JSON types. Raises ToolError, which names the unsupported type and the
    path to it.

    Supports dataclasses, Structs, pydantic models, enums, dates, bytes (base64), sets, mappings,
    other collections, paths and array types with a `tolist`. NaN and the infinities become null, as
    in JavaScript.
    """
    try:
        data = _encoder.encode(value)
        plain: JsonValue = msgspec.json.decode(data)
    except (TypeError, ValueError, OverflowError, RecursionError, NotImplementedError) as error:
        raise ToolError(_explain(value)) from error

    if data.count(b"{") + data.count(b"[") > MAX_LEVELS and _is_too_deep(plain):
        raise ToolError(_TOO_DEEP)

    return plain


def is_plain(value: object) -> bool:
    """Whether a value is of JSON's own types only, and needs no `to_plain`: down to the depth that
    this supports.
    """
    return _is_plain(value, MAX_LEVELS)


def _is_plain(value: object, levels: int) -> bool:
    kind = type(value)
    if kind is dict:
        entries = cast("dict[object, object]", value)
        if not all(type(key) is str for key in entries):
            return False
        return levels == 0 or all(_is_plain(item, levels - 1) for item in entries.values())

    if kind is list:
        return levels == 0 or all(_is_plain(item, levels - 1) for item in cast("list[object]", value))

    return kind in _PLAIN


def with_ints(value: JsonValue) -> JsonValue:
    """The value with integral floats, such as 1.0, as ints."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [with_ints(item) for item in cast("list[JsonValue]", value)]
    if isinstance(value, dict):
        return {key: with_ints(item) for key, item in cast("JsonObject", value).items()}
    return value


def shortened(text: str, limit: int) -> str:
    """The text, cut at a number of characters, followed by its length."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text)} characters in all)"


def make_storable(actions: EventActions) -> None:
    """Converts state values that code has set to plain data, like a result. Raises ToolError, which names the key."""
    for key, value in actions.state_delta.items():
        if not key.startswith(TEMP_PREFIX) and type(value) not in (bool, int, float, type(None)):
            try:
                actions.state_delta[key] = to_plain(value)
            except ToolError as error:
                raise ToolError(f"The state's {key!r} can't be stored: {error.detail}") from error


_encoder = msgspec.json.Encoder(enc_hook=wire.encode_other)


def _is_too_deep(plain: JsonValue) -> bool:
    level: list[Any] = [[plain]]
    for _ in range(MAX_LEVELS + 1):
        inner: list[Any] = [value.values() if isinstance(value, dict) else value for value in level]
        level = [item for items in inner for item in items if type(item) in (dict, list)]
        if not level:
            return False
    return True


def _explain(value: object) -> str:
    """Names the innermost part that can't be encoded, and the path to it. Slow: only called after a
    failure.
    """
    path = "result"
    outer: set[int] = set()
    for _ in range(MAX_LEVELS):
        outer.add(id(value))

        fault = next((found for found in _parts(value) if not _is_encodable(found[1])), None)
        if fault is None:
            return f"{path} is {_describe(value)}, which JSON can't hold"

        step, value = fault
        path += step

        if id(value) in outer:
            return f"{path} is a reference back to one of its containers, which JSON can't hold"

    return _TOO_DEEP


def _is_encodable(value: object) -> bool:
    try:
        _encoder.encode(value)
    except Exception:  # user types may raise anything on their way to JSON
        return False
    return True


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value).items()
        return [(f"[{key!r}]", item) for key, item in entries]

    if isinstance(value, (list, tuple, set, frozenset)):
        return [(f"[{index}]", item) for index, item in enumerate(cast("Collection[Any]", value))]

    if hasattr(value, "__dataclass_fields__") or hasattr(value, "__struct_fields__"):
        names: Collection[str] = getattr(value, "__struct_fields__", None) or value.__dataclass_fields__
        return [(f".{name}", getattr(value, name)) for name in names if hasattr(value, name)]

    return []


def _describe(fault: object) -> str:
    if isinstance(fault, str):
        return "text with unpaired surrogates"
    if isinstance(fault, Mapping):
        keys = cast("Mapping[Any, Any]", fault)
        strange = next((key for key in keys if not isinstance(key, (str, int, float))), None)
        return f"a mapping with a key of type {type(strange).__name__}"
    return f"of type {type(fault).__module__}.{type(fault).__qualname__}".replace("type builtins.", "type ")


def take_media(value: JsonValue) -> tuple[JsonValue, list[FunctionResponsePart]]:
    """Splits a result into its rest and its media: `Part`s with data or a file, `Blob`s and
    `FileData`.

    Media are found at any depth of lists and maps, which are copied without them. The rest of a
    result that consists of media only is None. Source: ADK, which moves them to the response's
    `parts`.
    """
    media: list[FunctionResponsePart] = []
    try:
        left = _without(value, media)
    except RecursionError:
        return value, []  # it contains itself, which `to_response` reports

    if not media:
        return value, []

    return (None if left in (_GONE, []) else left), media


_GONE = object()
_PLAIN = frozenset({str, int, float, bool, type(None)})


def _without(value: object, media_parts: list[FunctionResponsePart]) -> JsonValue:
    if type(value) in _PLAIN:
        return value

    value = own(value)
    if isinstance(value, dict):
        entries = cast("JsonObject", value)
        if _PLAIN.issuperset(map(type, entries.values())):
            return entries
        return {key: left for key, item in entries.items() if (left := _without(item, media_parts)) is not _GONE}

    if isinstance(value, (list, tuple)):
        items = cast("list[JsonValue]", value)
        return [left for item in items if (left := _without(item, media_parts)) is not _GONE]

    if isinstance(value, Blob):
        media = FunctionResponsePart(inline_data=value)
    elif isinstance(value, FileData):
        media = FunctionResponsePart(file_data=value)
    elif isinstance(value, Part) and (value.inline_data is not None or value.file_data is not None):
        media = FunctionResponsePart(inline_data=value.inline_data, file_data=value.file_data)
    else:
        return value

    media_parts.append(media)

    return _GONE
