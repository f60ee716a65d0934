"""Finds the events of a log that a rewind took back. A rewind is an event; nothing is removed. A small log:

    0  e-1  user  "Pay 5"
    1  e-2  user  "Pay 6"
    2  e-2  desk  "Done."
    3  e-3  user  rewindBeforeInvocationId: e-2     lines 1 to 3 are taken back: the newest event that counts is line 0

Source: ADK's Python runner.
"""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.records.event import Event


def rewound_indexes(events: Sequence[Event]) -> frozenset[int]:
    """Returns the indexes of the events undone by rewinds, and of the rewinds. Reads all events: use
    `log_state_of(events).rewound`, where they are known.

    A rewind undoes the events from the first event of its run up to itself, earlier rewinds included. A rewind to a run
    without an event before it has no effect.
    """
    first: dict[str, int] = {}
    for index, event in enumerate(events):
        first.setdefault(event.invocation_id, index)

    rewound: set[int] = set()
    index = len(events) - 1
    while index >= 0:
        run = events[index].actions.rewind_before_invocation_id
        begins_at = first.get(run, index) if run else index
        if begins_at < index:
            rewound.update(range(begins_at, index + 1))
        index = min(index, begins_at) - 1
    return frozenset(rewound)
