"""Logins at an MCP server that says itself where: the SDK's server, with its own authorization server."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.types import ASGIApp, Receive, Scope, Send

from greenroom.errors import AgentConfigError, ToolLoadingError
from greenroom.records.auth import AuthCredential, AuthCredentialTypes, OAuth2Auth
from greenroom.tools.mcp.connection_params import StdioServerParameters
from greenroom.tools.mcp.toolset import McpToolset, StdioConnectionParams, StreamableHTTPConnectionParams
from tests.credentials.desk import Desk, answer, call, post, requests_of, responses_of, say, serve
from tests.server.serving import Json, Serving, serving
from tests.tools.mcp.test_mcp_toolset import text_of

pytestmark = pytest.mark.slow

REDIRECT = "http://localhost:8000/dev-ui/"


class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Grants what is asked for. valid: the tokens that are accepted."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.valid: dict[str, AccessToken] = {}
        self.refreshed = 0
        self.is_broken = False

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = secrets.token_urlsafe(16)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=True,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        code = self.codes.pop(authorization_code.code)
        return self._granted(client, code.scopes, code.resource)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if self.is_broken:
            raise RuntimeError
        if self.refresh.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        self.refreshed += 1
        return self._granted(client, scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.valid.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        raise NotImplementedError

    def _granted(self, client: OAuthClientInformationFull, scopes: list[str], resource: str | None) -> OAuthToken:
        access, refresh = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        named: dict[str, Any] = {"client_id": client.client_id, "scopes": scopes, "resource": resource}
        self.valid[access] = AccessToken(token=access, **named)
        self.refresh[refresh] = RefreshToken(token=refresh, **named)
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=3600, scope=" ".join(scopes))


class Vault:
    """The server, whose one tool shows the token that it was called with."""

    def __init__(self, url: str, provider: Provider) -> None:
        self.url, self.provider = url, provider
        self.calls = 0
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(url),
            resource_server_url=AnyHttpUrl(f"{url}/mcp"),
            required_scopes=["read"],
            validate_token_resource=True,
            client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=["read"]),
        )
        server = MCPServer("vault", auth=settings, auth_server_provider=provider, log_level="CRITICAL")

        @server.tool()
        def who_calls() -> str:
            """Shows the token."""
            self.calls += 1
            token = get_access_token()
            return token.token if token is not None else ""

        self.app = server.streamable_http_app()

    def toolset(self, **own: Any) -> McpToolset:
        fields: dict[str, Any] = {"redirect_uri": REDIRECT} | own
        oauth2 = OAuth2Auth(**fields)
        return McpToolset(
            connection_params=StreamableHTTPConnectionParams(f"{self.url}/mcp", timeout=30),
            auth_credential=AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=oauth2),
        )


class Later:
    """An app that is made when the address is known, which is a part of it."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            return await self.app(scope, receive, send)
        while True:
            kind = (await receive())["type"]
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return None


@pytest.fixture
async def vault() -> AsyncGenerator[Vault]:
    later = Later()
    async with serving(later) as running:  # pyright: ignore[reportArgumentType]
        made = Vault(running.url, Provider())
        later.app = made.app
        ready, over = asyncio.Event(), asyncio.Event()

        async def run() -> None:  # the SDK's server must end in the task that began it
            async with made.app.router.lifespan_context(made.app):
                ready.set()
                await over.wait()

        running_app = asyncio.create_task(run())
        await ready.wait()
        yield made
        over.set()
        await running_app


@asynccontextmanager
async def desk(toolset: McpToolset, folder: Path, *, turns: int = 1) -> AsyncGenerator[Serving]:
    script = [turn for number in range(turns) for turn in (call("who_calls", f"c-{number}"), "Done.")]
    async with serve(Desk(None).agent(*script, tools=[toolset]), folder) as server:  # pyright: ignore[reportArgumentType]
        yield server
    await toolset.close()


async def consent(request: Json) -> Json:
    """Follows the user's browser, and sends its last URL back as an answer."""
    credential = request["args"]["authConfig"]["exchangedAuthCredential"]
    async with httpx.AsyncClient() as browser:
        page = await browser.get(credential["oauth2"]["authUri"])
    assert page.status_code == 302, page.text
    back = {**credential["oauth2"], "authResponseUri": page.headers["location"]}
    return answer(request, {**credential, "oauth2": back})


async def test_each_user_is_asked_once_and_calls_with_a_token_of_their_own(vault: Vault, tmp_path: Path) -> None:
    used: list[str] = []
    async with desk(vault.toolset(), tmp_path, turns=2) as server:
        for user in ("ann", "bob"):
            await server.new_session("desk", user, f"s-{user}")
            where = {"userId": user, "sessionId": f"s-{user}"}
            (request,) = requests_of(await say(server, "Who am I?", **where))
            assert "clientSecret" not in str(request)
            (response,) = responses_of(await say(server, await consent(request), **where))
            used.append(text_of(response))
    assert used == list(vault.provider.valid)
    assert len(vault.provider.clients) == 1  # registered once, for all users
    async with desk(vault.toolset(), tmp_path) as server:  # after a restart
        (response,) = responses_of(await say(server, "And now?", userId="ann", sessionId="s-ann"))
        assert text_of(response) == used[0]


