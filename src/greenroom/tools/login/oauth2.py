"""An OAuth 2 and OpenID Connect client: authorization requests, code exchange and token refresh.

Authlib builds the messages; `HttpClient` sends them, within its limits. Every code is bound by PKCE
(S256), as RFC 9700 requires. ID tokens are stored as the token endpoint sent them, and not read.
"""

from __future__ import annotations

import secrets
import time
from importlib import import_module
from typing import Any, cast
from urllib.parse import parse_qs, quote, urlsplit

import msgspec

from greenroom.errors import AgentConfigError, MissingExtra, ToolError
from greenroom.records.auth import AuthConfig, AuthCredential, AuthScheme, OAuth2Auth, OAuthFlow
from greenroom.records.base import JsonObject
from greenroom.tools.web.http_client import Headers, HttpClient

_VERIFIER_BYTES = 48


class TokenRefused(ToolError):
    """The token endpoint refused the request. reason: its error code, such as `invalid_grant`."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the token service refused ({reason})")
        self.reason = reason


def _authlib(module: str) -> Any:
    """Imports a module on first use: most agents need no logins. Raises MissingExtra."""
    try:
        return import_module(f"authlib.oauth2.{module}")
    except ImportError as error:
        raise MissingExtra("oauth", "Authlib") from error


def interactive_flow(scheme: AuthScheme) -> OAuthFlow | None:
    """The scheme's flow with a login at a provider, if any."""
    if scheme.authorization_endpoint:
        scopes = dict.fromkeys(scheme.scopes or ["openid"], "")
        return OAuthFlow(
            authorization_url=scheme.authorization_endpoint, token_url=scheme.token_endpoint, scopes=scopes
        )

    if scheme.flows is None:
        return None

    return scheme.flows.authorization_code or scheme.flows.implicit


async def discover(scheme: AuthScheme, client: HttpClient) -> AuthScheme:
    """Adds the endpoints that an OpenID Connect provider publishes to a scheme. Raises ToolError."""
    url = scheme.open_id_connect_url
    if scheme.type != "openIdConnect" or not url or (scheme.authorization_endpoint and scheme.token_endpoint):
        return scheme

    reply = await client.send("GET", url, headers=[(b"Accept", b"application/json")])
    reply_body: Any = reply.json_or_text()
    if reply.status != 200 or not isinstance(reply_body, dict):
        raise ToolError(f"the OpenID Connect provider answered with status {reply.status}")

    document = cast("JsonObject", reply_body)

    return msgspec.structs.replace(
        scheme,
        authorization_endpoint=scheme.authorization_endpoint or document.get("authorization_endpoint"),
        token_endpoint=scheme.token_endpoint or document.get("token_endpoint"),
    )


async def with_authorization_uri(config: AuthConfig, client: HttpClient) -> AuthConfig:
    """Adds the authorization URL to a request for a credential, with a `state` and a code verifier
    of its own.

    Schemes without a login stay unchanged. Raises ToolError, AgentConfigError and MissingExtra.
    """
    raw = config.raw_auth_credential
    if raw is None or raw.oauth2 is None:
        return msgspec.structs.replace(config, exchanged_auth_credential=raw)

    scheme = await discover(config.auth_scheme, client)
    flow = interactive_flow(scheme)
    if flow is None or not flow.authorization_url:
        return msgspec.structs.replace(config, auth_scheme=scheme, exchanged_auth_credential=raw)

    oauth2 = raw.oauth2
    if not oauth2.client_id:
        raise AgentConfigError("A login needs oauth2.client_id, the id of this app at the provider")

    state = secrets.token_urlsafe(32)
    verifier = secrets.token_urlsafe(_VERIFIER_BYTES)
    extra = {
        "audience": oauth2.audience,
        "prompt": oauth2.prompt,
        "nonce": oauth2.nonce,
        "resource": oauth2.resource,
    }
    uri: str = _authlib("rfc6749.parameters").prepare_grant_uri(
        flow.authorization_url,
        client_id=oauth2.client_id,
        response_type="code",
        redirect_uri=oauth2.redirect_uri,
        scope=" ".join(flow.scopes),
        state=state,
        code_challenge=_authlib("rfc7636").create_s256_code_challenge(verifier),
        code_challenge_method="S256",
        **{name: value for name, value in extra.items() if value},
    )
    requested = msgspec.structs.replace(
        oauth2, auth_uri=uri, state=state, code_verifier=verifier, code_challenge_method="S256"
    )

    return msgspec.structs.replace(
        config, auth_scheme=scheme, exchanged_auth_credential=msgspec.structs.replace(raw, oauth2=requested)
    )


