"""Requests to a person, for approvals and credentials: made, and found in the log.

A request is a call by the framework in an event of its own, beside the event with the calls' responses. A crash may
lose either of the two; it is then made again from the other one.

Source of names, shapes and order: ADK's tool confirmation and credential requests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import aclosing

import msgspec

from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.errors import GreenroomError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ToolContext
from greenroom.log.state import log_state_of
from greenroom.records import wire
from greenroom.records.approval_policy import (
    ApprovalPolicy,
    note_policies,
    note_policy,
    policies_in,
    policy_of,
)
from greenroom.records.auth import AuthConfig, CredentialRequest, public_config
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event, EventActions, ToolConfirmation
from greenroom.records.human_requests import (
    REQUEST_CONFIRMATION,
    REQUEST_CREDENTIAL,
    credential_key,
    original_call,
    requests_in,
)
from greenroom.records.identifiers import new_function_call_id
from greenroom.tools.confirmation import awaiting_confirmation
from greenroom.tools.toolset import BaseToolset

TOOLSET_PREFIX = "_adk_toolset_auth_"
"""Prefix of the call id in requests of toolsets, which need the credential to list their tools. Source: ADK."""


async def with_requests(
    ctx: InvocationContext, calls: Sequence[tuple[FunctionCall, ToolContext | None]], responses: Event | None
) -> list[Event]:
    """Returns the event of responses and the event that requests what they need, in ADK's order: the request comes last
    if another call of the same reply has a real result.

    calls: each with the context of its tool.
    """
    if responses is None:
        return []
    wanted = {call.id or "": context.requested_credential for call, context in calls if context is not None}
    credentials = {call_id: request for call_id, request in wanted.items() if request is not None}
    if credentials:
        await _make_requests(ctx, responses, credentials)
    needed = responses.actions.requested_tool_confirmations
    if needed:
        own = {call.id or "": context.approvals for call, context in calls if context is not None}
        note_policies(responses, {call_id: own.get(call_id) or ctx.services.approvals for call_id in needed})
    request_event = request_event_for(responses, [call for call, _ in calls if call.id in needed])
    if request_event is None:
        return [responses]
    if _can_be_restored(request_event, responses):
        return [request_event, responses]
    responses.actions.skip_summarization = None
    return [responses, request_event]


async def toolset_request(ctx: InvocationContext, agent: str, toolset: str, request: CredentialRequest) -> Event:
    """Creates the event that requests the credential with which a toolset can list its tools."""
    event = Event(invocation_id=ctx.invocation_id, author=agent, branch=ctx.branch)
    call_id = TOOLSET_PREFIX + toolset
    await _make_requests(ctx, event, {call_id: request})
    request_event = request_event_for(event, [])
    assert request_event is not None
    return request_event


async def _make_requests(
    ctx: InvocationContext, responses: Event, credentials: Mapping[str, CredentialRequest]
) -> None:
    """Stores the server's part of each credential request for when the answer arrives; the event gets the public part.

    Calls that need the same credential share a request. If a login can't be prepared, the response reports it.
    """
    requests_by_key: dict[str | None, JsonObject] = {}
    for call_id, wanted in credentials.items():
        key = wanted.auth_config.credential_key
        if key not in requests_by_key:
            try:
                config = await _prepared(wanted)
            except GreenroomError as error:
                _report_error(responses, call_id, error)
                continue
            request = msgspec.structs.replace(
                wanted, id=_request_id(responses, call_id), session_id=ctx.session.id, auth_config=config
            )
            await ctx.services.credentials.save_request(app_name=ctx.app_name, user_id=ctx.user_id, request=request)
            plain: JsonObject = wire.to_plain(public_config(config))
            requests_by_key[key] = plain
        responses.actions.requested_auth_configs[call_id] = requests_by_key[key]


async def _prepared(request: CredentialRequest) -> AuthConfig:
    raw = request.auth_config.raw_auth_credential
    if raw is None or raw.oauth2 is None:
        return request.auth_config
    from greenroom.tools.login.oauth2 import with_authorization_uri  # few agents need what exchanges logins
    from greenroom.tools.web.http_client import HttpClient

    async with aclosing(HttpClient(allow_private_network_access=not request.only_public_hosts)) as client:
        return await with_authorization_uri(request.auth_config, client)


def _report_error(responses: Event, call_id: str, error: GreenroomError) -> None:
    responses.actions.requested_auth_configs.pop(call_id, None)
    for response in responses.get_function_responses():
        if response.id == call_id:
            response.response = {"error": f"The user could not be asked to log in: {error.detail}"}


def _request_id(responses: Event, call_id: str) -> str:
    """Derived from the content of both events, so that a lost request event can be created again with the same id."""
    made_of = [responses.invocation_id, responses.author, responses.branch, responses.timestamp, call_id]
    return f"adk-{hashlib.sha256(wire.encode(made_of)).hexdigest()[:32]}"


def request_event_for(responses: Event, confirmed: list[FunctionCall]) -> Event | None:
    """Returns an event with all requests to a person that the responses need.

    confirmed: the calls that need a confirmation.
    """
    parts: list[Part] = []
    policies = policies_in(responses)
    for call in confirmed:
        arguments: JsonObject = {
            "originalFunctionCall": {"id": call.id, "name": call.name, "args": call.args or {}},
            "toolConfirmation": wire.to_plain(responses.actions.requested_tool_confirmations[call.id or ""]),
        }
        note_policy(arguments, policies.get(call.id or ""))
        request = FunctionCall(id=new_function_call_id(), name=REQUEST_CONFIRMATION, args=arguments)
        parts.append(Part(function_call=request))
    for call_id, config in first_of_each_key(responses.actions.requested_auth_configs).items():
        request = FunctionCall(
            id=_request_id(responses, call_id),
            name=REQUEST_CREDENTIAL,
            args={"functionCallId": call_id, "authConfig": config},
        )
        parts.append(Part(function_call=request))
    if not parts:
        return None
    request_event = event_beside(responses, Content(role="model" if confirmed else "user", parts=parts))
    request_event.long_running_tool_ids = sorted(part.function_call.id or "" for part in parts if part.function_call)
    return request_event


def event_beside(other: Event, content: Content) -> Event:
    """The other event of a pair: the ids of requests are made of its time, so both have the same."""
    return Event(
        invocation_id=other.invocation_id,
        author=other.author,
        timestamp=other.timestamp,
        branch=other.branch,
        content=content,
    )


def first_of_each_key(configs: JsonObject) -> JsonObject:
    first: dict[str, str] = {}
    for call_id, config in configs.items():
        first.setdefault(credential_key(config), call_id)
    return {call_id: configs[call_id] for call_id in first.values()}


def _can_be_restored(request_event: Event, responses: Event) -> bool:
    """True if the event of responses has placeholders only, so that it can be derived from the request event."""
    return len(requests_in(request_event)) == len(responses.get_function_responses())


def unanswered_request(agent: str, ctx: InvocationContext, *, since: int) -> tuple[bool, Event | None]:
    """Returns (waits, missing): whether the agent's last step was a request, and the second of its two events if a
    crash lost it.

    since: index in the log of the run's newest message.
    """
    newest: list[Event] = []
    for index, event in ctx.own_events(agent):
        if index < since or len(newest) == 2:
            break
        if event.content is not None or event.error_code is not None:
            newest.append(event)

    if not newest:
        return False, None
    last = newest[0]
    before = newest[1] if len(newest) == 2 else None
    requested = _requests_by_call(last)
    if requested:
        is_complete = before is not None and _needed_by(before) >= requested
        return True, None if is_complete else _placeholders(ctx, last)

    needed = _needed_by(last)
    if not needed:
        return False, None
    if before is not None and _requests_by_call(before) == needed:
        return True, None
    run = log_state_of(ctx.session.events).run(ctx.invocation_id)
    records = [run.call(call_id, agent, ctx.branch) for call_id in last.actions.requested_tool_confirmations]
    # With the arguments that its tool was given last: a person may have edited them.
    calls = [call for record in records if record is not None and (call := record.effective_call()) is not None]
    request_event = request_event_for(last, calls)
    return request_event is not None, request_event


def _requests_by_call(event: Event) -> set[tuple[str, str]]:
    """Returns the kinds of the event's requests, each with the id of the call that it is about."""
    requested: set[tuple[str, str]] = set()
    for request in requests_in(event):
        if request.name == REQUEST_CONFIRMATION:
            original = original_call(request)
            requested.add((REQUEST_CONFIRMATION, original.id or "" if original is not None else ""))
        else:
            requested.add((REQUEST_CREDENTIAL, (request.args or {})["functionCallId"]))
    return requested


