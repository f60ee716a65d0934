"""The steps of a run: the parts of its events that other code of the same app must repeat.

A step is an event without ids, times, state and texts: the agent or the node, the calls with the names of their
arguments, the calls that have a response, and a request to a person with all that the person is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import NamedTuple, cast

from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import FunctionCall
from greenroom.records.event import Event
from greenroom.records.human_requests import (
    REQUEST_CONFIRMATION,
    REQUEST_CREDENTIAL,
    credential_key,
    original_call,
    requests_in,
)
from greenroom.records.waiting_run import VersionDifference


class Action(NamedTuple):
    """A part of a step."""

    text: str
    """For people."""
    details: JsonValue = None
    """Content that must be equal besides the text."""


class Step(NamedTuple):
    seq: int
    """The sequence number of the event in its session's log."""
    group: tuple[str, str]
    """The branch and the isolation scope. Steps of different groups may change their order."""
    actor: str
    actions: list[Action]

    @property
    def text(self) -> str:
        return f"{self.actor} {' and '.join(action.text for action in self.actions)}"

    def is_within(self, call_ids: Iterable[str]) -> bool:
        """Whether it is a step of an agent or a node that one of these calls runs."""
        return any(f"@{call_id}" in place for call_id in call_ids for place in (*self.group, self.actor))


def steps_of(events: Iterable[tuple[int, Event]]) -> Iterator[Step]:
    """The steps in events of one run, each given with its sequence number. Events of users and checkpoints are none.

    After a retry, the responses to the calls of one reply are in two events, and not in the order of the calls; they
    are one step.
    """
    steps: list[Step] = []
    of_responses: dict[tuple[str, str], Step] = {}
    """By group, its newest step if that has responses only."""
    for seq, event in events:
        if event.author == "user" and event.node_info is None:
            continue
        actions = list(_actions_of(event))
        if not actions:
            continue
        actor = f"node {event.node_path!r}" if event.node_path else f"agent {event.author!r}"
        step = Step(seq, (event.branch or "", event.isolation_scope or ""), actor, actions)
        earlier = of_responses.pop(step.group, None)
        is_of_responses = len(event.get_function_responses()) == len(actions)
        if is_of_responses and earlier is not None and earlier.actor == actor:
            step = earlier
            step.actions.extend(actions)
        else:
            steps.append(step)
        if is_of_responses:
            step.actions.sort(key=lambda action: action.text)
            of_responses[step.group] = step
    return iter(steps)


def _actions_of(event: Event) -> Iterator[Action]:
    if event.actions.compaction is not None:
        return

    requests = {request.id: request for request in requests_in(event)}
    waiting = event.long_running_tool_ids or ()
    for call in event.get_function_calls():
        if call.id in requests:
            yield _request(call)
        else:
            names = ", ".join(sorted(call.args or {}))
            yield Action(f"calls {call.name}({names})" + (", which is answered later" if call.id in waiting else ""))

    for response in event.get_function_responses():
        yield Action(f"gets the response of {response.name}")

    if event.error_code is not None:
        yield Action(f"fails with {event.error_code}")
    elif event.content is not None and not event.get_function_calls() and not event.get_function_responses():
        yield Action("answers")
    elif event.content is None and event.output is not None:
        yield Action("gives its output")

    if event.actions.route is not None:
        yield Action(f"takes the route {event.actions.route!r}")


def _request(request: FunctionCall) -> Action:
    args = request.args or {}
    original = original_call(request)
    if request.name == REQUEST_CONFIRMATION and original is not None:
        shown: JsonObject = {"args": original.args or {}, "confirmation": args.get("toolConfirmation")}
        names = ", ".join(sorted(original.args or {}))
        return Action(f"asks a person to approve {original.name}({names})", shown)
    if request.name == REQUEST_CREDENTIAL:
        return Action("asks the user to log in", credential_key(args.get("authConfig")))
    return Action(f"calls {request.name}", {key: value for key, value in args.items() if key != "interruptId"})


def first_difference(
    then: Iterable[Step], now: Iterable[Step], *, end: int | None, further: str | None = None
) -> VersionDifference | None:
    """The first step of `then` that is another one in `now`.

    end: the sequence number for a step that only `now` has; None where that is no difference. further: what follows in
    `now`, and wasn't done.
    """
    differences: list[VersionDifference] = []
    before = _by_group(then)
    after = _by_group(now)
    for group in {**before, **after}:
        for earlier, later in zip_longest(before.get(group, ()), after.get(group, ())):
            if earlier is not None and later is not None and _are_equal(earlier, later):
                continue
            seq = earlier.seq if earlier is not None else end
            if seq is not None:
                differences.append(VersionDifference(seq=seq, text=_text(earlier, later, further)))
            break

    if further is not None and end is not None and not differences:
        differences.append(VersionDifference(seq=end, text=_text(None, None, further)))
    return min(differences, key=lambda difference: difference.seq, default=None)


def _are_equal(earlier: Step, later: Step) -> bool:
    return (earlier.actor, earlier.actions) == (later.actor, later.actions)


def _by_group(steps: Iterable[Step]) -> dict[tuple[str, str], list[Step]]:
    groups: dict[tuple[str, str], list[Step]] = {}
    for step in steps:
        groups.setdefault(step.group, []).append(step)
    return groups


def _text(earlier: Step | None, later: Step | None, further: str | None) -> str:
    if earlier is None:
        return f"the run did nothing more here; now {later.text if later else further}"
    if later is None:
        return f"{earlier.text}; now {further or 'this step is missing'}"
    if earlier.text == later.text:
        return f"{earlier.text}; now with {_changed(earlier, later)}"
    return f"{earlier.text}; now {later.text}"


def _changed(earlier: Step, later: Step) -> str:
    """Names the details that differ, without their values: not everybody who answers a run may see them."""
    for before, after in zip(earlier.actions, later.actions, strict=False):
        names = list(_different_names(before.details, after.details))
        if names:
            return f"another {', '.join(names)}"
    return "other details"


def _different_names(before: JsonValue, after: JsonValue) -> Iterator[str]:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return
    earlier = cast("JsonObject", before)
    later = cast("JsonObject", after)
    for name in sorted(earlier.keys() | later.keys()):
        if earlier.get(name) != later.get(name):
            inner = list(_different_names(earlier.get(name), later.get(name)))
            yield from inner or [name]
