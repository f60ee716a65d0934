"""Errors as documents: RFC 9457 problem details, with the `detail` text that ADK's clients read."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

from greenroom.errors import GreenroomError, InvalidRequest, Unavailable
from greenroom.server.call import Reply

PROBLEM_TYPE = "urn:greenroom:error:"
MEDIA_TYPE = "application/problem+json"


def error_reply(error: GreenroomError) -> Reply:
    document: dict[str, Any] = {
        "type": PROBLEM_TYPE + _kebab(error.code),
        "title": _words(error.code),
        "status": int(error.status),
        "detail": error.detail,
        "code": error.code,
    }
    if isinstance(error, InvalidRequest):
        document["errors"] = [{"type": error.kind, "loc": list(error.location), "msg": error.detail}]
    headers = {"retry-after": "1"} if isinstance(error, Unavailable) else {}
    return Reply(value=document, status=int(error.status), media_type=MEDIA_TYPE, headers=headers)


def status_reply(status: HTTPStatus, *, detail: str | None = None, headers: dict[str, str] | None = None) -> Reply:
    """For what has no error class: unknown paths, wrong methods, bugs."""
    document = {"type": "about:blank", "title": status.phrase, "status": int(status), "detail": detail or status.phrase}
    return Reply(value=document, status=int(status), media_type=MEDIA_TYPE, headers=headers or {})


def _kebab(code: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", code).lower()


def _words(code: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", " ", code).capitalize()
