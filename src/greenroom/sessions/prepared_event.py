"""Events ready to be stored."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.event import Event
from greenroom.records.state import TEMP_PREFIX, ScopedDelta, split_by_scope
from greenroom.sessions.frozen import from_frozen, to_frozen


class PreparedEvent:
    """An event ready to be stored: its state delta without `temp:` keys, and no longer shared with the caller."""

    __slots__ = ("event", "json", "original", "scoped", "temp")

    def __init__(self, event: Event) -> None:
        self.event = event
        self.json: bytes | None = None
        """The stored form, where the store encodes events."""

        self.original = event.actions.state_delta
        """The caller's delta."""

        self.temp: JsonObject = {}
        """Its `temp:` keys, which are not stored."""

        self.scoped = _NO_DELTA
        """The rest, frozen."""

        if self.original:
            self.temp = {key: value for key, value in self.original.items() if key.startswith(TEMP_PREFIX)}
            stored = to_frozen({key: value for key, value in self.original.items() if key not in self.temp})
            self.scoped = split_by_scope(stored)
            event.actions.state_delta = from_frozen(stored)


_NO_DELTA = ScopedDelta({}, {}, {})


def prepare(events: Sequence[Event], *, encode: bool = False) -> list[PreparedEvent]:
    """Prepares events that are stored together; if one of them can't be, all are unchanged."""
    prepared: list[PreparedEvent] = []
    try:
        for event in events:
            prepared_event = PreparedEvent(event)
            prepared.append(prepared_event)
            if encode:
                prepared_event.json = wire.encode(event)
    except Exception:
        undo(prepared)
        raise
    return prepared


def undo(prepared: Sequence[PreparedEvent]) -> None:
    """Gives the events their deltas back: they were not stored, and may be appended again."""
    for one in prepared:
        one.event.actions.state_delta = one.original
