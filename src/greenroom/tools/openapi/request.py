"""Turns a model's arguments into a request, in OpenAPI's parameter styles."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast
from urllib.parse import quote, unquote

import msgspec

from greenroom.records.auth import CredentialParts
from greenroom.records.base import JsonObject, JsonValue
from greenroom.tools.openapi.operation import ApiOperation, ApiParameter, BodyFormat, query_in
from greenroom.tools.value_types.plain_types import InvalidValue
from greenroom.tools.web.http_client import FilePart


@dataclass(kw_only=True)
class PreparedRequest:
    """An HTTP request, complete but for its credentials."""

    method: str
    url: str
    query: list[str] = field(default_factory=list[str])
    """Escaped pairs."""

    headers: dict[str, str] = field(default_factory=dict[str, str])
    cookies: list[str] = field(default_factory=list[str])
    content: bytes | None = None
    files: list[FilePart] | None = None
    """The fields of a multipart body; there is no `content` then."""

    def full_url(self) -> str:
        if self.query:
            return f"{self.url}?{'&'.join(self.query)}"
        return self.url

    def all_headers(self) -> list[tuple[bytes, bytes]]:
        """All headers, in UTF-8. If a name occurs twice, the later header wins."""
        unique = {name.lower(): (name, value) for name, value in self.headers.items()}
        if self.cookies:
            unique["cookie"] = ("Cookie", "; ".join(self.cookies))
        return [(name.encode(), value.encode()) for name, value in unique.values()]

    def with_credential(self, parts: CredentialParts | None) -> PreparedRequest:
        if parts is None:
            return self

        return replace(
            self,
            query=[*self.query, *(pair for key, value in parts.query.items() for pair in in_query(key, value))],
            headers={**self.headers, **parts.headers},
            cookies=[*self.cookies, *(pair for key, value in parts.cookies.items() for pair in in_cookie(key, value))],
        )


def missing_arguments(operation: ApiOperation, args: JsonObject) -> list[str]:
    """Names of required arguments without a default that the model did not give."""
    return [
        parameter.name
        for parameter in operation.parameters
        if parameter.is_required and "default" not in parameter.schema and not _is_given(parameter, args)
    ]


def prepare(operation: ApiOperation, args: JsonObject) -> PreparedRequest:
    """Builds the request without credentials. Raises InvalidValue for arguments that can't be sent."""
    values = _values(operation, args)
    request = PreparedRequest(
        method=operation.method,
        url=operation.base_url + _path(operation, values),
    )
    request.query = [f"{quote(key, safe='')}={quote(value, safe='')}" for key, value in query_in(operation.path)]

    for parameter, value in values:
        if parameter.location == "query":
            request.query += in_query(
                parameter.original,
                value,
                style=parameter.style,
                explode=parameter.explode,
                allow_reserved=parameter.serialization.get("allowReserved") is True,
            )
        elif parameter.location == "header":
            request.headers[parameter.original] = in_header(
                parameter.name,
                value,
                explode=parameter.explode,
            )
        elif parameter.location == "cookie":
            request.cookies += in_cookie(parameter.original, value, explode=parameter.explode)

    fields = [(parameter, value) for parameter, value in values if parameter.location == "body"]
    if operation.body is not None and fields:
        _write_body(request, operation.body, fields)
    elif operation.body is not None and operation.body.is_required and operation.body.kind == "json":
        request.content = b"{}"
        request.headers["Content-Type"] = "application/json"

    return request


_Values = list[tuple[ApiParameter, JsonValue]]


def _is_given(parameter: ApiParameter, args: JsonObject) -> bool:
    return parameter.name in args and (args[parameter.name] is not None or parameter.is_nullable)


def _values(operation: ApiOperation, args: JsonObject) -> _Values:
    """The arguments to send: null means absent, and 3.0 an integer, as models write them."""
    values: _Values = []
    for parameter in operation.parameters:
        if _is_given(parameter, args):
            value = _as_declared(args[parameter.name], parameter.schema)
        elif parameter.is_required and "default" in parameter.schema:
            value = parameter.schema["default"]
        else:
            continue

        is_text = parameter.is_json and parameter.location != "body"
        values.append((parameter, msgspec.json.encode(value).decode() if is_text else value))

    return values


def _as_declared(value: JsonValue, schema: JsonObject) -> JsonValue:
    if isinstance(value, list):
        items: JsonObject
        if isinstance(schema.get("items"), dict):
            items = schema["items"]
        else:
            items = {}
        return [_as_declared(item, items) for item in cast("list[JsonValue]", value)]

    kinds: Any = schema.get("type")

    is_integer = kinds == "integer" or (isinstance(kinds, list) and "integer" in kinds)
    if is_integer and isinstance(value, float) and value.is_integer():
        return int(value)

    return value


def _path(operation: ApiOperation, values: _Values) -> str:
    path = operation.path.partition("#")[0].partition("?")[0]
    for parameter, value in values:
        if parameter.location == "path":
            written = in_path(
                parameter.original,
                value,
                style=parameter.style,
                explode=parameter.explode,
            )
            path = path.replace(f"{{{parameter.original}}}", written)

    return path


def _write_body(request: PreparedRequest, form: BodyFormat, fields: _Values) -> None:
    if form.kind == "multipart":
        request.files = [part for parameter, value in fields for part in _parts(parameter, value)]
        return

    first, value = fields[0]
    is_whole = not first.original
    if not is_whole:
        value = {parameter.original: value for parameter, value in fields}

    if form.kind == "form" and not isinstance(value, str):
        request.content = "&".join(_form_pairs(fields)).replace("%20", "+").encode()
    elif is_whole and form.kind != "json":
        request.content = _bytes(value, first.schema)
    else:
        request.content = msgspec.json.encode(value)

    request.headers["Content-Type"] = _one_media_type(form)


