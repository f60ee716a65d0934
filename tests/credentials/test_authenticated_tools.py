"""Tools that act for a user: across sessions, when tokens run out, and with the app's own credentials."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx

from greenroom.agents.llm_agent import LlmAgent
from greenroom.records.auth import AuthConfig, AuthCredential, AuthScheme, OAuthFlow, OAuthFlows
from greenroom.records.base import JsonObject
from greenroom.records.identifiers import new_invocation_id
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing.scripted_model import Said, ScriptedModel
from greenroom.tools.functions.authenticated_function_tool import AuthenticatedFunctionTool
from greenroom.tools.openapi.toolset import OpenAPIToolset
from tests.credentials.authorization_server import AuthorizationServer
from tests.credentials.desk import answer, call, consent, login, requests_of, responses_of, say, serve
from tests.server.serving import Serving


def tool(provider: AuthorizationServer, config: AuthConfig) -> AuthenticatedFunctionTool:
    async def who_am_i(credential: AuthCredential) -> JsonObject:
        """Returns the name of the user."""
        async with httpx.AsyncClient() as client:
            token = credential.bearer_token()
            reply = await client.get(f"{provider.url}/me", headers={"authorization": f"Bearer {token}"})
        return reply.json() if reply.status_code == 200 else {"error": reply.status_code}

    return AuthenticatedFunctionTool(who_am_i, auth_config=config)


@contextlib.asynccontextmanager
async def desk(provider: AuthorizationServer, folder: Path, config: AuthConfig) -> AsyncGenerator[Serving]:
    turns = [call("who_am_i", f"c-{i // 2}") if i % 2 == 0 else "You are Ada." for i in range(8)]
    agent = LlmAgent(name="desk", model=ScriptedModel(turns), tools=[tool(provider, config)])
    async with serve(agent, folder) as server:
        yield server


async def test_a_model_does_not_see_the_credential(provider: AuthorizationServer) -> None:
    assert tool(provider, login(provider))._get_declaration().parameters_json_schema is None  # pyright: ignore[reportPrivateUsage]


async def test_what_was_granted_once_holds_for_other_sessions_of_the_user_and_after_a_restart(
    provider: AuthorizationServer, tmp_path: Path
) -> None:
    async with desk(provider, tmp_path, login(provider)) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        assert responses_of(await say(server, await consent(request))) == [{"name": "Ada"}]
    async with desk(provider, tmp_path, login(provider)) as server:
        await server.new_session("desk", session="s-2")
        assert responses_of(await say(server, "Who am I?", sessionId="s-2")) == [{"name": "Ada"}]
        await server.new_session("desk", user="bob")
        assert len(requests_of(await say(server, "Who am I?", userId="bob"))) == 1
    assert provider.grants == ["authorization_code"]


async def test_an_expired_token_is_refreshed_and_the_next_refresh_token_kept(
    provider: AuthorizationServer, tmp_path: Path
) -> None:
    """The provider takes each refresh token once, so a process that forgets the newest is locked out."""
    provider.lifetime_seconds = 10.0  # less than what a token must still be good for
    async with desk(provider, tmp_path, login(provider)) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        assert responses_of(await say(server, await consent(request))) == [{"name": "Ada"}]
    for _ in range(2):
        async with desk(provider, tmp_path, login(provider)) as server:
            assert responses_of(await say(server, "Who am I?")) == [{"name": "Ada"}]
    assert provider.grants == ["authorization_code", "refresh_token", "refresh_token", "refresh_token"]
    assert len(set(provider.seen)) == 3


async def test_when_the_refresh_is_refused_the_user_is_asked_again(
    provider: AuthorizationServer, tmp_path: Path
) -> None:
    provider.lifetime_seconds = 10.0
    async with desk(provider, tmp_path, login(provider)) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        await say(server, await consent(request))
        provider.refreshable.clear()
        (request,) = requests_of(await say(server, "Who am I?"))
        assert responses_of(await say(server, await consent(request))) == [{"name": "Ada"}]


async def test_the_apps_own_credentials_ask_nobody(provider: AuthorizationServer, tmp_path: Path) -> None:
    flow = OAuthFlow(token_url=f"{provider.url}/token", scopes={"read": ""})
    own = AuthConfig(
        auth_scheme=AuthScheme(type="oauth2", flows=OAuthFlows(client_credentials=flow)),
        raw_auth_credential=login(provider).raw_auth_credential,
    )
    async with desk(provider, tmp_path, own) as server:
        await server.new_session("desk")
        for _ in range(2):
            assert responses_of(await say(server, "Who am I?")) == [{"name": "Ada"}]
    assert provider.grants == ["client_credentials"]


async def test_the_end_of_one_call_does_not_cut_off_the_token_request_of_another(
    provider: AuthorizationServer, tmp_path: Path
) -> None:
    def script(request: LlmRequest) -> Said:
        is_answered = any(part.function_response for part in request.contents[-1].parts or ())
        return "You are Ada." if is_answered else call("who_am_i", new_invocation_id())

    provider.lifetime_seconds = 10.0  # each call refreshes
    agent = LlmAgent(name="desk", model=ScriptedModel(script), tools=[tool(provider, login(provider))])
    async with serve(agent, tmp_path) as server:
        for user in ("ann", "bob"):
            await server.new_session("desk", user=user)
            (request,) = requests_of(await say(server, "Who am I?", userId=user))
            await say(server, await consent(request), userId=user)

        provider.grants.clear()
        provider.hold = held = asyncio.Event()
        first = asyncio.create_task(say(server, "Who am I?", userId="ann"))
        while not provider.grants:
            await asyncio.sleep(0.01)
        assert responses_of(await say(server, "Who am I?", userId="bob")) == [{"name": "Ada"}]
        held.set()
        assert responses_of(await first) == [{"name": "Ada"}]


async def test_an_openapi_tool_waits_for_a_login(provider: AuthorizationServer, tmp_path: Path) -> None:
    flow = {
        "authorizationUrl": f"{provider.url}/authorize",
        "tokenUrl": f"{provider.url}/token",
        "scopes": {"read": ""},
    }
    document: JsonObject = {
        "openapi": "3.0.0",
        "info": {"title": "people", "version": "1"},
        "servers": [{"url": provider.url}],
        "paths": {"/me": {"get": {"operationId": "whoAmI", "security": [{"login": ["read"]}], "responses": {}}}},
        "components": {"securitySchemes": {"login": {"type": "oauth2", "flows": {"authorizationCode": flow}}}},
    }
    toolset = OpenAPIToolset(
        spec_str=json.dumps(document),
        spec_str_type="json",
        auth_credential=login(provider).raw_auth_credential,
        allow_private_network_access=True,
    )
    turns = [call("who_am_i"), "You are Ada."]
    agent = LlmAgent(name="desk", model=ScriptedModel(turns), tools=[toolset])
    async with serve(agent, tmp_path) as server:
        await server.new_session("desk")
        events = await say(server, "Who am I?")
        (request,) = requests_of(events)
        assert responses_of(events)[0]["pending"] is True
        declined = answer(request, "")
        declined["functionResponse"]["response"] = (await consent(request))["functionResponse"]["response"]
        assert responses_of(await say(server, declined)) == [{"name": "Ada"}]
