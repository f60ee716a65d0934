"""The credential of a call: the user's, the app's, or one got in exchange; else the user is asked."""

from __future__ import annotations

import asyncio
import base64
import time
from collections import OrderedDict
from typing import cast
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec

from greenroom.errors import InvalidRequest, ToolError
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
    credential_parts,
    without_secrets,
)
from greenroom.records.base import JsonObject
from greenroom.records.identifiers import uuid4
from greenroom.records.state import TEMP_PREFIX
from greenroom.tools.google_credentials import GoogleCredentials
from greenroom.tools.openapi.http_client import Headers, HttpClient

PENDING: JsonObject = {
    "pending": True,
    "message": "The user has been asked to grant access. Wait until that is done; the call is then made by itself.",
}

_MAX_KEPT = 1_000
_EARLY_SECONDS = 30.0


class TokenExchange:
    """Turns credentials that can't be sent as they are into tokens; keeps those until they expire or are refused."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._kept: OrderedDict[bytes, AuthCredential] = OrderedDict()
        self._google: dict[bytes, GoogleCredentials] = {}
        self._locks: dict[tuple[int, bytes], asyncio.Lock] = {}

    async def usable(
        self, scheme: AuthScheme, credential: AuthCredential, *, refused: AuthCredential | None = None
    ) -> AuthCredential | None:
        """The credential, or what it was exchanged for; None when neither is of use.

        refused: the one that a service has just refused. Raises ToolError when a token service fails.
        """
        if credential.service_account is not None:
            return await self._google_token(credential, refused)
        key = wire.encode(credential)
        lock_key = (id(asyncio.get_running_loop()), key)
        # A refresh token is often good for one use, so calls side by side must share what it gives.
        lock = self._locks.setdefault(lock_key, asyncio.Lock())
        try:
            async with lock:
                known = self._kept.get(key, credential)
                if known != refused and not _is_expired(known) and credential_parts(scheme, known) is not None:
                    return known
                renewed = await self._renew(scheme, known)
                if renewed is not None:
                    self._keep(key, renewed)
                return renewed
        finally:
            if not lock.locked():
                self._locks.pop(lock_key, None)

    def _keep(self, key: bytes, credential: AuthCredential) -> None:
        self._kept[key] = credential
        while len(self._kept) > _MAX_KEPT:
            self._kept.popitem(last=False)

    async def _google_token(self, credential: AuthCredential, refused: AuthCredential | None) -> AuthCredential:
        assert credential.service_account is not None
        key = wire.encode(credential)
        google = self._google.setdefault(key, GoogleCredentials(credential.service_account))
        token = await google.token(rejected=refused.bearer_token() if refused is not None else None)
        headers = {"x-goog-user-project": google.quota_project} if google.quota_project else None
        http = HttpAuth(credentials=HttpCredentials(token=token), additional_headers=headers)
        return AuthCredential(auth_type=AuthCredentialTypes.HTTP, http=http)

    async def _renew(self, scheme: AuthScheme, credential: AuthCredential) -> AuthCredential | None:
        given = credential.oauth2
        if given is None:
            return None
        flows = scheme.flows
        code_flow = flows.authorization_code if flows is not None else None
        if given.refresh_token:
            url = scheme.token_endpoint or (code_flow and (code_flow.refresh_url or code_flow.token_url))
            form = {"grant_type": "refresh_token", "refresh_token": given.refresh_token}
        elif flows is not None and flows.client_credentials is not None and given.client_id and given.client_secret:
            url = flows.client_credentials.token_url
            form = {"grant_type": "client_credentials", "scope": " ".join(flows.client_credentials.scopes)}
        else:
            return None
        return await self._token(url, form, credential) if url else None

    async def _token(self, url: str, form: dict[str, str], credential: AuthCredential) -> AuthCredential | None:
        given = credential.oauth2 or OAuth2Auth()
        headers: Headers = [(b"Content-Type", b"application/x-www-form-urlencoded"), (b"Accept", b"application/json")]
        if given.token_endpoint_auth_method == "client_secret_post":
            form |= {"client_id": given.client_id or "", "client_secret": given.client_secret or ""}
        elif given.client_secret:
            pair = f"{quote(given.client_id or '', safe='')}:{quote(given.client_secret, safe='')}"
            headers.append((b"Authorization", b"Basic " + base64.b64encode(pair.encode())))
        else:
            form["client_id"] = given.client_id or ""
        if given.audience:
            form["audience"] = given.audience
        secret_headers = frozenset({b"authorization"})
        body = urlencode({name: value for name, value in form.items() if value}).encode()
        reply = await self._client.send("POST", url, headers=headers, content=body, secret_headers=secret_headers)
        answer = reply.json_or_text()
        if reply.status >= 500:
            raise ToolError(f"the token service answered with status {reply.status}")
        token = cast("JsonObject", answer) if isinstance(answer, dict) else {}
        if reply.status != 200 or not isinstance(token.get("access_token"), str):
            return None
        seconds = token.get("expires_in")
        renewed = msgspec.structs.replace(
            given,
            access_token=token["access_token"],
            refresh_token=token.get("refresh_token") or given.refresh_token,
            expires_at=time.time() + seconds if isinstance(seconds, (int, float)) else None,
        )
        return msgspec.structs.replace(credential, oauth2=renewed)


class Access:
    """What one tool needs to be let in."""

    def __init__(self, config: AuthConfig, exchange: TokenExchange) -> None:
        self.config = config
        self._exchange = exchange

    async def credential(
        self, tool_context: ToolContext, *, refused: AuthCredential | None = None
    ) -> AuthCredential | None:
        """One to call with, other than the refused one; None when there is none."""
        scheme = self.config.auth_scheme
        for candidate in (granted(tool_context, self.config), self.config.raw_auth_credential):
            if candidate is not None:
                found = await self._exchange.usable(scheme, candidate, refused=refused)
                if found is not None and found != refused:
                    return found
        return None

    def ask(self, tool_context: ToolContext) -> JsonObject:
        """Request the credential from the user. The app's own secrets are not in the request."""
        raw = without_secrets(self.config.raw_auth_credential)
        asked = AuthConfig(
            auth_scheme=self.config.auth_scheme,
            raw_auth_credential=raw,
            exchanged_auth_credential=_with_authorization_uri(self.config.auth_scheme, raw),
            credential_key=self.config.credential_key,
        )
        tool_context.request_credential(wire.to_plain(asked))
        return dict(PENDING)


