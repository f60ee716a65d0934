"""Replies of handlers: a complete body, a stream or a WebSocket; errors as problem documents (RFC 9457).

ADK's clients read the documents' `detail`.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeAlias

from greenroom.errors import GreenroomError, InvalidRequest, TooManyRequests
from greenroom.records.base import JsonObject
from greenroom.records.run import RunError
from greenroom.server.websocket import Socket


@dataclass(kw_only=True, slots=True)
class Reply:
    """A complete body: `value` as JSON, or the bytes in `data`."""

    value: Any = None
    data: bytes | None = None
    status: int = 200
    media_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict[str, str])


def raw_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]


@dataclass(kw_only=True, slots=True)
class StreamReply:
    """A streamed body; each piece is written at once."""

    pieces: AsyncGenerator[bytes]
    close: Callable[[], None]
    """Releases the source, whether it was read or not."""
    when_client_leaves: Callable[[], None] | None = None
    """Called if the client disconnects before the last piece."""
    is_endless: bool = False
    """Whether it has no end of its own, and ends when the server begins to stop."""
    when_server_stops: Callable[[], bytes] | None = None
    """Returns the last piece if the server stops first, or another one takes the session over."""
    continuation: str | None = None
    """Path and query of a GET for the same stream. They end with `=` and the number after which the stream begins. With
    the number of a later frame (the `sequence_number` at its end) in its place, the rest is read. None for streams
    without numbers."""
    media_type: str = "text/event-stream; charset=utf-8"
    headers: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(kw_only=True, slots=True)
class SocketReply:
    """An accepted WebSocket: `talk` completes the handshake and returns when the conversation has ended."""

    talk: Callable[[Socket], Awaitable[None]]


AnyReply: TypeAlias = Reply | StreamReply | SocketReply


MEDIA_TYPE = "application/problem+json"

_WORD_START = re.compile(r"(?<!^)(?=[A-Z][a-z])")


def type_uri(code: str) -> str:
    """The `type` of an error document. code: the name of an error; any class name will do."""
    return "urn:greenroom:error:" + _WORD_START.sub("-", code).lower()


def title(code: str) -> str:
    """The `title` of an error document."""
    first, *others = _WORD_START.split(code)
    return " ".join([first, *(word.lower() for word in others)])


def redirect_reply(location: str) -> Reply:
    """A redirect of the same method and body. location: the path with the public prefix: `Address.path`."""
    return Reply(data=b"", status=307, media_type="text/plain", headers={"location": location})


def error_reply(error: GreenroomError) -> Reply:
    reply = failure_reply(error.code, error.status, error.detail)
    if isinstance(error, TooManyRequests):
        reply.headers["retry-after"] = str(math.ceil(error.retry_after_seconds))
    if isinstance(error, InvalidRequest):
        faults = (error, *error.others)
        reply.value["errors"] = [
            {"type": fault.kind, "loc": list(fault.location), "msg": fault.detail} for fault in faults
        ]
    return reply


def failure_reply(code: str, status: HTTPStatus, detail: str, headers: dict[str, str] | None = None) -> Reply:
    """A problem document. code: the name of an error class."""
    waiting = {"retry-after": "1"} if status is HTTPStatus.SERVICE_UNAVAILABLE else {}
    challenge = {"www-authenticate": 'Bearer realm="greenroom"'} if status is HTTPStatus.UNAUTHORIZED else {}
    headers = {**waiting, **challenge, **(headers or {})}
    return Reply(value=problem(code, status, detail), status=int(status), media_type=MEDIA_TYPE, headers=headers)


def problem(code: str, status: HTTPStatus, detail: str) -> JsonObject:
    return {
        "type": type_uri(code),
        "title": title(code),
        "status": int(status),
        "detail": detail or status.phrase,
        "code": code,
    }


def problem_of_run(error: RunError) -> JsonObject:
    """The error that ended a run as a problem document, for streams, whose status is already sent."""
    return problem(error.code, HTTPStatus(error.status or HTTPStatus.INTERNAL_SERVER_ERROR), error.message)


def status_reply(status: HTTPStatus, *, headers: dict[str, str] | None = None) -> Reply:
    """A problem document for errors without a class: unknown paths, wrong methods, bugs."""
    document = {"type": "about:blank", "title": status.phrase, "status": int(status), "detail": status.phrase}
    return Reply(value=document, status=int(status), media_type=MEDIA_TYPE, headers=headers or {})
