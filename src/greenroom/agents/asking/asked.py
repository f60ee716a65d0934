"""What an agent has asked a person for, read from the log."""

from __future__ import annotations

from typing import NamedTuple

from greenroom.agents.asking.ask import TOOLSET_PREFIX, asking_for, event_beside, first_of_each_key
from greenroom.invocation.context import InvocationContext
from greenroom.records import wire
from greenroom.records.calls import REQUEST_CONFIRMATION, REQUEST_CREDENTIAL, ledger_of, original_call, requests_in
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event, EventActions, ToolConfirmation
from greenroom.tools.confirmation import awaiting_confirmation


class Asked(NamedTuple):
    """The newest thing an agent did was to ask. lost_half: a crash left only one of the two events; this is the other,
    made anew."""

    lost_half: Event | None


def newest_request(agent: str, ctx: InvocationContext, *, since: int) -> Asked | None:
    """None when the agent did something else last. since: index in the log of the run's newest message."""
    newest: list[Event] = []
    for index, event in ctx.share(agent):
        if index < since or len(newest) == 2:
            break
        if event.content is not None or event.error_code is not None:
            newest.append(event)
    if not newest:
        return None
    last, before = newest[0], newest[1] if len(newest) == 2 else None
    asked = _asked_about(last)
    if asked:
        whole = before is not None and _needed_by(before) >= asked
        return Asked(None if whole else _placeholders(ctx, last))
    needed = _needed_by(last)
    if not needed:
        return None
    if before is not None and _asked_about(before) == needed:
        return Asked(None)
    confirmations = last.actions.requested_tool_confirmations
    calls = [call for call_id in confirmations if (call := _as_it_ran(ctx, agent, call_id)) is not None]
    asking = asking_for(last, calls)
    return Asked(asking) if asking is not None else None


def _as_it_ran(ctx: InvocationContext, agent: str, call_id: str) -> FunctionCall | None:
    """The call with the arguments that its tool was given last: a person may have edited them."""
    record = ledger_of(ctx.session.events).run(ctx.invocation_id).call(call_id, agent, ctx.branch)
    return record.standing_call() if record is not None else None


def _asked_about(event: Event) -> set[tuple[str, str]]:
    """What this event asks for: the kinds of requests, each with the call it is about."""
    asked: set[tuple[str, str]] = set()
    for request in requests_in(event):
        if request.name == REQUEST_CONFIRMATION:
            original = original_call(request)
            asked.add((REQUEST_CONFIRMATION, original.id or "" if original is not None else ""))
        else:
            asked.add((REQUEST_CREDENTIAL, (request.args or {})["functionCallId"]))
    return asked


def _needed_by(responses: Event) -> set[tuple[str, str]]:
    actions = responses.actions
    confirmed = {(REQUEST_CONFIRMATION, call_id) for call_id in actions.requested_tool_confirmations}
    return confirmed | {(REQUEST_CREDENTIAL, call_id) for call_id in first_of_each_key(actions.requested_auth_configs)}


def _placeholders(ctx: InvocationContext, asking: Event) -> Event | None:
    parts: list[Part] = []
    actions = EventActions()
    for request in requests_in(asking):
        arguments = request.args or {}
        if request.name == REQUEST_CONFIRMATION:
            call = original_call(request)
            if call is None:
                continue
            response = awaiting_confirmation(call.name or "")
            confirmation = wire.from_plain(arguments["toolConfirmation"], ToolConfirmation)
            actions.requested_tool_confirmations[call.id or ""] = confirmation
            actions.skip_summarization = True
        else:
            made = _made_by(ctx, asking, arguments["functionCallId"])
            if made is None:
                continue  # a toolset asks, and has no response
            call, response = made, {"result": None}
            actions.requested_auth_configs[call.id or ""] = arguments["authConfig"]
        parts.append(Part(function_response=FunctionResponse(id=call.id, name=call.name, response=response)))
    if not parts:
        return None
    responses = event_beside(asking, Content(role="user", parts=parts))
    responses.actions = actions
    return responses


def _made_by(ctx: InvocationContext, asking: Event, call_id: str) -> FunctionCall | None:
    record = ledger_of(ctx.session.events).run(ctx.invocation_id).call(call_id, asking.author, asking.branch)
    return record.call if record is not None else None


def answers_only(ctx: InvocationContext, *, at: int) -> bool:
    """Whether the message at that index of the log does nothing but answer requests of the framework."""
    content = ctx.session.events[at].content
    parts = content.parts if content is not None else None
    return bool(parts) and len(ledger_of(ctx.session.events).requests_answered_at(at)) == len(parts)


def for_toolset(ctx: InvocationContext, at: int) -> bool:
    """Whether the message at that index of the log answers what a toolset asked."""
    answered = ledger_of(ctx.session.events).requests_answered_at(at)
    return any(str((one.call.args or {}).get("functionCallId")).startswith(TOOLSET_PREFIX) for one in answered)
