"""Each field of a request for a credential reaches the client, each field of an answer the tool; over HTTP."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from greenroom.invocation.user_context import ToolContext
from greenroom.records import wire
from greenroom.records.auth import AuthConfig, AuthCredential
from greenroom.records.base import JsonObject
from tests.credentials.desk import Desk, answer, call, requests_of, say, serve
from tests.server.serving import Json

FLOW: Json = {
    "authorizationUrl": "https://p/authorize",
    "tokenUrl": "https://p/token",
    "refreshUrl": "https://p/refresh",
    "scopes": {"read_all": "Read"},
}
SCHEMES: dict[str, Json] = {
    "apiKey": {"type": "apiKey", "description": "A key", "name": "x-key", "in": "header"},
    "http": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "oauth2": {
        "type": "oauth2",
        "flows": dict.fromkeys(("implicit", "password", "clientCredentials", "authorizationCode"), FLOW),
    },
    "openIdConnect": {
        "type": "openIdConnect",
        "openIdConnectUrl": "https://p/.well-known/openid-configuration",
        "authorizationEndpoint": "https://p/authorize",
        "tokenEndpoint": "https://p/token",
        "scopes": ["openid"],
    },
}
SHOWN: Json = {
    "authType": "oauth2",
    "resourceRef": "r",
    "http": {"scheme": "basic", "credentials": {"username": "u"}},
    "oauth2": {
        "clientId": "desk",
        "redirectUri": "https://desk/",
        "nonce": "n",
        "audience": "a",
        "prompt": "consent",
        "tokenEndpointAuthMethod": "client_secret_post",
        "expiresAt": 4e9,
        "expiresIn": 3600.0,
    },
}


def looking(config: AuthConfig, found: list[AuthCredential]) -> Any:
    def look(tool_context: ToolContext) -> str | None:
        """Looks at what was granted."""
        granted = tool_context.get_auth_response(config)
        if granted is None:
            return tool_context.request_credential(config)
        found.append(granted)
        return "ok"

    return look


def snake(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    spelled = {re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", key): inner for key, inner in value.items()}
    return {key: inner if key == "additional_headers" else snake(inner) for key, inner in spelled.items()}


async def asked(config: Json, folder: Path, reply: JsonObject | None = None) -> tuple[Json, list[AuthCredential]]:
    """The AuthConfig as a client gets it, and what the tool gets of the reply."""
    record = wire.from_plain(config, AuthConfig)
    found: list[AuthCredential] = []
    desk = Desk(record)
    async with serve(desk.agent(call("look"), "Done.", tools=[looking(record, found)]), folder) as server:
        await server.new_session("desk")
        events = await say(server, "Look.")
        (request,) = requests_of(events)
        config_sent = request["args"]["authConfig"]
        assert events[2]["actions"]["requestedAuthConfigs"] == {"c-1": config_sent}
        if reply is not None:
            await say(server, answer(request, reply))
    return config_sent, found


@pytest.mark.parametrize("kind", SCHEMES)
async def test_a_request_holds_the_scheme_and_all_of_the_credential_that_is_no_secret(
    kind: str, tmp_path: Path
) -> None:
    secrets = {"clientSecret": "hush", "refreshToken": "hush"}
    raw = {**SHOWN, "apiKey": "hush", "oauth2": {**SHOWN["oauth2"], **secrets}}
    config = {"authScheme": SCHEMES[kind], "rawAuthCredential": raw, "credentialKey": "k"}
    config_sent, _ = await asked(config, tmp_path)
    exchanged = config_sent.pop("exchangedAuthCredential")
    assert config_sent == {"authScheme": SCHEMES[kind], "rawAuthCredential": SHOWN, "credentialKey": "k"}
    added = {name: exchanged["oauth2"].pop(name, None) for name in ("authUri", "state", "codeChallengeMethod")}
    assert exchanged == SHOWN
    if kind in ("oauth2", "openIdConnect"):
        assert added["authUri"].startswith("https://p/authorize?")
        assert f"state={added['state']}&" in added["authUri"]
        assert added["codeChallengeMethod"] == "S256"
        for name in ("nonce=n", "audience=a", "prompt=consent", "redirect_uri=https%3A%2F%2Fdesk%2F"):
            assert name in added["authUri"]
    else:
        assert set(added.values()) == {None}


ANSWERS: list[tuple[str, Json]] = [
    ("apiKey", {"authType": "apiKey", "apiKey": "hush", "resourceRef": "r"}),
    ("http", {"authType": "http", "http": {
        "scheme": "bearer", "credentials": {"username": "u", "password": "p", "token": "hush"},
        "additionalHeaders": {"X-Tenant": "t"},
    }}),
    ("oauth2", {"authType": "oauth2", "oauth2": {
        "accessToken": "hush", "refreshToken": "r", "idToken": "i", "expiresAt": 4e9, "expiresIn": 3600.0,
    }}),
]  # fmt: skip


@pytest.mark.parametrize("in_snake_case", [False, True], ids=["camelCase", "snake_case"])
@pytest.mark.parametrize("is_whole", [False, True], ids=["the credential", "the config"])
@pytest.mark.parametrize(("kind", "given"), ANSWERS, ids=[kind for kind, _ in ANSWERS])
async def test_an_answer_is_known_by_either_name_of_each_field(
    kind: str, given: Json, is_whole: bool, in_snake_case: bool, tmp_path: Path
) -> None:
    reply: Json = {"authScheme": SCHEMES[kind], "exchangedAuthCredential": given} if is_whole else given
    config: Json = {"authScheme": SCHEMES[kind], "credentialKey": "k"}
    if kind == "oauth2":
        config["rawAuthCredential"] = {"authType": "oauth2", "oauth2": {"clientId": "desk", "clientSecret": "mine"}}
        own = {"clientId": "desk", "clientSecret": "mine"}
        expected = {**given, "oauth2": {**given["oauth2"], **own}}
    else:
        expected = given
    _, (granted,) = await asked(config, tmp_path, snake(reply) if in_snake_case else reply)
    assert wire.to_plain(granted) == expected
