"""Taking a person's answer to whether a tool may run.

An approval is a single-use grant: it holds for one call of one run, with the very arguments that were shown, for a
limited time, and only if the agent that asks did make that call and the tool, or its gate, did ask. All of this is read
from what agents stored; what a model writes can't stand for it, because a model writes no actions. Whether agents of
this server stored it, and no client that brought a log along, is told by the run's record: see `runs.arrival`.

Source of names and shapes: ADK's tool confirmation.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple, cast

import msgspec

from greenroom.agents.asking.framework_calls import REQUEST_CONFIRMATION, find_request
from greenroom.errors import ApprovalRefused, InvalidRequest
from greenroom.invocation.context import InvocationContext
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionCall, FunctionResponse
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event, ToolConfirmation

EXPIRES_AFTER_SECONDS = 30 * 24 * 3600.0


class Grant(NamedTuple):
    """A call that is to be made now, with the arguments that were approved, and what a person said of it; None when
    nobody was asked whether it may be made. agent, branch: whose call it is."""

    call: FunctionCall
    answer: ToolConfirmation | None
    agent: str
    branch: str | None

    @property
    def made_by(self) -> tuple[str | None, str, str | None]:
        """Tells the call from others of the run: a model may give the same id to all of its calls."""
        return self.call.id, self.agent, self.branch


def as_it_ran(ctx: InvocationContext, agent: str, call_id: str, since: int) -> FunctionCall | None:
    """The call with the arguments that its tool was given last: a person may have edited them."""
    for grant in granted_by(ctx.session.events, since) if since >= 0 else ():
        if grant.call.id == call_id:
            return grant.call
    for _, event in ctx.share(agent):
        for call in event.get_function_calls():
            if call.id == call_id:
                return call
    return None


def check_answers(events: CopyOnWriteList[Event], message: Content | None) -> None:
    """Raises ApprovalRefused when the message answers a request that nobody made, that is used up or out of date."""
    answered: set[tuple[str | None, str, str | None]] = set()
    for response in _answers(events, message, len(events)):
        grant = _grant(events, response, before=len(events))
        if grant.made_by in answered:
            raise ApprovalRefused("the same message answers it twice")
        answered.add(grant.made_by)


def granted_by(events: CopyOnWriteList[Event], index: int, *, even_if_used: bool = False) -> list[Grant]:
    """What the message at that index of the log decides. even_if_used: also of calls that have their response since."""
    grants: dict[tuple[str | None, str, str | None], Grant] = {}
    for response in _answers(events, events[index].content, index):
        try:
            grant = _grant(events, response, before=index, until=index if even_if_used else None)
        except ApprovalRefused:
            continue  # another message of the same answer was first
        grants.setdefault(grant.made_by, grant)
    return list(grants.values())


def answers_only(ctx: InvocationContext, *, at: int) -> bool:
    """Whether the message at that index of the log does nothing but answer requests of the framework."""
    events = ctx.session.events
    parts = (events[at].content or Content()).parts or []
    answers = [part.function_response for part in parts if part.function_response is not None]
    return (
        bool(parts)
        and all(find_request(events, one.id, before=at) is not None for one in answers)
        and len(answers) == len(parts)
    )


def newest_message(events: CopyOnWriteList[Event], invocation_id: str) -> int | None:
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        if event.author == "user" and event.invocation_id == invocation_id and event.content is not None:
            return index
    return None


def _answers(events: CopyOnWriteList[Event], message: Content | None, before: int) -> Iterable[FunctionResponse]:
    """The answers to such requests: by the id of what they answer, and by the name that they claim."""
    for part in (message.parts if message is not None else None) or ():
        response = part.function_response
        if response is None:
            continue
        found = find_request(events, response.id, before=before)
        if response.name == REQUEST_CONFIRMATION or (found is not None and found[1].name == REQUEST_CONFIRMATION):
            yield response


def _grant(
    events: CopyOnWriteList[Event], response: FunctionResponse, *, before: int, until: int | None = None
) -> Grant:
    """before: index of the message with the answer, or of the log's end. until: what the log holds from there on
    doesn't use the grant up. Raises ApprovalRefused."""
    found = find_request(events, response.id, before=before)
    if found is None or found[1].name != REQUEST_CONFIRMATION:
        raise ApprovalRefused("nobody asked for it")
    asked_at, request = found
    asking = events[asked_at]
    original = original_call(request)
    made = _find_call(events, original.id, asking, before=asked_at)
    if made is None:
        raise ApprovalRefused("the call that it is about was never made")
    made_at, call = made
    arguments = _arguments_before(events, call, asking, made_at, asked_at)
    if call.name != original.name or not _same(arguments, original.args):
        raise ApprovalRefused("it shows another call than the one that was made")
    asked = _asked_for(events, call, asking, range(made_at + 1, before))
    if asked is None:
        if before < len(events) or any(response.id == call.id for response in _responses(events, asking, made_at)):
            raise ApprovalRefused("the tool did not ask for it")
        asked = ToolConfirmation()  # who reads along may answer before the event that says so is stored
    answered_at = events[before].timestamp if before < len(events) else time.time()
    if answered_at - asking.timestamp > EXPIRES_AFTER_SECONDS:
        raise ApprovalRefused("it is out of date")
    later = range(before + 1, len(events) if until is None else until)
    if _is_used(events, response.id, call.id, asking, range(asked_at + 1, before), later):
        raise ApprovalRefused("it was answered before")
    answer = _read(response)
    if answer.confirmed and asked.payload is None and isinstance(payload := answer.payload, dict):
        arguments = cast("JsonObject", payload)  # the person edited what the request showed
    approved = FunctionCall(id=call.id, name=call.name, args=arguments)
    return Grant(approved, answer, asking.author, asking.branch)


