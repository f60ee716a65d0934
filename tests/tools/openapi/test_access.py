from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import pytest
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from greenroom.invocation.user_context import ToolContext
from greenroom.records import wire
from greenroom.records.auth import (
    AuthConfig,
    AuthCredential,
    AuthCredentialTypes,
    AuthScheme,
    HttpAuth,
    HttpCredentials,
    OAuth2Auth,
    OAuthFlow,
    OAuthFlows,
)
from greenroom.tools.login.credential_provider import PENDING
from greenroom.tools.openapi.toolset import OpenAPIToolset
from tests.tools.one_call import call_once
from tests.tools.openapi.conftest import Api, Seen

KEY = AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key="sesame-1")
LOGIN = AuthCredential(
    auth_type=AuthCredentialTypes.HTTP,
    http=HttpAuth(scheme="basic", credentials=HttpCredentials(username="ada", password="pa:ss word")),
)
ENCODED = base64.b64encode(b"ada:pa:ss word").decode()
BEARER = AuthCredential(auth_type=AuthCredentialTypes.HTTP, http=HttpAuth(credentials=HttpCredentials(token="tok-1")))
OAUTH = AuthScheme(
    type="oauth2",
    flows=OAuthFlows(
        authorization_code=OAuthFlow(
            authorization_url="https://login.test/auth?tenant=7", token_url="", scopes={"read": "", "write": ""}
        )
    ),
)
OIDC = AuthScheme(
    type="openIdConnect",
    open_id_connect_url="https://login.test/.well-known",
    authorization_endpoint="https://login.test/auth",
    token_endpoint="https://login.test/token",
    scopes=["openid", "email"],
)


def oauth(**fields: Any) -> AuthCredential:
    return AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=OAuth2Auth(**fields))


def key_in(place: str) -> AuthScheme:
    return AuthScheme(type="apiKey", in_=place, name="X-Key")


def query(seen: Seen) -> str:
    return seen.query


def header(name: str) -> Callable[[Seen], str | None]:
    return lambda seen: seen.headers.get(name)


@pytest.mark.parametrize(
    ("scheme", "credential", "where", "value"),
    [
        (key_in("header"), KEY, header("x-key"), "sesame-1"),
        (key_in("query"), KEY, query, "X-Key=sesame-1"),
        (key_in("cookie"), KEY, header("cookie"), "X-Key=sesame-1"),
        (AuthScheme(type="http", scheme="basic"), LOGIN, header("authorization"), f"Basic {ENCODED}"),
        (AuthScheme(type="http", scheme="bearer"), BEARER, header("authorization"), "Bearer tok-1"),
        (AuthScheme(type="http", scheme="Token"), BEARER, header("authorization"), "Token tok-1"),
        (OAUTH, oauth(access_token="tok-2"), header("authorization"), "Bearer tok-2"),
        (OAUTH, BEARER, header("authorization"), "Bearer tok-1"),
        (OIDC, oauth(access_token="tok-3"), header("authorization"), "Bearer tok-3"),
    ],
)  # fmt: skip
async def test_each_scheme_has_its_place_in_a_request(
    api: Api, scheme: AuthScheme, credential: AuthCredential, where: Any, value: str
) -> None:
    await api.call({}, {}, auth_scheme=scheme, auth_credential=credential)
    assert where(api.last) == value


async def test_a_credential_may_bring_headers_of_its_own(api: Api) -> None:
    http = HttpAuth(credentials=HttpCredentials(token="t"), additional_headers={"X-Project": "p"})
    credential = AuthCredential(auth_type=AuthCredentialTypes.HTTP, http=http)
    scheme = AuthScheme(type="http", scheme="bearer")
    await api.call({}, {}, auth_scheme=scheme, auth_credential=credential)
    assert api.last.headers["x-project"] == "p"


