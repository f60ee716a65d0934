"""Values as the parts of a request write them: OpenAPI's styles."""

from __future__ import annotations

import re
from typing import Any, cast
from urllib.parse import quote, unquote

import msgspec

from greenroom.records.base import JsonObject, JsonValue
from greenroom.tools.value_types.plain_types import InvalidValue

_RESERVED = ":/?#[]@!$&'()*+,;="
_SEPARATORS = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def to_text(value: JsonValue) -> str:
    """One value without structure; what has structure is written as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return msgspec.json.encode(value).decode()


def in_path(name: str, value: JsonValue, *, style: str, explode: bool) -> str:
    """Raises InvalidValue for what would lead to another path than the one meant."""
    pieces = _flat(value)
    for piece in pieces:
        if any(part in (".", "..") for text in (piece, unquote(piece)) for part in re.split(r"[/\\]", text)):
            raise InvalidValue("a path can't hold dot segments", location=(name,))
    escaped = [quote(piece, safe="") for piece in pieces]
    if not "".join(escaped):
        raise InvalidValue("must not be empty", location=(name,))
    key = quote(name, safe="")
    pairs = _pairs(value) if explode else None
    if style == "label":
        joined = [f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in pairs] if pairs is not None else escaped
        return "." + ("." if explode else ",").join(joined)
    if style == "matrix":
        if pairs is not None:
            return "".join(f";{quote(k, safe='')}={quote(v, safe='')}" for k, v in pairs)
        if explode:
            return "".join(f";{key}={piece}" for piece in escaped)
        return f";{key}={','.join(escaped)}"
    if pairs is not None:
        return ",".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in pairs)
    return ",".join(escaped)


def in_query(
    name: str, value: JsonValue, *, style: str = "form", explode: bool = True, allow_reserved: bool = False
) -> list[str]:
    """Escaped `name=value` pairs. An empty list or object is written as nothing."""
    # `&`, `+` and `#` would end the value, whatever the API allows
    safe = _RESERVED.translate({ord(c): None for c in "&+#"}) if allow_reserved else ""
    key = quote(name, safe="")

    def escape(text: str) -> str:
        return quote(text, safe=safe)

    if isinstance(value, dict):
        entries = cast("JsonObject", value).items()
        if style == "deepObject":
            return [pair for path, text in _deep(name, value) for pair in [f"{quote(path, safe='[]')}={escape(text)}"]]
        if explode:
            return [f"{quote(k, safe='')}={escape(to_text(v))}" for k, v in entries]
    elif not isinstance(value, list):
        return [f"{key}={escape(to_text(value))}"]
    pieces = [escape(piece) for piece in _flat(value)]
    if not pieces:
        return []
    if isinstance(value, list) and (explode or style == "deepObject"):
        return [f"{key}={piece}" for piece in pieces]
    return [f"{key}={_SEPARATORS.get(style, ',').join(pieces)}"]


def in_header(name: str, value: JsonValue, *, explode: bool = False) -> str:
    """Raises InvalidValue for text that would begin another header."""
    pairs = _pairs(value) if explode else None
    text = ",".join([f"{k}={v}" for k, v in pairs] if pairs is not None else _flat(value))
    if _CONTROL.search(text):
        raise InvalidValue("a header can't hold line breaks or control characters", location=(name,))
    return text


def in_cookie(name: str, value: JsonValue, *, explode: bool = True) -> list[str]:
    pairs = _pairs(value) if explode else None
    given = pairs if pairs is not None else [(name, ",".join(_flat(value)))]
    return [f"{quote(k, safe='')}={quote(v, safe=_COOKIE_SAFE)}" for k, v in given]


_COOKIE_SAFE = "!#$&'()*+-./:<=>?@[]^_`{|}~"


def _flat(value: JsonValue) -> list[str]:
    """A list's items; an object's keys and values in turn; or the one value."""
    if isinstance(value, list):
        return [to_text(item) for item in cast("list[JsonValue]", value)]
    if isinstance(value, dict):
        return [text for key, item in cast("JsonObject", value).items() for text in (key, to_text(item))]
    return [to_text(value)]


def _pairs(value: JsonValue) -> list[tuple[str, str]] | None:
    if not isinstance(value, dict):
        return None
    return [(key, to_text(item)) for key, item in cast("JsonObject", value).items()]


def _deep(path: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [pair for key, item in cast("JsonObject", value).items() for pair in _deep(f"{path}[{key}]", item)]
    if isinstance(value, list):
        return [pair for item in cast("list[Any]", value) for pair in _deep(path, item)]
    return [(path, to_text(value))]
