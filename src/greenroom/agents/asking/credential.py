"""Going on when a user has granted access, or has declined to.

The answer that a client sent was checked, and exchanged for a credential, before it was stored; what is stored of it
only says how it went. Here the calls that waited for it are found, in what their agent wrote.

Source: ADK's credential requests.
"""

from __future__ import annotations

from greenroom.agents.asking.confirmation import Grant, granted_by
from greenroom.agents.asking.framework_calls import REQUEST_CREDENTIAL, find_request, requests_in
from greenroom.errors import ApprovalRefused
from greenroom.invocation.context import InvocationContext
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionCall
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event, ToolConfirmation
from greenroom.records.state import TEMP_PREFIX

DECLINED: JsonObject = {"error": "access_denied"}
"""What is stored of an answer in which the user did not grant access."""


def answered_requests(
    events: CopyOnWriteList[Event], message: Content | None, *, before: int
) -> list[tuple[Event, FunctionCall, JsonObject]]:
    """The credential requests that a message answers: the event that asks, the request, and the answer.

    before: index of the message in the log, or the log's end. Raises ApprovalRefused for an answer to what was not
    asked, or to what was answered before.
    """
    found: list[tuple[Event, FunctionCall, JsonObject]] = []
    for part in (message.parts if message is not None else None) or ():
        response = part.function_response
        if response is None:
            continue
        asked = find_request(events, response.id, before=before)
        if asked is None or asked[1].name != REQUEST_CREDENTIAL:
            if response.name == REQUEST_CREDENTIAL:
                raise ApprovalRefused("nobody asked for it")
            continue
        at, request = asked
        for index in range(at + 1, before):
            earlier = events[index].get_function_responses() if events[index].author == "user" else ()
            if any(one.id == request.id for one in earlier):
                raise ApprovalRefused("it was answered before")
        if any(request is known for _, known, _ in found):
            raise ApprovalRefused("the same message answers it twice")
        found.append((events[at], request, response.response or {}))
    return found


def released_by(events: CopyOnWriteList[Event], index: int) -> list[Grant]:
    """The calls that waited for what the message at that index of the log grants, or declines."""
    try:
        answers = answered_requests(events, events[index].content, before=index)
    except ApprovalRefused:
        return []  # another message of the same answer was first
    grants: dict[tuple[str | None, str, str | None], Grant] = {}
    for asking, request, answer in answers:
        key = _key_of((request.args or {}).get("authConfig"))
        for call in _waiting_for(events, asking, key, range(index)):
            is_declined = answer == DECLINED
            earlier = None if is_declined else _approved(events, call, asking, range(index))
            decision = ToolConfirmation(confirmed=False) if is_declined else earlier and earlier.answer
            grant = Grant(earlier.call if earlier else call, decision, asking.author, asking.branch)
            grants.setdefault(grant.made_by, grant)
    return list(grants.values())


def _waiting_for(events: CopyOnWriteList[Event], asking: Event, key: str, where: range) -> list[FunctionCall]:
    """Calls of the agent that asks whose newest response says that they need this credential."""
    calls: dict[str | None, FunctionCall] = {}
    waiting: dict[str | None, bool] = {}
    for index in where:
        event = events[index]
        if (event.author, event.invocation_id, event.branch) != (asking.author, asking.invocation_id, asking.branch):
            continue
        for call in event.get_function_calls():
            calls[call.id] = call
            waiting.pop(call.id, None)
        configs = event.actions.requested_auth_configs
        for response in event.get_function_responses():
            waiting[response.id] = False
        for call_id, config in configs.items():
            waiting[call_id] = _key_of(config) == key
    return [calls[call_id] for call_id, is_waiting in waiting.items() if is_waiting and call_id in calls]


def _approved(events: CopyOnWriteList[Event], call: FunctionCall, asking: Event, where: range) -> Grant | None:
    """What a person approved of this call before: it holds until the call has been made."""
    for index in reversed(where):
        if events[index].author == "user" and events[index].invocation_id == asking.invocation_id:
            for grant in granted_by(events, index, even_if_used=True):
                if grant.made_by == (call.id, asking.author, asking.branch):
                    return grant
    return None


async def load_granted(ctx: InvocationContext) -> None:
    """Put what was granted in this run where its tools look for it."""
    for key in sorted({key for event in ctx.session.events[ctx.resumed_from or 0 :] for key in _keys_in(ctx, event)}):
        credential = await ctx.services.credentials.load_credential(
            app_name=ctx.app_name, user_id=ctx.user_id, credential_key=key
        )
        if credential is not None:
            ctx.session.state[f"{TEMP_PREFIX}{key}"] = wire.to_plain(credential)


def _keys_in(ctx: InvocationContext, event: Event) -> list[str]:
    if event.invocation_id != ctx.invocation_id:
        return []
    asked = [(call.args or {}).get("authConfig") for call in requests_in(event) if call.name == REQUEST_CREDENTIAL]
    return [_key_of(config) for config in (*event.actions.requested_auth_configs.values(), *asked)]


def _key_of(config: JsonObject | None) -> str:
    return str((config or {}).get("credentialKey"))
