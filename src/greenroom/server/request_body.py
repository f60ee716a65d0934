"""Reading a request's body, within limits on its bytes, its values and their nesting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from starlette.types import Receive

from greenroom.errors import InvalidRequest, TooLarge, UnsupportedEncoding
from greenroom.records.copy_on_write import CopyOnWriteList

_BRACES = bytes.maketrans(b"[]", b"{}")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_VALUES_PER_ITEM = 10
"""A part or an event has some ten fields of its own, which are not counted as items."""


class ClientDisconnected(Exception):
    """The client went away before its request was whole."""


async def read_body(receive: Receive, headers: Mapping[str, str], *, limit_bytes: int) -> bytes:
    """Raises TooLarge before reading what is announced as too large, and as soon as it turns out to be."""
    announced = headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit_bytes:
        raise TooLarge("The request body", limit_bytes=limit_bytes)
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")
        if len(body) > limit_bytes:
            raise TooLarge("The request body", limit_bytes=limit_bytes)
        return body
    pieces: list[bytes] = []
    size = 0
    while True:
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size > limit_bytes:
            raise TooLarge("The request body", limit_bytes=limit_bytes)
        pieces.append(piece)
        if not message.get("more_body"):
            return b"".join(pieces)
        message = await receive()


def check_is_json(headers: Mapping[str, str]) -> None:
    """A body is JSON or says nothing of its type: a form that another site's page posts is refused."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type and media_type != "application/json" and not media_type.endswith("+json"):
        detail = f"The body must be application/json, not {media_type}"
        raise InvalidRequest(detail, location=("header", "content-type"))


def check_is_plain(headers: Mapping[str, str]) -> None:
    """Compressed bodies are never unpacked: a few bytes could become more than fits into memory."""
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedEncoding(encoding)


def check_size(data: bytes, *, max_items: int, max_nesting: int) -> bool:
    """Bounds the work of decoding some JSON, before it is decoded. All steps run at the speed of `bytes` methods.

    Returns whether the decoded value needs `check_items`. Raises InvalidRequest.
    """
    brackets = data.count(b"{") + data.count(b"[")
    if brackets <= max_nesting and brackets + data.count(b",") <= max_items:
        return False
    # Brackets and commas in texts don't count; without escapes, each second piece between quotes is a text.
    quoted = data.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in data else data
    max_values = max_items * _VALUES_PER_ITEM
    if quoted.count(b'"') <= 4 * max_values:
        bare = b"".join(quoted.split(b'"')[::2])
        values = bare.count(b",") + bare.count(b"{") + bare.count(b"[")
        if values <= max_values:
            _check_nesting(bare, max_nesting)
            return values > max_items
    raise _too_many_items(max_items)


def _check_nesting(bare: bytes, max_nesting: int) -> None:
    brackets = bare.translate(_BRACES, _NO_BRACKETS)
    for _ in range(max_nesting):  # each round removes the innermost level
        fewer = brackets.replace(b"{}", b"")
        if len(fewer) == len(brackets):  # none are left, or they don't match: the decoder says where
            return
        brackets = fewer
    if brackets:
        detail = f"The JSON has more than {max_nesting} levels of nesting"
        raise InvalidRequest(detail, kind="json_invalid")


def check_items(body: object, max_items: int) -> None:
    """Bounds the items of all lists and the keys of all maps in a decoded body; fields of records are not counted.

    Raises InvalidRequest.
    """
    count, left = 0, [body]
    while left:
        value: Any = left.pop()
        if isinstance(value, dict):
            left += cast("dict[str, object]", value).values()
        elif isinstance(value, (list, tuple, CopyOnWriteList)):
            left += cast("list[object]", value)
        else:
            if isinstance(value, msgspec.Struct):
                left += [getattr(value, name) for name in value.__struct_fields__]
            continue
        count += len(cast("list[object]", value))
        if count > max_items:
            raise _too_many_items(max_items)


def _too_many_items(max_items: int) -> InvalidRequest:
    return InvalidRequest(f"One request has at most {max_items} parts, calls and keys", kind="json_invalid")