def _needed_by(responses: Event) -> set[tuple[str, str]]:
    actions = responses.actions
    confirmed = {(REQUEST_CONFIRMATION, call_id) for call_id in actions.requested_tool_confirmations}
    return confirmed | {(REQUEST_CREDENTIAL, call_id) for call_id in first_of_each_key(actions.requested_auth_configs)}


def _placeholders(ctx: InvocationContext, request_event: Event) -> Event | None:
    parts: list[Part] = []
    actions = EventActions()
    policies: dict[str, ApprovalPolicy | None] = {}
    run = log_state_of(ctx.session.events).run(ctx.invocation_id)
    for request in requests_in(request_event):
        arguments = request.args or {}
        if request.name == REQUEST_CONFIRMATION:
            call = original_call(request)
            if call is None:
                continue
            response = awaiting_confirmation(call.name or "")
            confirmation = wire.from_plain(arguments["toolConfirmation"], ToolConfirmation)
            actions.requested_tool_confirmations[call.id or ""] = confirmation
            policies[call.id or ""] = policy_of(request)
            actions.skip_summarization = True
        else:
            record = run.call(arguments["functionCallId"], request_event.author, request_event.branch)
            if record is None or record.call is None:
                continue  # a toolset asks, and has no response
            call = record.call
            response = {"result": None}
            actions.requested_auth_configs[call.id or ""] = arguments["authConfig"]
        parts.append(Part(function_response=FunctionResponse(id=call.id, name=call.name, response=response)))

    if not parts:
        return None
    responses = event_beside(request_event, Content(role="user", parts=parts))
    responses.actions = actions
    note_policies(responses, policies)
    return responses