def granted(tool_context: ToolContext, config: AuthConfig) -> AuthCredential | None:
    """What the user granted earlier in this run, as the credential flow leaves it in the state."""
    stored = tool_context.state.get(f"{TEMP_PREFIX}{config.credential_key}")
    if isinstance(stored, AuthCredential):
        return stored
    if not isinstance(stored, dict):
        return None
    try:
        return wire.from_plain(stored, AuthCredential)
    except InvalidRequest:
        return None


def _is_expired(credential: AuthCredential) -> bool:
    expires_at = credential.oauth2.expires_at if credential.oauth2 is not None else None
    return expires_at is not None and expires_at <= time.time() + _EARLY_SECONDS


def _with_authorization_uri(scheme: AuthScheme, raw: AuthCredential | None) -> AuthCredential | None:
    """For schemes in which the user logs in elsewhere: where to, and a state that only this request knows."""
    flow = _interactive_flow(scheme)
    if raw is None or raw.oauth2 is None or flow is None or not flow.authorization_url:
        return raw
    given = raw.oauth2
    state = uuid4()
    query = {
        "response_type": "code",
        "client_id": given.client_id or "",
        "redirect_uri": given.redirect_uri or "",
        "scope": " ".join(flow.scopes),
        "state": state,
        "audience": given.audience or "",
        "prompt": given.prompt or "",
        "nonce": given.nonce or "",
    }
    parts = urlsplit(flow.authorization_url)
    pairs = [*parse_qsl(parts.query, keep_blank_values=True), *((k, v) for k, v in query.items() if v)]
    uri = urlunsplit(parts._replace(query=urlencode(pairs, quote_via=quote)))
    return msgspec.structs.replace(raw, oauth2=msgspec.structs.replace(given, auth_uri=uri, state=state))


def _interactive_flow(scheme: AuthScheme) -> OAuthFlow | None:
    if scheme.authorization_endpoint:
        scopes = dict.fromkeys(scheme.scopes or ["openid"], "")
        return OAuthFlow(authorization_url=scheme.authorization_endpoint, scopes=scopes)
    if scheme.flows is None:
        return None
    return scheme.flows.authorization_code or scheme.flows.implicit