def _authorization_code(requested: OAuth2Auth, answer: OAuth2Auth) -> str:
    """The provider's code in an answer to this request. Raises TokenRefused."""
    state = answer.state
    code = answer.auth_code
    if answer.auth_response_uri:
        query = parse_qs(urlsplit(answer.auth_response_uri).query)
        state = query.get("state", [None])[0]
        code = query.get("code", [None])[0]
        issuer = query.get("iss", [requested.issuer])[0]
        if requested.issuer and issuer != requested.issuer:
            raise TokenRefused("the answer comes from another authorization server")  # RFC 9207

    if not requested.state or not state or not secrets.compare_digest(state.encode(), requested.state.encode()):
        raise TokenRefused("the answer belongs to another request: its state differs")
    if not code:
        raise TokenRefused("the answer holds no authorization code")

    return code


async def exchange_code(
    config: AuthConfig,
    answer: OAuth2Auth,
    client: HttpClient,
) -> AuthCredential:
    """Exchanges an authorization code for a token.

    config: of the request.
    answer: only its code, state and redirect URI are used.

    Raises TokenRefused when the answer is invalid, and other ToolErrors when the provider fails.
    """
    requested = config.exchanged_auth_credential
    if requested is None or requested.oauth2 is None:
        raise TokenRefused("no login was requested")

    code = _authorization_code(requested.oauth2, answer)

    flow = interactive_flow(config.auth_scheme)
    if flow is None or not flow.token_url:
        raise ToolError("the security scheme names no token endpoint")

    fields = {
        "code": code,
        "redirect_uri": answer.redirect_uri or requested.oauth2.redirect_uri,
        "code_verifier": requested.oauth2.code_verifier,
    }

    return await _token(client, flow.token_url, "authorization_code", fields, requested)


async def refresh(
    scheme: AuthScheme,
    credential: AuthCredential,
    client: HttpClient,
) -> AuthCredential | None:
    """Gets a new token with the refresh token or the app's own credentials; None when there is
    neither.

    Raises TokenRefused when the credential is no longer valid, and other ToolErrors when the
    provider fails.
    """
    oauth2 = credential.oauth2
    if oauth2 is None:
        return None

    flows = scheme.flows

    code_flow = flows.authorization_code if flows is not None else None
    if oauth2.refresh_token:
        url = scheme.token_endpoint or (code_flow and (code_flow.refresh_url or code_flow.token_url))
        if not url:
            url = (await discover(scheme, client)).token_endpoint

        if not url:
            return None

        return await _token(
            client,
            url,
            "refresh_token",
            {"refresh_token": oauth2.refresh_token},
            credential,
        )

    own = flows.client_credentials if flows is not None else None
    if own is None or not own.token_url or not oauth2.client_id or not oauth2.client_secret:
        return None

    return await _token(
        client,
        own.token_url,
        "client_credentials",
        {"scope": " ".join(own.scopes)},
        credential,
    )


async def _token(
    client: HttpClient, url: str, grant_type: str, fields: dict[str, Any], credential: AuthCredential
) -> AuthCredential:
    oauth2_auth = credential.oauth2 or OAuth2Auth()
    fields |= {name: value for name in ("audience", "resource") if (value := getattr(oauth2_auth, name))}
    method = oauth2_auth.token_endpoint_auth_method or ("client_secret_basic" if oauth2_auth.client_secret else "none")
    # RFC 6749, 2.3.1: both are form-encoded before they go into the header, which Authlib leaves to its caller.
    names = [oauth2_auth.client_id or "", oauth2_auth.client_secret or ""]
    if method == "client_secret_basic":
        names = [quote(name, safe="") for name in names]

    body: str = _authlib("rfc6749.parameters").prepare_token_request(grant_type, **fields)
    proof: dict[str, str] = {}
    url, proof, body = _authlib("auth").ClientAuth(*names, method).prepare("POST", url, proof, body)
    headers: Headers = [(b"Content-Type", b"application/x-www-form-urlencoded"), (b"Accept", b"application/json")]
    headers += [(name.encode(), value.encode()) for name, value in proof.items()]

    reply = await client.send("POST", url, headers=headers, content=body.encode())
    if reply.status >= 500:
        raise ToolError(f"the token service answered with status {reply.status}")

    answer: Any = reply.json_or_text()

    token = cast("JsonObject", answer) if isinstance(answer, dict) else {}
    if reply.status != 200 or not isinstance(token.get("access_token"), str):
        reason: Any = token.get("error")
        raise TokenRefused(reason if isinstance(reason, str) else f"status {reply.status}")

    seconds = token.get("expires_in")
    oauth2 = msgspec.structs.replace(
        oauth2_auth,
        access_token=token["access_token"],
        refresh_token=token.get("refresh_token") or oauth2_auth.refresh_token,
        id_token=token.get("id_token") or oauth2_auth.id_token,
        expires_at=time.time() + seconds if isinstance(seconds, (int, float)) else None,
        auth_uri=None,
        state=None,
        nonce=None,
        code_verifier=None,
        code_challenge_method=None,
    )

    return msgspec.structs.replace(credential, oauth2=oauth2)


def is_declined(answer: OAuth2Auth) -> bool:
    """Whether the provider reports that the user or it denied access (RFC 6749, 4.1.2.1)."""
    return "error" in parse_qs(urlsplit(answer.auth_response_uri or "").query)
