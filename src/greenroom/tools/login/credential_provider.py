"""Finds the credential of a call: the user's, the app's, or one exchanged for it; else requests it
from the user.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from weakref import WeakValueDictionary

from greenroom.google_cloud.credentials import GoogleCredentials
from greenroom.invocation.user_context import CallbackContext, ToolContext
from greenroom.records import wire
from greenroom.records.auth import (
    AuthConfig,
    AuthCredential,
    AuthCredentialTypes,
    AuthScheme,
    HttpAuth,
    HttpCredentials,
    credential_parts,
)
from greenroom.records.base import JsonObject
from greenroom.tools.login import oauth2
from greenroom.tools.web.http_client import HttpClient

PENDING: JsonObject = {
    "pending": True,
    "message": "The user has been asked to grant access. Wait for that; the call is then made automatically.",
}

_MAX_CACHED = 1_000


class TokenExchange:
    """Exchanges credentials for tokens, and caches the tokens until they expire or are refused."""

    def __init__(self, client: HttpClient) -> None:
        self.client = client
        self._cache: OrderedDict[bytes, AuthCredential] = OrderedDict()
        self._google: dict[bytes, GoogleCredentials] = {}
        self._locks: WeakValueDictionary[tuple[int, bytes], asyncio.Lock] = WeakValueDictionary()

    async def usable(
        self, scheme: AuthScheme, credential: AuthCredential, *, refused: AuthCredential | None = None
    ) -> AuthCredential | None:
        """The credential, or the one it was exchanged for; None when neither is usable.

        refused: a credential that a service has just refused. Raises ToolError when a token service
        fails.
        """
        if credential.service_account is not None:
            return await self._google_token(credential, refused)

        key = wire.encode(credential)
        # A refresh token can often be used once, so concurrent calls must share its result.
        async with self._locks.setdefault((id(asyncio.get_running_loop()), key), asyncio.Lock()):
            cached = self._cache.get(key, credential)
            if cached != refused and not cached.is_expired() and credential_parts(scheme, cached) is not None:
                return cached

            try:
                refreshed = await oauth2.refresh(scheme, cached, self.client)
            except oauth2.TokenRefused:
                return None

            if refreshed is not None:
                self._cache[key] = refreshed
                while len(self._cache) > _MAX_CACHED:
                    self._cache.popitem(last=False)

            return refreshed

    async def _google_token(
        self,
        credential: AuthCredential,
        refused: AuthCredential | None,
    ) -> AuthCredential:
        assert credential.service_account is not None
        key = wire.encode(credential)
        google = self._google.setdefault(key, GoogleCredentials(credential.service_account))
        token = await google.token(rejected=refused.bearer_token() if refused is not None else None)

        if google.quota_project:
            headers = {"x-goog-user-project": google.quota_project}
        else:
            headers = None

        http = HttpAuth(credentials=HttpCredentials(token=token), additional_headers=headers)

        return AuthCredential(auth_type=AuthCredentialTypes.HTTP, http=http)


class CredentialProvider:
    """The credentials of one tool or toolset.

    exchange: by default a new one, whose token services may be in a private network.
    """

    def __init__(self, config: AuthConfig, exchange: TokenExchange | None = None) -> None:
        self.config = config
        self._exchange = exchange or TokenExchange(HttpClient(allow_private_network_access=True))

    async def credential(
        self, context: CallbackContext, *, refused: AuthCredential | None = None
    ) -> AuthCredential | None:
        """Returns a usable credential other than the refused one, or None."""
        scheme = self.config.auth_scheme
        granted = await context.load_credential(self.config)
        for candidate in (granted, self.config.raw_auth_credential):
            if candidate is None:
                continue
            usable = await self._exchange.usable(scheme, candidate, refused=refused)
            if usable is not None and usable != refused:
                if candidate is granted and usable != granted:
                    await context.save_credential(self.config, usable)  # its refresh token may be usable once only
                return usable

        return None

    async def aclose(self) -> None:
        """Closes connections to token services."""
        await self._exchange.client.aclose()

    def request(self, tool_context: ToolContext) -> JsonObject:
        """Requests the credential from the user; returns the call's response until then."""
        tool_context.request_credential(
            self.config,
            only_public_hosts=not self._exchange.client.allows_private,
        )
        return dict(PENDING)
