"""The credential of a call: the user's, the app's, or one got in exchange; else the user is asked."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from greenroom.invocation.user_context import CallbackContext, ToolContext
from greenroom.records import wire
from greenroom.records.auth import (
    AuthConfig,
    AuthCredential,
    AuthCredentialTypes,
    AuthScheme,
    HttpAuth,
    HttpCredentials,
)
from greenroom.records.base import JsonObject
from greenroom.records.credential_parts import credential_parts
from greenroom.tools.login import oauth2
from greenroom.tools.login.google_credentials import GoogleCredentials
from greenroom.tools.web.http_client import HttpClient

PENDING: JsonObject = {
    "pending": True,
    "message": "The user has been asked to grant access. Wait until that is done; the call is then made by itself.",
}

_MAX_KEPT = 1_000


class TokenExchange:
    """Turns credentials that can't be sent as they are into tokens; keeps those until they expire or are refused."""

    def __init__(self, client: HttpClient) -> None:
        self.client = client
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
                if known != refused and not known.is_expired() and credential_parts(scheme, known) is not None:
                    return known
                try:
                    renewed = await oauth2.renewed(scheme, known, self.client)
                except oauth2.TokenRefused:
                    return None
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


class Access:
    """What one tool needs to be let in."""

    def __init__(self, config: AuthConfig, exchange: TokenExchange) -> None:
        self.config = config
        self._exchange = exchange

    async def credential(
        self, context: CallbackContext, *, refused: AuthCredential | None = None
    ) -> AuthCredential | None:
        """One to call with, other than the refused one; None when there is none."""
        scheme = self.config.auth_scheme
        granted = await context.load_credential(self.config)
        for candidate in (granted, self.config.raw_auth_credential):
            if candidate is None:
                continue
            found = await self._exchange.usable(scheme, candidate, refused=refused)
            if found is not None and found != refused:
                if candidate is granted and found != granted:
                    await context.save_credential(self.config, found)  # its refresh token may be good only once
                return found
        return None

    async def close(self) -> None:
        """Let go of connections to token services."""
        await self._exchange.client.close()

    def ask(self, tool_context: ToolContext) -> JsonObject:
        """Request the credential from the user."""
        tool_context.request_credential(self.config, only_public_hosts=not self._exchange.client.allows_private)
        return dict(PENDING)
