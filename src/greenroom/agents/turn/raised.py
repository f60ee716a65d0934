"""A tool's error that ends the run, written down with the responses it leaves behind: a run that is cut off before its
last event ends in the same way when it is taken up again."""

from __future__ import annotations

from typing import cast

from greenroom.errors import GreenroomError, error_of
from greenroom.records.base import JsonObject
from greenroom.records.event import Event

_KEY = "greenroom:raised"


def note_raised(event: Event, error: Exception) -> None:
    if isinstance(error, GreenroomError):
        told = {"code": error.code, "detail": error.detail}
        event.custom_metadata = {**(event.custom_metadata or {}), _KEY: told}


def raised_in(event: Event) -> GreenroomError | None:
    told = (event.custom_metadata or {}).get(_KEY)
    if not isinstance(told, dict):
        return None
    written = cast("JsonObject", told)
    return error_of(str(written.get("code")), str(written.get("detail")))