def _asked_for(
    events: CopyOnWriteList[Event], call: FunctionCall, asking: Event, where: range
) -> ToolConfirmation | None:
    asked: ToolConfirmation | None = None
    for index in where:
        if _is_by_same(events[index], asking):
            asked = events[index].actions.requested_tool_confirmations.get(call.id or "") or asked
    return asked


def _responses(events: CopyOnWriteList[Event], asking: Event, since: int) -> Iterable[FunctionResponse]:
    for index in range(since, len(events)):
        if _is_by_same(events[index], asking):
            yield from events[index].get_function_responses()


def _arguments_before(
    events: CopyOnWriteList[Event], call: FunctionCall, asking: Event, made_at: int, asked_at: int
) -> JsonObject | None:
    """The arguments with which a call stood when its tool asked: the model's, or a person's if the tool asked again."""
    for index in range(asked_at - 1, made_at, -1):
        if events[index].author == "user" and events[index].invocation_id == asking.invocation_id:
            for response in _answers(events, events[index].content, index):
                try:
                    grant = _grant(events, response, before=index, until=index)
                except ApprovalRefused:
                    continue
                if grant.made_by == (call.id, asking.author, asking.branch):
                    return grant.call.args
    return call.args


def _is_used(
    events: CopyOnWriteList[Event],
    request_id: str | None,
    call_id: str | None,
    asking: Event,
    earlier: range,
    later: range,
) -> bool:
    """Whether an earlier message answered the request, or the call has its response since this one did."""
    for index in earlier:
        responses = events[index].get_function_responses() if events[index].author == "user" else ()
        if any(response.id == request_id for response in responses):
            return True
    for index in later:
        responses = events[index].get_function_responses() if _is_by_same(events[index], asking) else ()
        if any(response.id == call_id for response in responses):
            return True
    return False


def _find_call(
    events: CopyOnWriteList[Event], call_id: str | None, asking: Event, *, before: int
) -> tuple[int, FunctionCall] | None:
    """The newest call with that id by the agent that asks, in the same run and branch."""
    for index in range(before - 1, -1, -1):
        if call_id and _is_by_same(events[index], asking):
            for call in events[index].get_function_calls():
                if call.id == call_id:
                    return index, call
    return None


def _is_by_same(event: Event, other: Event) -> bool:
    return (event.author, event.invocation_id, event.branch) == (other.author, other.invocation_id, other.branch)


def _same(arguments: JsonObject | None, others: JsonObject | None) -> bool:
    """Equal as JSON: to Python, true is 1."""
    return msgspec.json.encode(arguments or {}, order="sorted") == msgspec.json.encode(others or {}, order="sorted")


def original_call(request: FunctionCall) -> FunctionCall:
    try:
        return wire.from_plain((request.args or {}).get("originalFunctionCall"), FunctionCall)
    except InvalidRequest:
        raise ApprovalRefused("nobody asked for it") from None


def _read(response: FunctionResponse) -> ToolConfirmation:
    """The answer; web UIs with one box for all function responses send it as JSON text under `response`."""
    given: object = response.response or {}
    if isinstance(given, dict) and isinstance(inner := given.get("response"), str):
        try:
            given = msgspec.json.decode(inner)
        except msgspec.DecodeError:
            raise ApprovalRefused("its answer is not valid JSON") from None
    try:
        return wire.from_plain(given, ToolConfirmation)
    except InvalidRequest:
        raise ApprovalRefused("its answer is no confirmation") from None
