"""Errors as documents: RFC 9457 problem details, with the `detail` text that ADK's clients read."""

from __future__ import annotations

import re
from http import HTTPStatus

from greenroom.errors import GreenroomError, InvalidRequest
from greenroom.server.call import Reply

PROBLEM_TYPE = "urn:greenroom:error:"
MEDIA_TYPE = "application/problem+json"


def error_reply(error: GreenroomError) -> Reply:
    reply = failure_reply(error.code, error.status, error.detail)
    if isinstance(error, InvalidRequest):
        reply.value["errors"] = [{"type": error.kind, "loc": list(error.location), "msg": error.detail}]
    return reply


def failure_reply(code: str, status: HTTPStatus, detail: str, headers: dict[str, str] | None = None) -> Reply:
    """code: the name of an error; any class name will do."""
    document = {
        "type": PROBLEM_TYPE + _kebab(code),
        "title": _words(code),
        "status": int(status),
        "detail": detail or status.phrase,
        "code": code,
    }
    waiting = {"retry-after": "1"} if status is HTTPStatus.SERVICE_UNAVAILABLE else {}
    return Reply(value=document, status=int(status), media_type=MEDIA_TYPE, headers={**waiting, **(headers or {})})


def status_reply(status: HTTPStatus, *, detail: str | None = None, headers: dict[str, str] | None = None) -> Reply:
    """For what has no error class: unknown paths, wrong methods, bugs."""
    document = {"type": "about:blank", "title": status.phrase, "status": int(status), "detail": detail or status.phrase}
    return Reply(value=document, status=int(status), media_type=MEDIA_TYPE, headers=headers or {})


def _kebab(code: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", code).lower()


def _words(code: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", " ", code).capitalize()
