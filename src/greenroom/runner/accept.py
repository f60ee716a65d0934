"""Accepts a user's message: checks it against the session's log, and finds the run that it starts or continues.

The message of a request is replaced by the accepted one before anything is stored or executed.
"""

from __future__ import annotations

from typing import NamedTuple

from greenroom.errors import ApprovalRefused, InvalidRequest, RunNotFound
from greenroom.log.state import LogState, log_state_of
from greenroom.records.base import JsonObject
from greenroom.records.content import Content
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event
from greenroom.records.human_requests import is_input_request, read_input, responses_in
from greenroom.records.identifiers import new_invocation_id
from greenroom.records.session import GetSessionConfig

SINCE_COMPACTION = GetSessionConfig(from_compaction=True)


def needs_older_events(events: CopyOnWriteList[Event], message: Content | None, invocation_id: str | None) -> bool:
    """Whether a message continues a run, or answers a call, that is not among the events that were loaded."""
    answers = responses_in(message)
    if invocation_id is None and not answers:
        return False
    log_state = log_state_of(events)
    is_older = invocation_id is not None and not log_state.has_run(invocation_id)
    return is_older or not all(log_state.has_call(answer.id) for answer in answers)


def check_run(
    events: CopyOnWriteList[Event], message: Content | None, state_delta: JsonObject | None, invocation_id: str | None
) -> None:
    """Raises RunNotFound for the id of a run to continue, with nothing new, that the session doesn't have."""
    if invocation_id is None or message is not None or state_delta:
        return
    if not log_state_of(events).has_run(invocation_id):
        raise RunNotFound(invocation_id)


_PARTS = ("body", "newMessage", "parts")


class Accepted(NamedTuple):
    """The result of `accept_message`."""

    message: Content | None
    """The message as a user's."""
    answered: Event | None
    """The event with the calls that it answers, or of the task that waits for it."""
    run_id: str | None
    """The run that it continues; None if it starts one."""


def accept_message(events: CopyOnWriteList[Event], new_message: Content | None, run_id: str | None = None) -> Accepted:
    """Checks a message before anything is done. An answer continues the run that asked, as a task's message does.

    Raises InvalidRequest, and ApprovalRefused.
    """
    message = checked_message(new_message)
    answered = answered_call(events, message)
    if answered is not None:
        log_state = log_state_of(events)
        log_state.decide(message)
        log_state.credential_answers(message)
        check_inputs(log_state, message)
        return Accepted(message, answered, log_state.run_with(answered) or new_invocation_id())

    task = log_state_of(events).waiting_task() if message is not None else None
    run_of_task = log_state_of(events).run_with(task) if task is not None else None
    if task is not None and run_id in (None, run_of_task):
        return Accepted(message, task, run_of_task)
    return Accepted(message, None, run_id)


def check_is_of_one_kind(message: Content | None) -> None:
    """Raises InvalidRequest for function responses beside other parts, which ADK's interfaces refuse, too.

    Other protocols allow both in one request; their gates put the responses first.
    """
    responses = responses_in(message)
    if message is None or not responses:
        return
    parts = message.parts or ()
    if len(responses) < len(parts) and not any(part.function_call is not None for part in parts):
        raise InvalidRequest("A message holds either function responses or other parts, not both", location=_PARTS)


def checked_message(message: Content | None) -> Content | None:
    """The message as a user's. Raises InvalidRequest for one with function calls."""
    if message is None:
        return None
    if any(part.function_call is not None for part in message.parts or ()):
        raise InvalidRequest("A user's message can't hold function calls", location=_PARTS)
    return message if message.role == "user" else Content(role="user", parts=message.parts)


def answered_call(events: CopyOnWriteList[Event], message: Content | None) -> Event | None:
    """The event with the calls that this message answers; None when it is not an answer.

    Raises InvalidRequest when it answers calls that are not a client's to answer, or calls of several runs.
    """
    responses = responses_in(message)
    if not responses:
        return None
    log_state = log_state_of(events)
    calling = [log_state.call_to_answer(response, location=_PARTS) for response in responses]
    if any(log_state.run_with(event) != log_state.run_with(calling[0]) for event in calling):
        raise InvalidRequest("The function responses answer calls of several runs", location=_PARTS)
    return calling[0]


def check_inputs(log_state: LogState, message: Content | None) -> None:
    """Checks a message's answers to the requests of workflows' nodes.

    Raises InvalidRequest for an answer that does not fit the request's schema, and ApprovalRefused for an answer to an
    answered request, or a duplicate.
    """
    seen: set[str | None] = set()
    for response in responses_in(message):
        request = log_state.find_request(response.id)
        if request is None or not is_input_request(request.call):
            continue
        log_state.reject_duplicate(request)
        if response.id in seen:
            raise ApprovalRefused("the same message answers it twice")
        seen.add(response.id)
        read_input(request.call, response)


def is_to_task(message: Content | None, answered: Event | None) -> bool:
    """Whether the accepted message is the user's next message to a task that waits for it."""
    return answered is not None and not responses_in(message)
