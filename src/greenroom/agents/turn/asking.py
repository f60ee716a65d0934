"""Asking a person for what calls need: approvals and credentials.

A request is a call by the framework in an event of its own, beside the event with the calls' responses. Either may be
lost in a crash, and is then made anew from the other one.

Source of names, shapes and order: ADK's tool confirmation and credential requests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from greenroom.agents.turn.confirmation import as_it_ran, original_call
from greenroom.agents.turn.framework_calls import REQUEST_CONFIRMATION, REQUEST_CREDENTIAL, find_request, requests_in
from greenroom.errors import GreenroomError
from greenroom.invocation.context import InvocationContext
from greenroom.records import wire
from greenroom.records.auth import AuthConfig, public_config
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.credential_request import CredentialRequest
from greenroom.records.event import Event, EventActions, ToolConfirmation
from greenroom.records.identifiers import new_function_call_id
from greenroom.tools.function_tool import not_run_yet

TOOLSET_PREFIX = "_adk_toolset_auth_"
"""Begins what stands for a call's id where a toolset needs the credential, to list its tools. Source: ADK."""


async def with_requests(
    ctx: InvocationContext,
    calls: list[FunctionCall],
    responses: Event,
    credentials: Mapping[str, CredentialRequest],
) -> list[Event]:
    """The event of responses, and the one that asks for what they need, in the order in which ADK sends them: what asks
    comes last when another call of the same reply has a real result. credentials: what calls need, by call id."""
    if credentials:
        await _make_requests(ctx, responses, credentials)
    asked = [call for call in calls if call.id in responses.actions.requested_tool_confirmations]
    asking = _asking(responses, asked)
    if asking is None:
        return [responses]
    if _tells_all(asking, responses):
        return [asking, responses]
    responses.actions.skip_summarization = None
    return [responses, asking]


async def toolset_request(ctx: InvocationContext, agent: str, toolset: str, request: CredentialRequest) -> Event:
    """The event that asks for what a toolset needs to list its tools."""
    event = Event(invocation_id=ctx.invocation_id, author=agent, branch=ctx.branch)
    call_id = TOOLSET_PREFIX + toolset
    await _make_requests(ctx, event, {call_id: request})
    asking = _asking(event, [])
    assert asking is not None
    return asking


async def _make_requests(
    ctx: InvocationContext, responses: Event, credentials: Mapping[str, CredentialRequest]
) -> None:
    """Keep what the server has to know when the answers come. The event gets what a client may know of it. Calls that
    need the same credential share a request; where a login can't be prepared, the model is told."""
    made: dict[str | None, JsonObject] = {}
    for call_id, wanted in credentials.items():
        key = wanted.auth_config.credential_key
        if key not in made:
            try:
                config = await _prepared(wanted)
            except GreenroomError as error:
                _give_up(responses, call_id, error)
                continue
            request = msgspec.structs.replace(
                wanted, id=_request_id(responses, call_id), session_id=ctx.session.id, auth_config=config
            )
            await ctx.services.credentials.save_request(app_name=ctx.app_name, user_id=ctx.user_id, request=request)
            plain: JsonObject = wire.to_plain(public_config(config))
            made[key] = plain
        responses.actions.requested_auth_configs[call_id] = made[key]


async def _prepared(request: CredentialRequest) -> AuthConfig:
    raw = request.auth_config.raw_auth_credential
    if raw is None or raw.oauth2 is None:
        return request.auth_config
    from greenroom.tools.login.oauth2 import with_authorization_uri  # few agents need what exchanges logins
    from greenroom.tools.web.http_client import HttpClient

    client = HttpClient(allow_private_network_access=not request.only_public_hosts)
    try:
        return await with_authorization_uri(request.auth_config, client)
    finally:
        await client.close()


def _give_up(responses: Event, call_id: str, error: GreenroomError) -> None:
    responses.actions.requested_auth_configs.pop(call_id, None)
    for response in responses.get_function_responses():
        if response.id == call_id:
            response.response = {"error": f"The user could not be asked to log in: {error.detail}"}


