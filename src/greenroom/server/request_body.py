"""Reading a request's body, up to a limit."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import Receive

from greenroom.errors import InvalidRequest, TooLarge, UnsupportedEncoding


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
