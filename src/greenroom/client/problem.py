"""A server's error documents as the exceptions they were made from."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus

import msgspec

from greenroom.errors import (
    CallerError,
    GreenroomError,
    InvalidRequest,
    NotFound,
    RunFailed,
    Unavailable,
    error_classes,
)


class _Cause(msgspec.Struct):
    loc: list[str | int] = []
    type: str = "value_error"


class _Problem(msgspec.Struct):
    """What of RFC 9457 and of ours is read. status is that of the answer, whatever the document says."""

    detail: str = ""
    code: str = ""
    errors: list[_Cause] = []


_decode = msgspec.json.Decoder(_Problem).decode


def error_of(status: int, body: bytes) -> GreenroomError:
    """The error that an answer tells of; also one that a proxy or another server wrote."""
    try:
        problem = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _by_status(status, body.decode(errors="replace")[:200].strip() or _phrase(status))
    error = error_named(problem.code, problem.detail or _phrase(status), status)
    if isinstance(error, InvalidRequest):
        cause = problem.errors[0] if problem.errors else _Cause()
        error.location, error.kind = tuple(cause.loc), cause.type
    return error


def error_named(code: str, detail: str, status: int) -> GreenroomError:
    """Of greenroom's own class if it is one of these, which then has its detail only; else of the class that fits."""
    found = _classes().get(code)
    if found is None:
        return _by_status(status, f"{code}: {detail}" if code else detail)
    error = found.__new__(found)
    GreenroomError.__init__(error, detail)
    return error


@cache
def _classes() -> dict[str, type[GreenroomError]]:
    return {one.__name__: one for one in error_classes()}


def _by_status(status: int, detail: str) -> GreenroomError:
    if status in (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT):
        return Unavailable(detail)
    if status == HTTPStatus.NOT_FOUND:
        return NotFound(detail)
    return CallerError(detail) if status < HTTPStatus.INTERNAL_SERVER_ERROR else RunFailed(detail)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:  # proxies have some of their own
        return f"Status {status}"