async def test_the_scheme_of_the_document_is_used_with_the_credential_of_the_toolset(api: Api) -> None:
    components = {"securitySchemes": {"key": {"type": "apiKey", "in": "query", "name": "k"}}}
    await api.call({"security": [{"key": []}]}, {}, components=components, auth_credential=KEY)
    assert api.last.query == "k=sesame-1"


@pytest.mark.parametrize(("operation", "query"), [({}, "k=sesame-1"), ({"security": []}, "")])
async def test_what_the_document_demands_holds_where_an_operation_says_nothing(
    api: Api, operation: dict[str, Any], query: str
) -> None:
    components = {"securitySchemes": {"key": {"type": "apiKey", "in": "query", "name": "k"}}}
    paths = {"/it": {"get": {"operationId": "do_it", **operation}}}
    document = api.document(paths, components=components, security=[{"key": []}])
    await call_once(OpenAPIToolset(spec_dict=document, allow_private_network_access=True, auth_credential=KEY), "do_it")
    assert api.last.query == query


async def test_without_a_credential_the_user_is_asked(api: Api) -> None:
    assert await api.call({}, {}, auth_scheme=key_in("header")) == PENDING
    assert PENDING == {
        "pending": True,
        "message": "The user has been asked to grant access. Wait for that; the call is then made automatically.",
    }
    assert api.seen == []
    assert api.asked_for == {
        "call-1": {
            "authScheme": {"type": "apiKey", "name": "X-Key", "in": "header"},
            "credentialKey": AuthConfig(auth_scheme=key_in("header")).credential_key,
        }
    }


async def test_a_request_holds_no_secret(api: Api, tool_context: ToolContext) -> None:
    raw = oauth(client_id="c-1", client_secret="hush")
    assert await api.call({}, {}, auth_scheme=OAUTH, auth_credential=raw) == PENDING
    plain = api.asked_for["call-1"]
    assert "hush" not in str(plain)
    asked = wire.from_plain(plain, AuthConfig)
    assert asked.credential_key == AuthConfig(auth_scheme=OAUTH, raw_auth_credential=raw).credential_key
    tool = api.tool({}, auth_scheme=OAUTH, auth_credential=raw)
    assert await tool.run_async(args={}, tool_context=tool_context) == PENDING
    assert tool_context.requested_credential is not None
    assert tool_context.requested_credential.auth_config.raw_auth_credential == raw
    assert not tool_context.requested_credential.only_public_hosts


async def test_an_optional_credential_is_not_asked_for_until_it_is_missed(api: Api) -> None:
    components = {"securitySchemes": {"key": {"type": "apiKey", "in": "query", "name": "k"}}}
    operation = {"security": [{"key": []}, {}]}
    assert await api.call(operation, {}, components=components) == {}
    assert api.last.query == ""
    api.answers = [Response(status_code=401)]
    assert await api.call(operation, {}, components=components) == PENDING


async def test_what_the_user_granted_is_used_before_the_apps_own(api: Api) -> None:
    config = AuthConfig(auth_scheme=OAUTH, raw_auth_credential=oauth(client_id="c", access_token="app"))
    granted = {config.credential_key or "": oauth(access_token="user")}
    await api.call({}, {}, granted=granted, auth_scheme=OAUTH, auth_credential=config.raw_auth_credential)
    assert api.last.headers["authorization"] == "Bearer user"


async def test_a_key_may_be_given_for_all_tools(api: Api) -> None:
    await api.call({}, {}, granted={"shared": KEY}, auth_scheme=key_in("query"), credential_key="shared")
    assert api.last.query == "X-Key=sesame-1"


def refreshing(api: Api) -> AuthScheme:
    flow = OAuthFlow(authorization_url="https://login.test", token_url=f"{api.url}/token")
    return AuthScheme(type="oauth2", flows=OAuthFlows(authorization_code=flow))


