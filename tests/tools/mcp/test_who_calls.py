"""In whose name an MCP server is called: credentials in headers, and the user asked for them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from greenroom.errors import AgentConfigError
from greenroom.records import auth
from greenroom.records.auth import (
    AuthConfig,
    AuthCredential,
    AuthCredentialTypes,
    AuthScheme,
    HttpAuth,
    HttpCredentials,
    OAuth2Auth,
)
from greenroom.records.content import FunctionCall
from greenroom.records.model_exchange import LlmRequest
from greenroom.tools.mcp.toolset import McpToolset, StreamableHTTPConnectionParams
from tests.credentials.authorization_server import AuthorizationServer
from tests.credentials.conftest import provider as provider
from tests.credentials.desk import Desk, answer, call, consent, login, post, requests_of, responses_of, say, serve
from tests.tools.mcp.conftest import MakeToolset
from tests.tools.mcp.test_mcp_toolset import result_of, text_of

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("transport", ["http"])]


def http(scheme: str, **credentials: str) -> AuthCredential:
    given = HttpAuth(scheme=scheme, credentials=HttpCredentials(**credentials), additional_headers={"X-User": "extra"})
    return AuthCredential(auth_type=AuthCredentialTypes.HTTP, http=given)


@pytest.mark.parametrize(
    ("scheme", "credential", "expected"),
    [
        (AuthScheme(type="http", scheme="bearer"), http("bearer", token="t"), "extra Bearer t"),
        (
            AuthScheme(type="http", scheme="basic"),
            http("basic", username="ada", password="pw"),
            "extra Basic YWRhOnB3",
        ),
        (AuthScheme(type="http", scheme="Digest"), http("Digest", token="d"), "extra Digest d"),
        (
            AuthScheme(type="apiKey", in_="header", name="X-User"),
            AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key="key"),
            "key None",
        ),
        (
            AuthScheme(type="oauth2"),
            AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=OAuth2Auth(access_token="o")),
            "None Bearer o",
        ),
    ],
    ids=["bearer", "basic", "another scheme", "key", "oauth2"],
)
async def test_a_credential_of_each_kind_becomes_a_header(
    make: MakeToolset, scheme: AuthScheme, credential: AuthCredential, expected: str
) -> None:
    toolset = make(auth_scheme=scheme, auth_credential=credential)
    assert text_of(await result_of(toolset, "who_calls")) == expected


@pytest.mark.parametrize("place", ["query", "cookie"])
def test_a_key_is_not_sent_elsewhere_than_in_a_header(place: str, transport: str) -> None:
    with pytest.raises(AgentConfigError, match="in headers only"):
        McpToolset(
            connection_params=StreamableHTTPConnectionParams("http://127.0.0.1:9/mcp"),
            auth_scheme=AuthScheme(type="apiKey", in_=place, name="k"),
        )


async def test_a_user_is_asked_for_a_key_before_the_server_is_and_each_calls_with_their_own(
    make: MakeToolset, tmp_path: Path
) -> None:
    scheme = AuthScheme(type="apiKey", in_="header", name="X-User")
    desk = Desk(AuthConfig(auth_scheme=scheme))
    agent = desk.agent(call("who_calls"), "Done.", call("who_calls"), "Done.", tools=[make(auth_scheme=scheme)])
    async with serve(agent, tmp_path) as server:
        for user, session in (("ann", "s-1"), ("bob", "s-2")):
            await server.new_session("desk", user, session)
            events = (await server.run("desk", "Who am I?", userId=user, sessionId=session)).json()
            (request,) = requests_of(events)
            assert len(events) == 1
            granted = {"exchangedAuthCredential": {"authType": "apiKey", "apiKey": f"key of {user}"}}
            message = {"role": "user", "parts": [answer(request, {**request["args"]["authConfig"], **granted})]}
            after = (await server.run("desk", None, userId=user, sessionId=session, newMessage=message)).json()
            (response,) = responses_of(after)
            assert text_of(response) == f"key of {user} None"
            assert after[-1]["content"]["parts"] == [{"text": "Done."}]


async def test_a_user_logs_in_and_the_server_gets_the_token(
    make: MakeToolset, provider: AuthorizationServer, tmp_path: Path
) -> None:
    config = login(provider)
    toolset = make(auth_scheme=config.auth_scheme, auth_credential=config.raw_auth_credential)
    async with serve(
        Desk(config, provider).agent(call("who_calls"), "You are Ada.", tools=[toolset]), tmp_path
    ) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        after = await say(server, await consent(request))
        (response,) = responses_of(after)
        assert text_of(response).removeprefix("None Bearer ") in provider.tokens


async def test_a_token_that_expires_while_the_model_thinks_is_refreshed_for_the_call(
    make: MakeToolset, provider: AuthorizationServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "EARLY_SECONDS", 0.0)
    provider.lifetime_seconds = 0.5
    before: set[str] = set()

    async def thinks(_: LlmRequest) -> FunctionCall:
        await asyncio.sleep(0.6)
        before.update(provider.tokens)
        return call("who_calls")

    config = login(provider)
    toolset = make(auth_scheme=config.auth_scheme, auth_credential=config.raw_auth_credential)
    async with serve(Desk(config, provider).agent(thinks, "You are Ada.", tools=[toolset]), tmp_path) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        (response,) = responses_of(await say(server, await consent(request)))
    token = text_of(response).removeprefix("None Bearer ")
    assert token in provider.tokens
    assert token not in before
    assert provider.grants[0] == "authorization_code"
    assert set(provider.grants[1:]) == {"refresh_token"}


async def test_a_token_that_can_not_be_refreshed_for_a_call_is_reported_to_the_model(
    make: MakeToolset, provider: AuthorizationServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "EARLY_SECONDS", 0.0)
    provider.lifetime_seconds = 1.0

    async def thinks(_: LlmRequest) -> FunctionCall:
        provider.is_down = True
        await asyncio.sleep(1.2)
        return call("who_calls")

    config = login(provider)
    toolset = make(auth_scheme=config.auth_scheme, auth_credential=config.raw_auth_credential)
    async with serve(Desk(config, provider).agent(thinks, tools=[toolset]), tmp_path) as server:
        path = await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        await post(server, await consent(request))
        events = (await server.client.get(path)).json()["events"]
    assert responses_of(events)[-1] == {
        "error": "MCP tool execution failed: the token service answered with status 503"
    }