def _one_media_type(form: BodyFormat) -> str:
    if "*" not in form.media_type:
        return form.media_type
    if form.kind == "json":
        return "application/json"
    if form.media_type.startswith("text/"):
        return "text/plain"
    return "application/octet-stream"


def _form_pairs(fields: _Values) -> list[str]:
    pairs: list[str] = []
    for parameter, value in fields:
        if not parameter.original and isinstance(value, dict):
            pairs += [pair for key, item in cast("JsonObject", value).items() for pair in in_query(key, item)]
            continue
        if parameter.is_json:
            value = msgspec.json.encode(value).decode()
        pairs += in_query(parameter.original or parameter.name, value, style=parameter.style, explode=parameter.explode)

    return pairs


def _parts(parameter: ApiParameter, value: JsonValue) -> list[FilePart]:
    name = parameter.original or parameter.name

    if not parameter.original and isinstance(value, dict):
        entries = cast("JsonObject", value).items()
        return [(key, (None, to_text(item).encode(), None)) for key, item in entries]

    if isinstance(value, list) and not parameter.is_json:
        schema: JsonObject = parameter.schema.get("items") or {}
        return [_part(name, item, schema) for item in cast("list[JsonValue]", value)]

    if isinstance(value, dict) or parameter.is_json:
        return [(name, (None, msgspec.json.encode(value), "application/json"))]

    return [_part(name, value, parameter.schema)]


def _part(name: str, value: JsonValue, schema: JsonObject) -> FilePart:
    is_file = schema.get("format") in ("binary", "byte", "base64") or "contentMediaType" in schema
    if not is_file:
        return name, (None, to_text(value).encode(), None)
    return name, (name, _bytes(value, schema), schema.get("contentMediaType") or "application/octet-stream")


def _bytes(value: JsonValue, schema: JsonObject) -> bytes:
    if schema.get("format") not in ("byte", "base64") and schema.get("contentEncoding") != "base64":
        return to_text(value).encode()
    try:
        return base64.b64decode(to_text(value), validate=True)
    except binascii.Error:
        raise InvalidValue("is not base64") from None


_RESERVED = ":/?#[]@!$&'()*+,;="
_SEPARATORS = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def to_text(value: JsonValue) -> str:
    """A scalar as text; lists and objects as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return msgspec.json.encode(value).decode()


def in_path(name: str, value: JsonValue, *, style: str, explode: bool) -> str:
    """A path segment. Raises InvalidValue for values that would change the path."""
    for piece in _flat(value):
        if any(part in (".", "..") for text in (piece, unquote(piece)) for part in re.split(r"[/\\]", text)):
            raise InvalidValue("a path can't hold dot segments", location=(name,))

    pieces = _pieces(value, explode=explode, escape=_escape)

    if not "".join(_flat(value)):
        raise InvalidValue("must not be empty", location=(name,))
    if style == "label":
        return "." + ("." if explode else ",").join(pieces)

    if style == "matrix":
        key = _escape(name)
        if not explode:
            return f";{key}={','.join(pieces)}"
        return "".join(f";{piece}" if isinstance(value, dict) else f";{key}={piece}" for piece in pieces)

    return ",".join(pieces)


def in_query(
    name: str, value: JsonValue, *, style: str = "form", explode: bool = True, allow_reserved: bool = False
) -> list[str]:
    """Escaped `name=value` pairs; none for an empty list or object."""
    # `&`, `+` and `#` would change or end the value, whatever the API allows.
    if allow_reserved:
        safe = _RESERVED.translate({ord(c): None for c in "&+#"})
    else:
        safe = ""

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
    """A header's value. Raises InvalidValue for text that would inject another header."""
    text = ",".join(_pieces(value, explode=explode, escape=str))
    if _CONTROL.search(text):
        raise InvalidValue("a header can't hold line breaks or control characters", location=(name,))
    return text


def in_cookie(name: str, value: JsonValue, *, explode: bool = True) -> list[str]:
    if explode and isinstance(value, dict):
        return [pair for key, item in cast("JsonObject", value).items() for pair in in_cookie(key, to_text(item))]
    return [f"{_escape(name)}={quote(','.join(_flat(value)), safe=_COOKIE_SAFE)}"]


_COOKIE_SAFE = "!#$&'()*+-./:<=>?@[]^_`{|}~"


def _flat(value: JsonValue) -> list[str]:
    """A list's items; an object's keys and values alternately; or the value itself."""
    if isinstance(value, list):
        return [to_text(item) for item in cast("list[JsonValue]", value)]
    if isinstance(value, dict):
        return [text for key, item in cast("JsonObject", value).items() for text in (key, to_text(item))]
    return [to_text(value)]


def _pieces(value: JsonValue, *, explode: bool, escape: Callable[[str], str]) -> list[str]:
    """Flattens as `_flat`, but an exploded object as `key=value`."""
    if explode and isinstance(value, dict):
        entries = cast("JsonObject", value).items()
        return [f"{escape(key)}={escape(to_text(item))}" for key, item in entries]
    return [escape(piece) for piece in _flat(value)]


def _escape(text: str) -> str:
    return quote(text, safe="")


def _deep(path: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [pair for key, item in cast("JsonObject", value).items() for pair in _deep(f"{path}[{key}]", item)]
    if isinstance(value, list):
        return [pair for item in cast("list[Any]", value) for pair in _deep(path, item)]
    return [(path, to_text(value))]
