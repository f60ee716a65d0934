"""Answers to the calls that a run leaves open when it is stopped, so that its log is whole."""

from __future__ import annotations

from greenroom.records.calls import INTERRUPTED, REFUSED, ledger_of
from greenroom.records.content import Content, FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.session import Session


def answers_to_grants(session: Session, invocation_id: str) -> list[Event]:
    """For the calls that a person decided on, and that were not made yet."""
    events: list[Event] = []
    ledger = ledger_of(session.events)
    messages = ledger.run(invocation_id).messages if ledger.has_run(invocation_id) else []
    for decided in ledger.decided_at(messages[-1]) if messages else ():
        is_refused = decided.answer is not None and not decided.answer.confirmed
        outcome = REFUSED if is_refused else INTERRUPTED
        response = FunctionResponse(id=decided.call.id, name=decided.call.name, response=dict(outcome))
        content = Content(role="user", parts=[Part(function_response=response)])
        events.append(Event(author=decided.author, branch=decided.branch, content=content))
    return events


def answers_to_calls(session: Session, invocation_id: str) -> dict[str | None, Event]:
    """For all other calls without a response: one event for each isolation scope."""
    answers: dict[str | None, Event] = {}
    for calls, answered in _calls_of(session, invocation_id):
        for call in calls.get_function_calls():
            if call.id not in answered:
                response = FunctionResponse(id=call.id, name=call.name, response=dict(INTERRUPTED))
                answer = answers.setdefault(calls.isolation_scope, Event(author=calls.author))
                answer.author, answer.branch = calls.author, calls.branch
                answer.isolation_scope = calls.isolation_scope
                parts = answer.content.parts if answer.content is not None else None
                answer.content = Content(role="user", parts=[*(parts or ()), Part(function_response=response)])
    return answers


def _calls_of(session: Session, invocation_id: str) -> list[tuple[Event, set[str | None]]]:
    """Events of the run with calls, each with the ids that were answered behind it, oldest first."""
    answered: set[str | None] = set()
    found: list[tuple[Event, set[str | None]]] = []
    for index in range(len(session.events) - 1, -1, -1):
        event = session.events[index]
        if event.invocation_id != invocation_id:
            if event.content is None:
                continue  # a client changed the state meanwhile
            break
        answered.update(response.id for response in event.get_function_responses())
        if event.get_function_calls():
            found.append((event, set(answered)))
    return found[::-1]
