"""Reads request bodies, with limits on their bytes, values and nesting."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, TypeVar, cast

import msgspec
from starlette.types import Receive

from greenroom.errors import InvalidRequest, TooLarge, UnsupportedEncoding
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.server.settings import LimitSettings

T = TypeVar("T")

_BRACES = bytes.maketrans(b"[]", b"{}")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_VALUES_PER_ITEM = 10
"""Parts and events have about ten fields each, which are not counted as items."""


class ClientDisconnected(Exception):
    """The client disconnected before its request was complete."""


async def read_body(receive: Receive, headers: Mapping[str, str], *, limit_bytes: int) -> bytes:
    """Reads the body. Raises TooLarge if `Content-Length` exceeds the limit, or as soon as the body does."""
    announced = headers.get("content-length", "")
    size = 0
    pieces: list[bytes] = []
    is_small = not announced.isdigit() or int(announced) <= limit_bytes

    while is_small:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        is_small = size <= limit_bytes
        if is_small and not message.get("more_body"):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    raise TooLarge("The request body", limit_bytes=limit_bytes)


async def read_chunks(receive: Receive) -> AsyncGenerator[bytes]:
    """The body as it arrives."""
    is_complete = False
    while not is_complete:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        is_complete = not message.get("more_body")
        yield message.get("body", b"")


def check_is_json(headers: Mapping[str, str]) -> None:
    """Refuses bodies with a media type other than JSON, such as forms that another site's page posts."""
    other = other_media_type(headers)
    if other:
        raise InvalidRequest(f"The body must be application/json, not {other}", location=("header", "content-type"))


def other_media_type(headers: Mapping[str, str]) -> str:
    """The media type of a body if it is not JSON; else empty."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    return "" if media_type == "application/json" or media_type.endswith("+json") else media_type


def check_is_plain(headers: Mapping[str, str]) -> None:
    """Refuses compressed bodies: a few bytes could decompress to more than the memory."""
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedEncoding(encoding)


def decode_limited(data: bytes, decode: Callable[[bytes], T], limits: LimitSettings) -> T:
    """Decodes JSON with at most `request_items` items and `request_nesting` levels. Raises InvalidRequest."""
    is_large = check_size(data, max_items=limits.request_items, max_nesting=limits.request_nesting)
    value = decode(data)
    if is_large:
        check_items(value, limits.request_items)
    return value


def check_size(data: bytes, *, max_items: int, max_nesting: int) -> bool:
    """Limits the work of decoding JSON, before it is decoded. All steps are fast `bytes` methods.

    Returns whether the decoded value needs `check_items`. Raises InvalidRequest.
    """
    brackets = data.count(b"{") + data.count(b"[")
    if brackets <= max_nesting and brackets + data.count(b",") <= max_items:
        return False

    # Brackets and commas in strings don't count; without escapes, every second piece between quotes is a string.
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
        if len(fewer) == len(brackets):  # none are left, or they don't match: the decoder reports where
            return
        brackets = fewer
    if brackets:
        detail = f"The JSON has more than {max_nesting} levels of nesting"
        raise InvalidRequest(detail, kind="json_invalid")


def check_items(body: object, max_items: int) -> None:
    """Limits the number of list items and object keys in a decoded body; fields of records are not counted.

    Raises InvalidRequest.
    """
    count = 0
    pending = [body]
    while pending:
        value: Any = pending.pop()
        if isinstance(value, dict):
            pending += cast("dict[str, object]", value).values()
        elif isinstance(value, (list, tuple, CopyOnWriteList)):
            pending += cast("list[object]", value)
        else:
            if isinstance(value, msgspec.Struct):
                pending += [getattr(value, name) for name in value.__struct_fields__]
            continue

        count += len(cast("list[object]", value))
        if count > max_items:
            raise _too_many_items(max_items)


def _too_many_items(max_items: int) -> InvalidRequest:
    return InvalidRequest(f"One request has at most {max_items} parts, calls and keys", kind="json_invalid")


async def wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
