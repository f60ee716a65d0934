from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest
from pydantic import BaseModel, Field

from greenroom.errors import AgentConfigError
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
    ServiceAccount,
    ServiceAccountCredential,
    credential_parts,
    dict_to_auth_scheme,
    openid_dict_to_scheme_credential,
    openid_url_to_scheme_credential,
    service_account_dict_to_scheme_credential,
    to_auth_scheme,
    token_to_scheme_credential,
    without_secrets,
)

SCHEME = AuthScheme(
    type="oauth2",
    flows=OAuthFlows(
        authorization_code=OAuthFlow(authorization_url="https://a.test", token_url="https://t.test", scopes={"s": "S"})
    ),
)


def oauth(**fields: object) -> AuthCredential:
    return AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=OAuth2Auth(**fields))  # pyright: ignore[reportArgumentType]


def test_an_auth_config_is_spelled_as_adk_clients_expect() -> None:
    config = AuthConfig(
        auth_scheme=SCHEME, raw_auth_credential=oauth(client_id="c", redirect_uri="https://r.test"), credential_key="k"
    )
    plain = {
        "authScheme": {
            "type": "oauth2",
            "flows": {
                "authorizationCode": {
                    "authorizationUrl": "https://a.test",
                    "tokenUrl": "https://t.test",
                    "scopes": {"s": "S"},
                }
            },
        },
        "rawAuthCredential": {"authType": "oauth2", "oauth2": {"clientId": "c", "redirectUri": "https://r.test"}},
        "credentialKey": "k",
    }
    assert wire.to_plain(config) == plain
    assert wire.from_plain(plain, AuthConfig) == config


def test_an_auth_config_is_read_in_snake_case_too() -> None:
    plain = {
        "auth_scheme": {"type": "apiKey", "in": "header", "name": "X-Key"},
        "exchanged_auth_credential": {"auth_type": "apiKey", "api_key": "k"},
    }
    config = wire.from_plain(plain, AuthConfig)
    assert config.auth_scheme == AuthScheme(type="apiKey", in_="header", name="X-Key")
    assert config.exchanged_auth_credential == AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key="k")


def test_a_scheme_of_a_providers_own_is_read() -> None:
    config = wire.from_plain({"authScheme": {"type": "gcpAuthProviderScheme", "name": "n"}}, AuthConfig)
    assert config.auth_scheme.type == "gcpAuthProviderScheme"


def test_the_key_is_the_same_for_what_one_grant_would_satisfy() -> None:
    def key(**fields: object) -> str | None:
        return AuthConfig(auth_scheme=SCHEME, raw_auth_credential=oauth(**fields)).credential_key

    first = key(client_id="c")
    assert first is not None
    assert first.startswith("adk_oauth2_")
    assert first == key(
        client_id="c", state="s", auth_uri="u", access_token="a", refresh_token="r", expires_at=5.0, nonce="n"
    )
    assert first != key(client_id="d")
    assert first != AuthConfig(auth_scheme=SCHEME).credential_key
    other = AuthScheme(type="apiKey", in_="header", name="X")
    assert AuthConfig(auth_scheme=other).credential_key != AuthConfig(auth_scheme=SCHEME).credential_key


def test_what_clients_see_of_a_credential_proves_nothing() -> None:
    http = HttpAuth(
        scheme="basic",
        credentials=HttpCredentials(username="ada", password="p1", token="t1"),
        additional_headers={"X": "h1"},
    )
    account = ServiceAccount(service_account_credential={"private_key": "k1"})
    given = oauth(
        client_id="c",
        client_secret="s1",
        access_token="a1",
        refresh_token="r1",
        id_token="i1",
        auth_code="o1",
        code_verifier="v1",
    )
    credential = AuthCredential(
        auth_type=AuthCredentialTypes.OAUTH2, api_key="y1", http=http, oauth2=given.oauth2, service_account=account
    )
    assert sorted(credential.secrets()) == ["a1", "h1", "i1", "k1", "o1", "p1", "r1", "s1", "t1", "v1", "y1"]
    public = without_secrets(credential)
    assert public is not None
    assert public.secrets() == []
    assert wire.to_plain(public) == {
        "authType": "oauth2",
        "http": {"scheme": "basic", "credentials": {"username": "ada"}},
        "oauth2": {"clientId": "c"},
    }
    assert len(credential.secrets()) == 11
    assert without_secrets(None) is None


@pytest.mark.parametrize(
    ("scheme", "credential"),
    [
        (AuthScheme(type="apiKey", in_="header", name="X"), oauth(access_token="t")),
        (AuthScheme(type="apiKey", in_="header"), AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key="k")),
        (AuthScheme(type="http", scheme="basic"), oauth(access_token="t")),
        (AuthScheme(type="http", scheme="bearer"), oauth(client_id="c")),
        (SCHEME, oauth(client_id="c")),
        (AuthScheme(type="openIdConnect"), oauth(refresh_token="r")),
    ],
)
def test_a_credential_of_no_use_for_a_scheme_gives_nothing(scheme: AuthScheme, credential: AuthCredential) -> None:
    assert credential_parts(scheme, credential) is None