async def test_a_token_that_is_refused_is_refreshed_once_for_calls_at_the_same_time(
    vault: Vault, tmp_path: Path
) -> None:
    toolset = vault.toolset()
    two = [call("who_calls", "c-1"), call("who_calls", "c-2")]
    agent = Desk(None).agent(call("who_calls"), "Done.", two, "Done.", tools=[toolset])  # pyright: ignore[reportArgumentType]
    async with serve(agent, tmp_path) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        await say(server, await consent(request))
        vault.provider.valid.clear()
        responses = responses_of(await say(server, "And now?"))
        assert [text_of(one) for one in responses] == [*vault.provider.valid] * 2
        assert vault.provider.refreshed == 1
    await toolset.close()


async def test_a_user_is_not_asked_again_because_the_authorization_server_fails(vault: Vault, tmp_path: Path) -> None:
    async with desk(vault.toolset(), tmp_path, turns=2) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        await say(server, await consent(request))
        vault.provider.valid.clear()
        vault.provider.is_broken = True
        reply = await post(server, "And now?")
        assert "the authorization server answered with status 500" in reply.text
        assert "adk_request_credential" not in reply.text


async def test_a_user_whose_access_was_revoked_is_asked_during_the_call_which_is_then_made_once(
    vault: Vault, tmp_path: Path
) -> None:
    toolset = vault.toolset()
    toolset._ttl_seconds = 60.0  # the list of tools needs no token the second time
    async with desk(toolset, tmp_path, turns=2) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        await say(server, await consent(request))
        vault.provider.valid.clear()
        vault.provider.refresh.clear()
        events = await say(server, "And now?")
        (request,) = requests_of(events)
        assert responses_of(events)[0]["pending"]
        assert vault.calls == 1
        (response,) = responses_of(await say(server, await consent(request)))
        assert text_of(response) in vault.provider.valid
        assert vault.calls == 2


async def test_a_login_that_the_user_withdraws_is_used_no_more(vault: Vault, tmp_path: Path) -> None:
    async with desk(vault.toolset(), tmp_path, turns=2) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        await say(server, await consent(request))
        logins = (await server.client.get("/apps/desk/users/ann/credentials")).json()
        (key,) = [one["credentialKey"] for one in logins]
        (await server.client.delete(f"/apps/desk/users/ann/credentials/{key}")).raise_for_status()
        assert requests_of(await say(server, "And now?"))
        assert vault.calls == 1


async def test_an_answer_to_another_request_is_refused_and_a_user_may_decline(vault: Vault, tmp_path: Path) -> None:
    async with desk(vault.toolset(), tmp_path) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        oauth2 = (await consent(request))["functionResponse"]["response"]["oauth2"]
        for changed in ("state=x", "iss=https%3A%2F%2Fother.example&state="):
            forged = {**oauth2, "authResponseUri": oauth2["authResponseUri"].replace("state=", changed)}
            reply = await post(server, answer(request, {"authType": "oauth2", "oauth2": forged}))
            assert reply.status_code == 409, reply.text
        assert vault.provider.valid == {}
        (again,) = requests_of(await say(server, answer(request, {"error": "access_denied"})))
        (response,) = responses_of(await say(server, await consent(again)))
        assert text_of(response) in vault.provider.valid


async def test_a_public_server_can_not_lead_into_this_network(tmp_path: Path) -> None:
    asked: list[str] = []

    def refusing(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.host)
        challenge = 'Bearer resource_metadata="http://127.0.0.1:9/secret"'
        return httpx2.Response(401, headers={"WWW-Authenticate": challenge})

    def client(**options: Any) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(**options, transport=httpx2.MockTransport(refusing))

    toolset = McpToolset(
        connection_params=StreamableHTTPConnectionParams("https://93.184.215.14/mcp", httpx_client_factory=client),
        auth_credential=AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=OAuth2Auth(redirect_uri=REDIRECT)),
    )
    async with desk(toolset, tmp_path) as server:
        await server.new_session("desk")
        reply = await post(server, "Hi")
        assert "'127.0.0.1' is not a public address" in reply.text
    assert set(asked) == {"93.184.215.14"}


async def test_without_a_user_nobody_is_asked(vault: Vault) -> None:
    toolset = vault.toolset()
    with pytest.raises(ToolLoadingError):
        await toolset.get_tools()
    await toolset.close()


async def test_an_app_logs_in_by_itself_where_no_user_is_led_back(vault: Vault, tmp_path: Path) -> None:
    """The SDK's server knows no such grant: what it answers comes to the run, and no user is asked."""
    async with desk(vault.toolset(redirect_uri=None, client_id="app", client_secret="s"), tmp_path) as server:
        await server.new_session("desk")
        async with asyncio.timeout(20):
            reply = await post(server, "Hi")
    assert "no login is possible" in reply.text
    assert "adk_request_credential" not in reply.text


@pytest.mark.parametrize("oauth2", [None, OAuth2Auth(), OAuth2Auth(client_id="c")])
def test_a_credential_without_what_a_login_needs_is_refused(oauth2: OAuth2Auth | None) -> None:
    credential = AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=oauth2)
    with pytest.raises(AgentConfigError, match="oauth2"):
        McpToolset(connection_params=StreamableHTTPConnectionParams("http://localhost/mcp"), auth_credential=credential)


def test_a_process_has_no_logins() -> None:
    credential = AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=OAuth2Auth(redirect_uri=REDIRECT))
    params = StdioConnectionParams(StdioServerParameters(command="true"))
    with pytest.raises(AgentConfigError, match="a URL"):
        McpToolset(connection_params=params, auth_credential=credential)
