"""Which calls a client may answer: those that stay open. What other tools returned is not for it to say."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.agents.asking.framework_calls import NAMES
from greenroom.errors import InvalidRequest
from greenroom.records.content import FunctionResponse
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event


def answered_calls(
    events: CopyOnWriteList[Event], responses: Sequence[FunctionResponse], *, location: tuple[str, ...]
) -> dict[str | None, Event]:
    """The events with the calls that these responses answer, by call id; a long-running call may be answered again.

    Answers to requests for approval are let through, and looked into where approvals are redeemed. Raises
    InvalidRequest, with the location, for answers to calls that nobody made, and to calls that are not long-running.
    """
    ids = {response.id for response in responses}
    found: dict[str | None, Event] = {}
    not_open: dict[str | None, Event] = {}
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        for call in event.get_function_calls():
            if call.id in ids:
                is_open = call.id in (event.long_running_tool_ids or ())
                (found if is_open else not_open).setdefault(call.id, event)
        if len(found) == len(ids):
            return found
    for response in responses:
        if response.id in found:
            continue
        if response.id not in not_open:
            raise InvalidRequest(f"No function call of this session has the id {response.id}", location=location)
        if response.name not in NAMES:
            raise InvalidRequest(
                f"The function call {response.id} is not long-running: its tool answers it, not a client",
                location=location,
            )
        found[response.id] = not_open[response.id]
    return found
