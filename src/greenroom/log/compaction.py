"""Finds the events of a log that a compaction replaces by a summary. A compaction is an event; nothing is removed. A
small log:

    1  e-1  user  "My cat is called Oslo"
    2  e-1  desk  "Noted."
    3  e-2  user  "Pay 5"
    4  e-2  desk  call c-1 pay(amount=5), which waits for an approval
    5  c-1  user  compaction of 1 to 2: "The user's cat is called Oslo."

A prompt shows the summary and the lines 3 and 4. A call and its responses are shown or replaced together, and a call
that somebody may still answer is shown. Ranges of sequence numbers are kept in the custom metadata of the event, where
ADK's clients accept them; of a compaction that ADK wrote, the range of times counts.

Source: ADK's Python runner and contents processor.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from greenroom.errors import InvalidRequest
from greenroom.log.calls import closes_call
from greenroom.log.state import log_state_of
from greenroom.records import wire
from greenroom.records.base import Record
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event

COMPACTED = "greenroom:compaction"
"""Key in the custom metadata of a compaction's event, of a `CompactedRange`."""


class CompactedRange(Record, kw_only=True):
    """The events that a summary replaces, by sequence number. last_id: id of the last of them.

    load_seq: of the first event that a run needs: those before it are not loaded with the session. taken_back: ids of
    earlier compactions that a rewind took back.
    """

    first_seq: int
    last_seq: int
    last_id: str
    load_seq: int
    taken_back: list[str] = []  # noqa: RUF012 - msgspec makes a new one each time


class Summary(NamedTuple):
    """A summary, as stored in an event.

    first, last: indexes of the events that it replaces, negative for events that are not loaded. event: the event with
    the compaction.
    """

    first: int
    last: int
    event: Event


class Compacted(NamedTuple):
    """The result of a log's compactions.

    summaries: the effective ones, in the order of their ranges. hidden: indexes of the events that they replace.
    """

    summaries: tuple[Summary, ...] = ()
    hidden: frozenset[int] = frozenset()


_NONE = Compacted()


def compacted(events: CopyOnWriteList[Event]) -> Compacted:
    """Returns the replacements by the log's compactions; the same object until there is a new compaction. The log is
    read once.
    """
    log_state = log_state_of(events)
    if not log_state.has_compactions and not events.carried:
        return _NONE

    rewound = log_state.rewound
    end = len(events)
    seen, known_rewound, cached = events.derived.get("compacted") or (0, rewound, _NONE)
    if seen > end:  # another holder of the log has appended to it
        return _fold(events, rewound) if cached.summaries else cached
    if known_rewound != rewound or any(_changes_summaries(event, cached) for event in events[seen:]):
        cached = _fold(events, rewound)
    if end:
        events.derived["compacted"] = end, rewound, cached
    return cached


def _changes_summaries(event: Event, compacted_log: Compacted) -> bool:
    """Whether it is a compaction, or a user's answer, which may be to a call that is hidden."""
    return event.actions.compaction is not None or (
        bool(compacted_log.summaries) and event.author == "user" and bool(event.get_function_responses())
    )


def range_of(event: Event) -> CompactedRange | None:
    """The range that a compaction of ours says; None for ADK's."""
    given = (event.custom_metadata or {}).get(COMPACTED)
    try:
        return wire.from_plain(given, CompactedRange) if given is not None else None
    except (InvalidRequest, msgspec.ValidationError):
        return None


def changes_loading(event: Event) -> bool:
    """True if the event changes the set of events that a run needs: a compaction, or a rewind, which may undo one."""
    return event.actions.compaction is not None or event.actions.rewind_before_invocation_id is not None


