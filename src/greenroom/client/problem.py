"""Decodes a server's problem documents into exceptions."""

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


class _ProblemDocument(msgspec.Struct):
    """The fields of a problem document that are read. The status is taken from the response, not from the document."""

    detail: str = ""
    code: str = ""
    errors: list[_Cause] = []


_decode = msgspec.json.Decoder(_ProblemDocument).decode


def error_of(status: int, body: bytes) -> GreenroomError:
    """The exception for an error response, also for one of a proxy or another server."""
    try:
        problem = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _by_status(status, body.decode(errors="replace")[:200].strip() or _phrase(status))

    error = error_named(problem.code, problem.detail or _phrase(status), status)
    if isinstance(error, InvalidRequest):
        cause = problem.errors[0] if problem.errors else _Cause()
        error.location = tuple(cause.loc)
        error.kind = cause.type

    return error


def error_named(code: str, detail: str, status: int) -> GreenroomError:
    """An exception of greenroom's class `code`, with `detail` only, or of a class that fits the status."""
    error_class = _classes().get(code)
    if error_class is None:
        return _by_status(status, f"{code}: {detail}" if code else detail)
    error = error_class.__new__(error_class)
    GreenroomError.__init__(error, detail)
    return error


@cache
def _classes() -> dict[str, type[GreenroomError]]:
    return {error.__name__: error for error in error_classes()}


def _by_status(status: int, detail: str) -> GreenroomError:
    if status in (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT):
        return Unavailable(detail)
    if status == HTTPStatus.NOT_FOUND:
        return NotFound(detail)
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return CallerError(detail)
    return RunFailed(detail)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:  # proxies have non-standard ones
        return f"Status {status}"
