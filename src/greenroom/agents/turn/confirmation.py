"""Asking a person before a tool runs, and taking the answer.

An approval is a single-use grant: it holds for one call of one run, with the very arguments that were shown, for a
limited time, and only if the agent that asks did make that call and the tool, or its gate, did ask. All of this is read
from what agents stored; what a model writes can't stand for it, because a model writes no actions.

Source of names and shapes: ADK's tool confirmation.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple, cast

import msgspec

from greenroom.errors import ApprovalRefused, InvalidRequest
from greenroom.invocation.context import InvocationContext
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event, ToolConfirmation
from greenroom.records.identifiers import new_function_call_id

REQUEST = "adk_request_confirmation"
EXPIRES_AFTER_SECONDS = 30 * 24 * 3600.0


class Grant(NamedTuple):
    """A call, with the arguments that were approved, and what the person said. agent, branch: whose call it is."""

    call: FunctionCall
    answer: ToolConfirmation
    agent: str
    branch: str | None


def with_requests(ctx: InvocationContext, calls: list[FunctionCall], responses: Event) -> list[Event]:
    """The event of responses, and the one that asks for the approvals they need, in the order in which ADK sends them:
    what asks comes last when another call of the same reply has a real result."""
    requests = responses.actions.requested_tool_confirmations
    parts: list[Part] = []
    for call in calls:
        asked = requests.get(call.id or "")
        if asked is not None:
            arguments = {
                "originalFunctionCall": {"id": call.id, "name": call.name, "args": call.args or {}},
                "toolConfirmation": wire.to_plain(asked),
            }
            request = FunctionCall(id=new_function_call_id(), name=REQUEST, args=arguments)
            parts.append(Part(function_call=request))
    if not parts:
        return [responses]
    asking = Event(
        invocation_id=responses.invocation_id,
        author=responses.author,
        branch=ctx.branch,
        content=Content(role="model", parts=parts),
        long_running_tool_ids=sorted(part.function_call.id or "" for part in parts if part.function_call),
    )
    if len(parts) < len(responses.get_function_responses()):
        responses.actions.skip_summarization = None
        return [responses, asking]
    return [asking, responses]


def check_answers(events: CopyOnWriteList[Event], message: Content | None) -> None:
    """Raises ApprovalRefused when the message answers a request that nobody made, that is used up or out of date."""
    for response in _answers(message):
        _grant(events, response, before=len(events))


def granted(agent: str, ctx: InvocationContext) -> list[Grant]:
    """What the newest message of this run grants to this agent, in this branch."""
    events = ctx.session.events
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        if event.author == "user" and event.invocation_id == ctx.invocation_id and event.content is not None:
            grants: list[Grant] = []
            for response in _answers(event.content):
                try:
                    grant = _grant(events, response, before=index)
                except ApprovalRefused:
                    continue  # another message of the same answer was first
                if (grant.agent, grant.branch) == (agent, ctx.branch):
                    grants.append(grant)
            return grants
    return []


def answers_only(ctx: InvocationContext) -> bool:
    """Whether the newest message of this run does nothing but answer such requests."""
    for event in reversed(ctx.session.events):
        if event.author == "user" and event.invocation_id == ctx.invocation_id and event.content is not None:
            return len(list(_answers(event.content))) == len(event.content.parts or ())
    return False


def _answers(message: Content | None) -> Iterable[FunctionResponse]:
    for part in (message.parts if message is not None else None) or ():
        if part.function_response is not None and part.function_response.name == REQUEST:
            yield part.function_response


def _grant(events: CopyOnWriteList[Event], response: FunctionResponse, *, before: int) -> Grant:
    """before: index of the message with the answer, or of the log's end. Raises ApprovalRefused."""
    asked_at, request = _find_call(events, response.id, before)
    if request is None or request.name != REQUEST:
        raise ApprovalRefused("nobody asked for it")
    asking = events[asked_at]
    original = _original(request)
    made_at, call = _find_call(events, original.id, asked_at)
    made = events[made_at] if call is not None else None
    if call is None or made is None or made.author != asking.author or made.invocation_id != asking.invocation_id:
        raise ApprovalRefused("the call that it is about was never made")
    if call.name != original.name or (call.args or {}) != (original.args or {}):
        raise ApprovalRefused("it shows another call than the one that was made")
    asked: ToolConfirmation | None = None
    for event in events[made_at + 1 : before]:
        is_mine = event.author == asking.author and event.invocation_id == asking.invocation_id
        asked = (event.actions.requested_tool_confirmations.get(call.id or "") if is_mine else None) or asked
    if asked is None:
        raise ApprovalRefused("the tool did not ask for it")
    if time.time() - asking.timestamp > EXPIRES_AFTER_SECONDS:
        raise ApprovalRefused("it is out of date")
    if _is_used(events, response.id, call.id, since=asked_at):
        raise ApprovalRefused("it was answered before")
    answer = _read(response)
    arguments = call.args
    if answer.confirmed and asked.payload is None and isinstance(answer.payload, dict):
        arguments = cast("JsonObject", answer.payload)  # the person edited what the request showed
    approved = FunctionCall(id=call.id, name=call.name, args=arguments)
    return Grant(approved, answer, asking.author, asking.branch)


def _is_used(events: CopyOnWriteList[Event], request_id: str | None, call_id: str | None, *, since: int) -> bool:
    """Whether the request was answered, and the call then got its response."""
    is_answered = False
    for event in events[since + 1 :]:
        for response in event.get_function_responses():
            if event.author == "user":
                is_answered = is_answered or response.id == request_id
            elif is_answered and response.id == call_id:
                return True
    return False


def _find_call(events: CopyOnWriteList[Event], call_id: str | None, before: int) -> tuple[int, FunctionCall | None]:
    for index in range(before - 1, -1, -1):
        if events[index].author != "user":
            for call in events[index].get_function_calls():
                if call.id == call_id and call_id:
                    return index, call
    return 0, None


def _original(request: FunctionCall) -> FunctionCall:
    try:
        return wire.from_plain((request.args or {}).get("originalFunctionCall"), FunctionCall)
    except InvalidRequest:
        raise ApprovalRefused("nobody asked for it") from None


def _read(response: FunctionResponse) -> ToolConfirmation:
    """The answer; web UIs with one box for all function responses send it as JSON text under `response`."""
    given: object = response.response or {}
    if isinstance(given, dict) and isinstance(inner := cast("JsonObject", given).get("response"), str):
        try:
            given = msgspec.json.decode(inner)
        except msgspec.DecodeError:
            raise ApprovalRefused("its answer is not valid JSON") from None
    try:
        return wire.from_plain(given, ToolConfirmation)
    except InvalidRequest:
        raise ApprovalRefused("its answer is no confirmation") from None
