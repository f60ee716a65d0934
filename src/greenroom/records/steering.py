"""Messages that were sent to a run while it was active, and that it has read within its turn.

The event has an id made of the id of the request's own run. A log holds an id once, so the message is stored once,
however often its storing is tried.
"""

from __future__ import annotations

from greenroom.records.event import Event

_PREFIX = "steering-"


def steering_event_id(run_id: str) -> str:
    """run_id: of the run that the request would have started."""
    return f"{_PREFIX}{run_id}"


def is_steering(event: Event) -> bool:
    """Whether it is such a message, with which no turn begins."""
    return event.author == "user" and event.id.startswith(_PREFIX)
