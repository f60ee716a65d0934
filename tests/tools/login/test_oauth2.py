"""Authorization URLs, before any provider has been asked. The rest is in tests/credentials."""

from __future__ import annotations

import base64
import hashlib
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest

from greenroom.errors import AgentConfigError
from greenroom.records.auth import (
    AuthConfig,
    AuthCredential,
    AuthCredentialTypes,
    AuthScheme,
    OAuth2Auth,
    OAuthFlow,
    OAuthFlows,
    public_config,
)
from greenroom.tools.login.oauth2 import with_authorization_uri
from greenroom.tools.web.http_client import HttpClient
from tests.tools.openapi.test_access import OAUTH, OIDC, oauth


async def asked(scheme: AuthScheme, credential: AuthCredential) -> OAuth2Auth:
    config = AuthConfig(auth_scheme=scheme, raw_auth_credential=credential)
    prepared = await with_authorization_uri(config, HttpClient())
    assert prepared.credential_key == config.credential_key
    assert prepared.exchanged_auth_credential is not None
    assert prepared.exchanged_auth_credential.oauth2 is not None
    return prepared.exchanged_auth_credential.oauth2


async def test_the_page_gets_all_that_a_provider_needs() -> None:
    raw = oauth(
        client_id="c-1", client_secret="hush", redirect_uri="https://me.test/cb", audience="api", prompt="consent"
    )
    given = await asked(OAUTH, raw)
    uri = urlsplit(given.auth_uri or "")
    assert uri._replace(query="").geturl() == "https://login.test/auth"
    challenge = base64.urlsafe_b64encode(hashlib.sha256((given.code_verifier or "").encode()).digest()).decode()
    assert dict(parse_qsl(uri.query)) == {
        "tenant": "7",
        "response_type": "code",
        "client_id": "c-1",
        "redirect_uri": "https://me.test/cb",
        "scope": "read write",
        "state": given.state,
        "audience": "api",
        "prompt": "consent",
        "code_challenge": challenge.rstrip("="),
        "code_challenge_method": "S256",
    }


async def test_each_request_has_a_state_and_a_verifier_of_its_own() -> None:
    one, other = [await asked(OIDC, oauth(client_id="c")) for _ in range(2)]
    assert one.state != other.state
    assert one.code_verifier != other.code_verifier
    assert len(one.state or "") >= 32
    assert parse_qs(urlsplit(one.auth_uri or "").query)["scope"] == ["openid email"]


async def test_a_client_sees_nothing_that_proves_anything() -> None:
    config = AuthConfig(auth_scheme=OAUTH, raw_auth_credential=oauth(client_id="c", client_secret="hush"))
    prepared = await with_authorization_uri(config, HttpClient())
    exchanged = prepared.exchanged_auth_credential
    assert exchanged is not None
    assert exchanged.oauth2 is not None
    shown = str(public_config(prepared))
    assert "hush" not in shown
    assert str(exchanged.oauth2.code_verifier) not in shown
    assert str(exchanged.oauth2.auth_uri) in shown


async def test_a_login_without_a_client_id_is_a_mistake_in_the_agent() -> None:
    with pytest.raises(AgentConfigError, match="client_id"):
        await asked(OAUTH, oauth())


async def test_a_scheme_without_a_login_is_left_as_it_is() -> None:
    scheme = AuthScheme(type="oauth2", flows=OAuthFlows(client_credentials=OAuthFlow(token_url="https://login.test/t")))
    raw = AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=OAuth2Auth(client_id="c"))
    assert await asked(scheme, raw) == raw.oauth2
