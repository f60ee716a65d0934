"""Pictures, sounds and files in what a tool returned: a model is to look at them, not to read their bytes as text."""

from __future__ import annotations

from typing import cast

from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Blob, FileData, FunctionResponsePart, Part


def take_media(value: JsonValue) -> tuple[JsonValue, list[FunctionResponsePart]]:
    """What is left of a result, and the media that were in it: `Part`s with data or a file, `Blob`s and `FileData`.

    They are found at the top, and in lists and maps however deep; what they stood in is copied without them. A result
    that is nothing but media leaves None. Source: ADK, which moves them to the response's `parts`.
    """
    try:
        if not _holds_media(value):
            return value, []
    except RecursionError:
        return value, []  # it holds itself, which is told when it is put into JSON
    found: list[FunctionResponsePart] = []
    left = _without(value, found)
    return (None if left in (_GONE, []) else left), found


_GONE = object()
_PLAIN = frozenset({str, int, float, bool, type(None)})


def _holds_media(value: object) -> bool:
    if isinstance(value, dict):
        inner = cast("JsonObject", value).values()
    elif isinstance(value, (list, tuple)):
        inner = cast("list[JsonValue]", value)
    else:
        return isinstance(value, (Part, Blob, FileData)) and _media(value) is not None
    return any(type(item) not in _PLAIN and _holds_media(item) for item in inner)


def _without(value: object, found: list[FunctionResponsePart]) -> JsonValue:
    if isinstance(value, dict):
        entries = cast("JsonObject", value)
        return {key: left for key, item in entries.items() if (left := _without(item, found)) is not _GONE}
    if isinstance(value, (list, tuple)):
        items = cast("list[JsonValue]", value)
        return [left for item in items if (left := _without(item, found)) is not _GONE]
    media = _media(value) if isinstance(value, (Part, Blob, FileData)) else None
    if media is None:
        return value
    found.append(media)
    return _GONE


def _media(value: Part | Blob | FileData) -> FunctionResponsePart | None:
    if isinstance(value, Blob):
        return FunctionResponsePart(inline_data=value)
    if isinstance(value, FileData):
        return FunctionResponsePart(file_data=value)
    if value.inline_data is None and value.file_data is None:
        return None
    return FunctionResponsePart(inline_data=value.inline_data, file_data=value.file_data)