def test_keys_and_tokens_make_a_scheme_with_its_credential() -> None:
    scheme, credential = token_to_scheme_credential("apikey", "query", "k", "v")
    assert credential is not None
    assert credential_parts(scheme, credential) == ({}, {"k": "v"}, {})
    scheme, credential = token_to_scheme_credential("oauth2Token", credential_value="t")
    assert credential is not None
    assert credential_parts(scheme, credential) == ({"Authorization": "Bearer t"}, {}, {})
    assert token_to_scheme_credential("apikey", "query", "k")[1] is None
    with pytest.raises(AgentConfigError):
        token_to_scheme_credential("magic")


class ApiKeyIn(StrEnum):
    header = "header"


class FastApiKey(BaseModel):
    """Spelled as `fastapi.openapi.models.APIKey` is."""

    type_: str = Field(default="apiKey", alias="type")
    description: str | None = None
    in_: ApiKeyIn = Field(alias="in")
    name: str


class FastApiFlow(BaseModel):
    authorizationUrl: str  # noqa: N815
    tokenUrl: str  # noqa: N815
    scopes: dict[str, str] = {}


class FastApiOAuth2(BaseModel):
    type_: str = Field(default="oauth2", alias="type")
    flows: dict[str, FastApiFlow]


KEY_SCHEME = AuthScheme(type="apiKey", in_="header", name="X-Key")


@pytest.mark.parametrize(
    "given",
    [
        KEY_SCHEME,
        {"type": "apiKey", "in": "header", "name": "X-Key"},
        {"type": "apiKey", "in": ApiKeyIn.header, "name": "X-Key"},
        FastApiKey(**{"in": ApiKeyIn.header, "name": "X-Key"}),  # type: ignore[arg-type]
    ],
)
def test_a_scheme_may_be_a_record_a_map_or_a_model_of_fastapi(given: Any) -> None:
    config = AuthConfig(auth_scheme=given)
    assert config.auth_scheme == KEY_SCHEME
    assert config.credential_key == AuthConfig(auth_scheme=KEY_SCHEME).credential_key


def test_the_flows_of_a_model_of_fastapi_are_read() -> None:
    flow = FastApiFlow(authorizationUrl="https://p/authorize", tokenUrl="https://p/token", scopes={"read": ""})
    scheme = to_auth_scheme(FastApiOAuth2(flows={"authorizationCode": flow}))
    assert scheme.flows is not None
    assert scheme.flows.authorization_code == OAuthFlow(
        authorization_url="https://p/authorize", token_url="https://p/token", scopes={"read": ""}
    )


@pytest.mark.parametrize("given", [{}, {"type": 7}, {"type": "oauth2", "flows": 7}])
def test_a_map_that_is_no_scheme_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(AgentConfigError, match="Not a security scheme"):
        dict_to_auth_scheme(given)


CLIENT = {"client_id": "c", "client_secret": "s", "redirect_uri": "https://desk/"}


@pytest.mark.parametrize("client", [CLIENT, {"web": CLIENT}])
def test_an_openid_connect_client_is_read_as_the_provider_hands_it_out(client: dict[str, Any]) -> None:
    scheme, credential = openid_url_to_scheme_credential("https://p/.well-known/openid-configuration", ["x"], client)
    assert (scheme.type, scheme.scopes) == ("openIdConnect", ["x"])
    assert scheme.open_id_connect_url == "https://p/.well-known/openid-configuration"
    assert credential.auth_type == AuthCredentialTypes.OPEN_ID_CONNECT
    assert credential.oauth2 == OAuth2Auth(client_id="c", client_secret="s", redirect_uri="https://desk/")
    endpoints = {"authorization_endpoint": "https://p/a", "token_endpoint": "https://p/t"}
    scheme, _ = openid_dict_to_scheme_credential(endpoints, ["x"], client)
    assert (scheme.authorization_endpoint, scheme.token_endpoint) == ("https://p/a", "https://p/t")


def test_an_openid_connect_client_without_id_or_endpoints_is_refused() -> None:
    with pytest.raises(AgentConfigError, match="client_id and client_secret"):
        openid_url_to_scheme_credential("https://p", [], {})
    with pytest.raises(AgentConfigError, match="authorization_endpoint"):
        openid_dict_to_scheme_credential({"token_endpoint": "https://p/t"}, [], CLIENT)


def test_a_service_account_key_may_be_given_field_by_field() -> None:
    key = ServiceAccountCredential(type_="service_account", private_key="pem")
    assert key == {"type": "service_account", "private_key": "pem"}
    assert ServiceAccountCredential.model_validate(key) == ServiceAccountCredential.model_construct(**key) == key
    scheme, credential = service_account_dict_to_scheme_credential(key, ["s"])
    assert scheme.scheme == "bearer"
    assert credential.service_account == ServiceAccount(service_account_credential=key, scopes=["s"])
    assert wire.from_plain(wire.to_plain(credential), AuthCredential) == credential