async def test_a_refused_token_is_refreshed_once_and_the_call_made_again(api: Api, tool_context: ToolContext) -> None:
    api.answers = [
        Response(status_code=401),
        JSONResponse({"access_token": "new-1", "expires_in": 60, "refresh_token": "r-2"}),
        JSONResponse({"ok": True}),
    ]
    credential = oauth(client_id="c+1", client_secret="s/1", access_token="old-1", refresh_token="r-1")
    tool = api.tool({}, auth_scheme=refreshing(api), auth_credential=credential)
    assert await tool.run_async(args={}, tool_context=tool_context) == {"ok": True}
    refresh = api.seen[1]
    assert dict(parse_qsl(refresh.body.decode())) == {"grant_type": "refresh_token", "refresh_token": "r-1"}
    assert refresh.headers["authorization"] == "Basic " + base64.b64encode(b"c%2B1:s%2F1").decode()
    assert [seen.headers["authorization"] for seen in (api.seen[0], api.seen[2])] == ["Bearer old-1", "Bearer new-1"]

    await tool.run_async(args={}, tool_context=tool_context)
    assert api.last.headers["authorization"] == "Bearer new-1"
    assert len(api.seen) == 4


async def test_calls_side_by_side_refresh_once(api: Api, tool_context: ToolContext) -> None:
    """A refresh token that was used before is refused, as providers do that rotate them."""
    used: list[bytes] = []

    def answer(seen: Seen) -> Response:
        if seen.path != "/token":
            return Response(status_code=401 if seen.headers["authorization"] == "Bearer old" else 204)
        used.append(seen.body)
        return JSONResponse({"access_token": "new"}) if len(used) == 1 else Response(status_code=400)

    api.answers = [answer]
    credential = oauth(client_id="c", access_token="old", refresh_token="r")
    tool = api.tool({}, auth_scheme=refreshing(api), auth_credential=credential)
    answers = await asyncio.gather(*[tool.run_async(args={}, tool_context=tool_context) for _ in range(5)])
    assert answers == [{"text": ""}] * 5
    assert len(used) == 1


async def test_a_token_that_is_refused_again_is_asked_for(api: Api) -> None:
    api.answers = [Response(status_code=401), JSONResponse({"access_token": "new-1"}), Response(status_code=401)]
    credential = oauth(client_id="c", access_token="old", refresh_token="r")
    assert await api.call({}, {}, auth_scheme=refreshing(api), auth_credential=credential) == PENDING
    assert len(api.seen) == 3
    assert "call-1" in api.asked_for


async def test_a_refused_refresh_is_asked_for(api: Api) -> None:
    api.answers = [Response(status_code=401), JSONResponse({"error": "invalid_grant"}, status_code=400)]
    credential = oauth(client_id="c", access_token="old", refresh_token="r")
    assert await api.call({}, {}, auth_scheme=refreshing(api), auth_credential=credential) == PENDING


async def test_a_refused_key_is_asked_for(api: Api) -> None:
    api.answers = [Response(status_code=401)]
    answer = await api.call({}, {}, auth_scheme=key_in("header"), auth_credential=KEY)
    assert answer == PENDING
    assert "sesame-1" not in str(api.asked_for)


async def test_a_token_is_refreshed_before_it_expires(api: Api) -> None:
    api.answers = [JSONResponse({"access_token": "new-1"}), JSONResponse({})]
    credential = oauth(client_id="c", access_token="old", refresh_token="r", expires_at=time.time() + 1)
    await api.call({}, {}, auth_scheme=refreshing(api), auth_credential=credential)
    assert [seen.path for seen in api.seen] == ["/token", "/it"]
    assert dict(parse_qsl(api.seen[0].body.decode()))["client_id"] == "c"


async def test_client_credentials_are_exchanged(api: Api) -> None:
    flow = OAuthFlow(token_url=f"{api.url}/token", scopes={"read": ""})
    scheme = AuthScheme(type="oauth2", flows=OAuthFlows(client_credentials=flow))
    credential = oauth(client_id="c", client_secret="s", token_endpoint_auth_method="client_secret_post", audience="a")
    api.answers = [JSONResponse({"access_token": "tok-9"}), JSONResponse({})]
    await api.call({}, {}, auth_scheme=scheme, auth_credential=credential)
    assert dict(parse_qsl(api.seen[0].body.decode())) == {
        "grant_type": "client_credentials", "scope": "read", "client_id": "c", "client_secret": "s", "audience": "a",
    }  # fmt: skip
    assert api.last.headers["authorization"] == "Bearer tok-9"