def _request_id(responses: Event, call_id: str) -> str:
    """Made of what both events hold, so that the one that asks can be made anew under the same id."""
    made_of = [responses.invocation_id, responses.author, responses.branch, responses.timestamp, call_id]
    return f"adk-{hashlib.sha256(wire.encode(made_of)).hexdigest()[:32]}"


def _asking(responses: Event, confirmed: list[FunctionCall]) -> Event | None:
    """What asks for all that the event of responses says is needed. confirmed: those of its calls that need a yes."""
    parts: list[Part] = []
    for call in confirmed:
        arguments = {
            "originalFunctionCall": {"id": call.id, "name": call.name, "args": call.args or {}},
            "toolConfirmation": wire.to_plain(responses.actions.requested_tool_confirmations[call.id or ""]),
        }
        request = FunctionCall(id=new_function_call_id(), name=REQUEST_CONFIRMATION, args=arguments)
        parts.append(Part(function_call=request))
    for call_id, config in _first_of_each_key(responses.actions.requested_auth_configs).items():
        request = FunctionCall(
            id=_request_id(responses, call_id),
            name=REQUEST_CREDENTIAL,
            args={"functionCallId": call_id, "authConfig": config},
        )
        parts.append(Part(function_call=request))
    if not parts:
        return None
    return Event(
        invocation_id=responses.invocation_id,
        author=responses.author,
        timestamp=responses.timestamp,
        branch=responses.branch,
        content=Content(role="model" if confirmed else "user", parts=parts),
        long_running_tool_ids=sorted(part.function_call.id or "" for part in parts if part.function_call),
    )


def _first_of_each_key(configs: JsonObject) -> JsonObject:
    first: dict[object, str] = {}
    for call_id, config in configs.items():
        first.setdefault(config.get("credentialKey"), call_id)
    return {call_id: configs[call_id] for call_id in first.values()}


def _tells_all(asking: Event, responses: Event) -> bool:
    """Whether the event of responses, with placeholders only, could be made anew from the one that asks."""
    return len(requests_in(asking)) == len(responses.get_function_responses())


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
    calls = [call for call_id in confirmations if (call := as_it_ran(ctx, agent, call_id, since)) is not None]
    asking = _asking(last, calls)
    return Asked(asking) if asking is not None else None


def _asked_about(event: Event) -> set[tuple[str, str]]:
    """What this event asks for: the kinds of requests, each with the call it is about."""
    asked: set[tuple[str, str]] = set()
    for request in requests_in(event):
        if request.name == REQUEST_CONFIRMATION:
            asked.add((REQUEST_CONFIRMATION, original_call(request).id or ""))
        else:
            asked.add((REQUEST_CREDENTIAL, (request.args or {})["functionCallId"]))
    return asked


def _needed_by(responses: Event) -> set[tuple[str, str]]:
    actions = responses.actions
    confirmed = {(REQUEST_CONFIRMATION, call_id) for call_id in actions.requested_tool_confirmations}
    return confirmed | {(REQUEST_CREDENTIAL, call_id) for call_id in _first_of_each_key(actions.requested_auth_configs)}


def _placeholders(ctx: InvocationContext, asking: Event) -> Event | None:
    parts: list[Part] = []
    actions = EventActions()
    for request in requests_in(asking):
        arguments = request.args or {}
        if request.name == REQUEST_CONFIRMATION:
            call = original_call(request)
            response = not_run_yet(call.name or "")
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
    return Event(
        invocation_id=asking.invocation_id,
        author=asking.author,
        timestamp=asking.timestamp,
        branch=asking.branch,
        content=Content(role="user", parts=parts),
        actions=actions,
    )


def _made_by(ctx: InvocationContext, asking: Event, call_id: str) -> FunctionCall | None:
    for _, event in ctx.share(asking.author):
        for call in event.get_function_calls():
            if call.id == call_id:
                return call
    return None


def for_toolset(ctx: InvocationContext, at: int) -> bool:
    """Whether the message at that index of the log answers what a toolset asked."""
    events = ctx.session.events
    asked = [find_request(events, one.id, before=at) for one in events[at].get_function_responses()]
    return any(
        str((found[1].args or {}).get("functionCallId")).startswith(TOOLSET_PREFIX)
        for found in asked
        if found is not None
    )