def _fold(events: CopyOnWriteList[Event], rewound: frozenset[int]) -> Compacted:
    summaries: list[Summary] = []
    taken_back: set[str] = set()
    widest: Summary | None = None
    for index in range(len(events) - 1, -1 - len(events.carried), -1):
        event = events[index] if index >= 0 else events.carried[index]
        if event.actions.compaction is None or index in rewound or event.id in taken_back:
            continue
        if widest is not None and _contains(widest, event, events.skipped):
            continue
        own = range_of(event)
        summary = _summary(events, event, own, before=index if index >= 0 else len(events))
        if own is not None:
            taken_back.update(own.taken_back)
        summaries.append(summary)
        if widest is None or summary.first <= widest.first:
            widest = summary
    if not summaries:
        return _NONE
    summaries.reverse()
    summaries.sort(key=lambda summary: summary.last)
    hidden = {index for summary in summaries for index in range(max(summary.first, 0), summary.last + 1)}
    _show_halves(call_groups(events), hidden)
    return Compacted(tuple(summaries), frozenset(hidden))


def _contains(newer: Summary, event: Event, skipped: int) -> bool:
    own = range_of(event)
    if own is not None and range_of(newer.event) is not None:
        return newer.first <= own.first_seq - 1 - skipped and own.last_seq - 1 - skipped <= newer.last
    wide = newer.event.actions.compaction
    narrow = event.actions.compaction
    if wide is None or narrow is None:
        return False
    return wide.start_timestamp <= narrow.start_timestamp and narrow.end_timestamp <= wide.end_timestamp


def _summary(events: CopyOnWriteList[Event], event: Event, own: CompactedRange | None, *, before: int) -> Summary:
    if own is not None:
        last = own.last_seq - 1 - events.skipped
        if last < 0 or (last < before and events[last].id == own.last_id):
            return Summary(own.first_seq - 1 - events.skipped, last, event)
    compaction = event.actions.compaction
    inside = [
        at
        for at in range(before)
        if compaction is not None and compaction.start_timestamp <= events[at].timestamp <= compaction.end_timestamp
    ]
    return Summary(inside[0], inside[-1], event) if inside else Summary(-1, -1, event)


def call_groups(events: CopyOnWriteList[Event], *, run_id: str | None = None) -> dict[int, set[int]]:
    """Returns, by the index of each event with calls, the indexes of the events with their responses, and the length of
    the log if a call may still be answered: a long-running call, or a call of a run that waits or has the id `run_id`.
    """
    groups: dict[int, set[int]] = {}
    newest: dict[str | None, int] = {}
    unanswered: set[tuple[int, str | None]] = set()
    rewound = log_state_of(events).rewound
    for index, event in enumerate(events):
        for part in (event.content.parts if event.content is not None and index not in rewound else None) or ():
            call = part.function_call
            response = part.function_response
            if call is not None:
                newest[call.id] = index
                groups.setdefault(index, set())
                unanswered.add((index, call.id))
            at = newest.get(response.id) if response is not None else None
            if response is not None and at is not None:
                groups[at].add(index)
                if closes_call(event, response) or response.id not in (events[at].long_running_tool_ids or ()):
                    unanswered.discard((at, response.id))

    log_state = log_state_of(events)
    for index, call_id in unanswered:
        run = events[index].invocation_id
        long_running = events[index].long_running_tool_ids or ()
        if call_id in long_running or run == run_id or log_state.is_waiting(run):
            groups[index].add(len(events))

    return groups


def _show_halves(groups: dict[int, set[int]], hidden: set[int]) -> None:
    """Shows a call with all its responses if any of these is shown."""
    is_changed = True
    while is_changed:
        is_changed = False
        for index, answers in groups.items():
            shown = {index, *answers} - hidden
            if shown and len(shown) <= len(answers):
                hidden -= {index, *answers}
                is_changed = True


def closed_prefix(groups: dict[int, set[int]], begin: int, end: int) -> int:
    """Returns the largest index up to `end` such that no call from `begin` on is answered after it, or still open."""
    reach = closed = begin
    for index in range(begin, end):
        reach = max(reach, index, *groups.get(index, ()))
        if reach == index:
            closed = index + 1
    return closed
