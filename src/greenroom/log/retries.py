"""Finds the events that retries of runs took back. A retry is an event; nothing is removed. A small log:

    1  e-1  user  "Pay 5, and print it"
    2  e-1  desk  calls c-1 pay(amount=5) and c-2 print()
    3  e-1  desk  responses c-1 {"paid": 5} and c-2 {"error": …}, errorCode ConnectionError     the run has failed
    4  e-1  desk  retry 1, takes back line 3
    5  e-1  desk  response c-1 {"paid": 5}                  stored in one step with line 4

After line 5 the log counts as one whose run was cut off after line 2 and has the response to c-1 only: resumption
makes the call c-2 again, or reports it as interrupted, as its tool's `on_interrupt` says. A retry takes back what ended
the run: the error, the half of a message, and responses that call something interrupted.

In a fork the retry is of another run, whose events are the fork's, too: from then on they count as the new run's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import msgspec

from greenroom.errors import InvalidRequest
from greenroom.log.calls import INTERRUPTED, REFUSED
from greenroom.log.run_state import RunState
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue, Record
from greenroom.records.content import Content
from greenroom.records.event import RETRY, Event
from greenroom.records.human_requests import requests_in
from greenroom.records.identifiers import new_event_id

FAILED_CALLS = "greenroom:failed_calls"
"""Key in the custom metadata of the responses with which a run fails, of the ids of the calls that failed it; left
out if there is only one call."""


class RetryMark(Record, kw_only=True):
    """The beginning of a retry, in the custom metadata of its event."""

    number: int
    """Counts the retries of the run, from 1."""
    taken_back: list[str]
    """Ids of the events that don't count any more."""
    retried_run: str | None = None
    """The run that it continues, if that has another id."""


def retry_in(event: Event) -> RetryMark | None:
    """The retry that begins with the event."""
    if not event.is_retry():
        return None
    try:
        return wire.from_plain((event.custom_metadata or {})[RETRY], RetryMark)
    except (InvalidRequest, msgspec.ValidationError):  # in a log that a client brought along
        return None


def taken_back_indexes(events: Sequence[Event], rewound: frozenset[int]) -> frozenset[int]:
    """Returns the indexes of the events that retries took back, and of the retries. Those that a rewind took back count
    for nothing.
    """
    found: set[int] = set()
    positions: dict[str, int] = {}
    for index, event in enumerate(events):
        positions[event.id] = index
        retry = retry_in(event) if index not in rewound else None
        if retry is not None:
            found.update(positions[taken] for taken in retry.taken_back if taken in positions)
            found.add(index)
    return frozenset(found)


def retry_events(
    events: Sequence[Event], run: RunState | None, *, number: int, author: str, retried_run: str | None = None
) -> list[Event]:
    """Returns the events with which the retry of a run begins. events: the session's. run: None if the session has no
    event of it.
    """
    taken_back = list(_ending(events, run)) if run is not None else []
    mark = RetryMark(number=number, taken_back=[event.id for event in taken_back], retried_run=retried_run)
    marking = Event(author=author, custom_metadata={RETRY: cast("JsonObject", msgspec.to_builtins(mark))})
    kept = [_without_failed_calls(event) for event in reversed(taken_back)]
    return [marking, *(event for event in kept if event is not None)]


def _ending(events: Sequence[Event], run: RunState) -> Iterator[Event]:
    """The events that ended a run, newest first. Failures of a workflow's nodes stay: such a node begins again."""
    for index in reversed(run.indexes):
        event = events[index]
        if event.author == "user" and event.node_info is None:
            return
        responses = event.get_function_responses()
        if event.is_cut_off:
            yield event
        elif event.node_path and event.error_code is not None:
            continue
        elif event.error_code is not None and (event.content is None or event.interrupted or responses):
            yield event
        elif responses:
            if all(response.response in (INTERRUPTED, REFUSED) for response in responses):
                yield event
        elif not requests_in(event):
            return


def _without_failed_calls(event: Event) -> Event | None:
    """The event of the responses that stay; None if there are none. Its changes of the state are stored already."""
    metadata = dict(event.custom_metadata or {})
    responses = event.get_function_responses()
    only_call = [responses[0].id] if len(responses) == 1 else []
    again = cast("list[JsonValue]", metadata.pop(FAILED_CALLS, only_call))
    parts = [
        part
        for part in (event.content.parts if event.content is not None else None) or ()
        if (response := part.function_response) is not None
        and response.id not in again
        and response.response not in (INTERRUPTED, REFUSED)
    ]
    if not parts:
        return None
    return msgspec.structs.replace(
        event,
        id=new_event_id(),
        content=Content(role="user", parts=parts),
        actions=msgspec.structs.replace(event.actions, state_delta={}),
        custom_metadata=metadata or None,
        error_code=None,
        error_message=None,
    )