def answers_only(ctx: InvocationContext, *, at: int) -> bool:
    """Whether the message at that index of the log does nothing but answer requests of the framework."""
    content = ctx.session.events[at].content
    parts = content.parts if content is not None else None
    return bool(parts) and len(log_state_of(ctx.session.events).requests_answered_at(at)) == len(parts)


def answers_toolset(ctx: InvocationContext, at: int) -> bool:
    """True if the message at that index of the log answers a toolset's request."""
    answered = log_state_of(ctx.session.events).requests_answered_at(at)
    return any(str((one.call.args or {}).get("functionCallId")).startswith(TOOLSET_PREFIX) for one in answered)


async def request_for_toolsets(agent: BaseLlmAgent, ctx: InvocationContext) -> Event | None:
    """Passes each toolset its credential for this run. Returns the event that requests the first missing one from the
    user.
    """
    for tool in agent.tools:
        config = tool.get_auth_config() if isinstance(tool, BaseToolset) else None
        if config is not None and not await authenticate(ctx, config):
            request = CredentialRequest(id="", session_id=ctx.session.id, auth_config=config)
            return await toolset_request(ctx, agent.name, type(tool).__name__, request)
    return None


async def node_request(ctx: InvocationContext, request: CredentialRequest) -> Event:
    """The event with which a node of a workflow asks for a credential."""
    request.auth_config = await _prepared(request)
    await ctx.services.credentials.save_request(app_name=ctx.app_name, user_id=ctx.user_id, request=request)
    plain: JsonObject = wire.to_plain(public_config(request.auth_config))
    arguments: JsonObject = {"functionCallId": request.id, "authConfig": plain, "message": "A login is needed."}
    call = FunctionCall(id=request.id, name=REQUEST_CREDENTIAL, args=arguments)
    content = Content(role="model", parts=[Part(function_call=call)])
    return Event(author="", content=content, long_running_tool_ids=[request.id])


async def authenticate(ctx: InvocationContext, config: AuthConfig) -> bool:
    """Passes the credential to the run. Returns False if there is none."""
    # Few agents need them, and every start would load them.
    from greenroom.tools.login.credential_provider import CredentialProvider

    context = ToolContext(ctx)
    async with aclosing(CredentialProvider(config)) as credentials:
        credential = await credentials.credential(context)
    if credential is not None:
        context.keep_for_this_run(config, credential)
    return credential is not None
