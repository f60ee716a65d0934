"""Calls that the framework writes into the log by itself, to ask a person for something.

A model may write calls of the same names. They are told apart by what no model can write: only the framework lists such
a call among those that stay open.
"""

from __future__ import annotations

import hashlib

from greenroom.records import wire
from greenroom.records.content import FunctionCall
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event

REQUEST_CONFIRMATION = "adk_request_confirmation"
REQUEST_CREDENTIAL = "adk_request_credential"
NAMES = frozenset({REQUEST_CONFIRMATION, REQUEST_CREDENTIAL})


def requests_in(event: Event) -> list[FunctionCall]:
    """What this event asks a person for."""
    ids = event.long_running_tool_ids
    if not ids or event.author == "user":
        return []
    return [call for call in event.get_function_calls() if call.name in NAMES and call.id in ids]


def find_request(
    events: CopyOnWriteList[Event], request_id: str | None, *, before: int
) -> tuple[int, FunctionCall] | None:
    """A request with its index in the log, the newest before that index."""
    for index in range(before - 1, -1, -1):
        for call in requests_in(events[index]):
            if call.id == request_id:
                return index, call
    return None


def digest(asking: Event, request: FunctionCall) -> str:
    """Stands for one request as it was made: by whom, in which run, when, and about what."""
    made = [asking.author, asking.branch, asking.invocation_id, asking.timestamp, request]
    return hashlib.sha256(wire.encode(made)).hexdigest()
