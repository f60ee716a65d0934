"""Asking a person for what calls need: approvals and credentials.

A request is a call by the framework in an event of its own, beside the event with the calls' responses. Either may be
lost in a crash, and is then made anew from the other one.

Source of names, shapes and order: ADK's tool confirmation and credential requests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from greenroom.errors import GreenroomError
from greenroom.invocation.context import InvocationContext
from greenroom.records import wire
from greenroom.records.auth import AuthConfig, CredentialRequest, public_config
from greenroom.records.base import JsonObject
from greenroom.records.calls import REQUEST_CONFIRMATION, REQUEST_CREDENTIAL, requests_in
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.event import Event
from greenroom.records.identifiers import new_function_call_id

TOOLSET_PREFIX = "_adk_toolset_auth_"
"""Begins what stands for a call's id where a toolset needs the credential, to list its tools. Source: ADK."""


async def with_requests(
    ctx: InvocationContext,
    calls: Sequence[FunctionCall],
    responses: Event,
    credentials: Mapping[str, CredentialRequest],
) -> list[Event]:
    """The event of responses, and the one that asks for what they need, in the order in which ADK sends them: what asks
    comes last when another call of the same reply has a real result. credentials: what calls need, by call id."""
    if credentials:
        await _make_requests(ctx, responses, credentials)
    needed = responses.actions.requested_tool_confirmations
    asking = asking_for(responses, [call for call in calls if call.id in needed])
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
    asking = asking_for(event, [])
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


def asking_for(responses: Event, confirmed: list[FunctionCall]) -> Event | None:
    """What asks for all that the event of responses says is needed. confirmed: those of its calls that need a yes."""
    parts: list[Part] = []
    for call in confirmed:
        arguments = {
            "originalFunctionCall": {"id": call.id, "name": call.name, "args": call.args or {}},
            "toolConfirmation": wire.to_plain(responses.actions.requested_tool_confirmations[call.id or ""]),
        }
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
    asking = event_beside(responses, Content(role="model" if confirmed else "user", parts=parts))
    asking.long_running_tool_ids = sorted(part.function_call.id or "" for part in parts if part.function_call)
    return asking


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
    first: dict[object, str] = {}
    for call_id, config in configs.items():
        first.setdefault(config.get("credentialKey"), call_id)
    return {call_id: configs[call_id] for call_id in first.values()}


def _tells_all(asking: Event, responses: Event) -> bool:
    """Whether the event of responses, with placeholders only, could be made anew from the one that asks."""
    return len(requests_in(asking)) == len(responses.get_function_responses())