async def test_a_broken_token_service_is_reported(api: Api) -> None:
    api.answers = [Response(status_code=503)]
    credential = oauth(client_id="c", refresh_token="r")
    answer = await api.call({}, {}, auth_scheme=refreshing(api), auth_credential=credential)
    assert answer == {"error": "do_it failed: the token service answered with status 503."}


@pytest.mark.parametrize(
    ("scheme", "credential"),
    [
        (key_in("query"), KEY),
        (AuthScheme(type="http", scheme="basic"), LOGIN),
        (AuthScheme(type="http", scheme="bearer"), BEARER),
    ],
)
async def test_errors_hold_no_secrets_even_if_the_api_repeats_them(
    api: Api, scheme: AuthScheme, credential: AuthCredential
) -> None:
    api.answers = [lambda seen: PlainTextResponse(f"{seen.query} {seen.headers}", status_code=400)]
    answer = await api.call({}, {}, auth_scheme=scheme, auth_credential=credential)
    assert "***" in answer["error"]
    assert not [secret for secret in (*credential.secrets(), ENCODED) if secret in answer["error"]]


async def test_a_redirect_to_another_host_takes_no_key_along(api: Api) -> None:
    elsewhere = api.url.replace("127.0.0.1", "localhost")
    api.answers = [RedirectResponse(f"{elsewhere}/x"), JSONResponse({})]
    await api.call({}, {}, auth_scheme=key_in("header"), auth_credential=KEY)
    assert api.seen[0].headers["x-key"] == "sesame-1"
    assert "x-key" not in api.last.headers


async def test_a_redirect_within_the_host_keeps_a_key_in_a_cookie(api: Api) -> None:
    api.answers = [RedirectResponse("/x"), JSONResponse({})]
    await api.call({}, {}, auth_scheme=key_in("cookie"), auth_credential=KEY)
    assert api.last.path == "/x"
    assert api.last.headers["cookie"] == api.seen[0].headers["cookie"]


async def test_a_cookie_set_by_the_api_is_not_sent_with_later_calls(api: Api) -> None:
    first = JSONResponse({})
    first.set_cookie("session", "of-ada")
    api.answers = [first, JSONResponse({})]
    toolset = OpenAPIToolset(
        spec_dict=api.document({"/it": {"get": {"operationId": "do_it"}}}), allow_private_network_access=True
    )
    for _ in range(2):
        await call_once(toolset, "do_it", {})
    assert "cookie" not in api.last.headers


@pytest.mark.parametrize("is_named_by_the_developer", [True, False])
async def test_a_token_service_of_this_machine_is_reached_if_the_developer_names_it(
    api: Api, is_named_by_the_developer: bool
) -> None:
    api.answers = [JSONResponse({"access_token": "t", "token_type": "bearer"})]
    scheme = {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": f"{api.url}/token", "scopes": {}}}}
    document: dict[str, Any] = {
        "openapi": "3.0.3",
        "servers": [{"url": "https://api.invalid"}],
        "paths": {"/it": {"get": {"operationId": "do_it", "security": [{"login": []}]}}},
        "components": {"securitySchemes": {"login": scheme}},
    }
    own = oauth(client_id="c", client_secret="s")
    given = wire.from_plain(scheme, AuthScheme) if is_named_by_the_developer else None
    toolset = OpenAPIToolset(spec_dict=document, auth_credential=own, auth_scheme=given)
    response = (await call_once(toolset, "do_it", {})).response
    await toolset.close()

    assert "error" in response, "the API itself can't be reached"
    assert [seen.path for seen in api.seen] == (["/token"] if is_named_by_the_developer else [])
