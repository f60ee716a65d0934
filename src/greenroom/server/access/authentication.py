"""Authentication: derives the caller's identity from a request's headers.

Credentials are sent as `Authorization: Bearer …`, as `X-API-Key`, or in the cookie that `/sign-in` sets for a browser.
Credentials in the URL would end up in logs and histories, so such a request is refused, valid or not.
"""

from __future__ import annotations

import time
from dataclasses import replace
from urllib.parse import parse_qsl

from starlette.types import Scope

from greenroom.errors import StorageError, Unauthenticated
from greenroom.records.run import Caller
from greenroom.server.access.api_key_cache import ApiKeyCache
from greenroom.server.access.api_keys import BUILT_IN_ROLES, PREFIX, is_key
from greenroom.server.access.api_keys_from_uri import api_keys_from_uri
from greenroom.server.access.identity import ADMIN, COOKIE, Identity
from greenroom.server.access.tokens import TokenVerifier
from greenroom.server.settings import AuthSettings

_FORBIDDEN_IN_QUERY = frozenset(
    {"access_token", "api-key", "api_key", "apikey", "auth", "authorization", "bearer", "key", "token", "x-api-key"}
)


class Authenticator:
    def __init__(self, settings: AuthSettings) -> None:
        self.keys = ApiKeyCache(api_keys_from_uri(settings.keys)) if settings.keys is not None else None
        self._tokens = TokenVerifier(settings.tokens) if settings.tokens.jwks_url is not None else None

    async def identify(self, scope: Scope) -> Identity:
        """Raises Unauthenticated, or Unavailable if the keys can't be read."""
        if scope["query_string"]:
            _check_query(scope["query_string"])
        return await self.identify_by(_credentials(scope))

    async def identify_by(self, credentials: str) -> Identity:
        """Identifies the caller by a key or a token. Raises as `identify`."""
        if self.keys is not None and credentials.startswith(PREFIX):
            return await self.keys.identify(credentials)
        if self._tokens is not None:
            identity, roles = await self._tokens.identify(credentials)
            return await self._with_roles(identity, roles) if roles else identity
        raise Unauthenticated("This is not an API key of this server")

    async def is_still_good(self, identity: Identity) -> bool:
        """True while the caller's credentials are valid, with the same permissions; False if the keys can't be read."""
        if identity.expires_at is not None and time.time() >= identity.expires_at:
            return False
        if identity.key_id is None or self.keys is None:
            return True
        try:
            present = await self.keys.identity_of(identity.key_id)
        except StorageError:
            return False
        return present is identity or (present is not None and present.covers(identity.scopes, identity.apps))

    async def is_valid(self, caller: Caller) -> bool:
        """False if the caller's API key was revoked, has expired, or has lost a scope. A token is valid: it need not
        last.

        Raises StorageError if the keys can't be read.
        """
        if caller.key_id is None or self.keys is None:
            return True
        present = await self.keys.identity_of(caller.key_id)
        if present is None:
            return False
        return ADMIN in present.scopes or present.scopes.issuperset(caller.scopes)

    async def _with_roles(self, identity: Identity, names: frozenset[str]) -> Identity:
        """The identity with the scopes of roles that exist. Raises StorageError."""
        roles = BUILT_IN_ROLES if self.keys is None else await self.keys.roles()
        scopes = set(identity.scopes)
        for name in names:
            if name in roles:
                scopes.update(roles[name].scopes)
        return replace(identity, scopes=frozenset(scopes))

    async def close(self) -> None:
        if self.keys is not None:
            await self.keys.close()


def _credentials(scope: Scope) -> str:
    credentials: set[str] = set()
    cookie = ""
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, rest = value.decode("latin-1").partition(" ")
            if kind.lower() != "bearer":
                raise Unauthenticated("Write the key or token as: Authorization: Bearer …")
            credentials.add(rest.strip())
        elif name == b"x-api-key":
            credentials.add(value.decode("latin-1").strip())
        elif name == b"cookie":
            cookie = _from_cookie(value.decode("latin-1")) or cookie
    if not credentials and cookie:
        return cookie
    if len(credentials) != 1 or "" in credentials:
        raise Unauthenticated("Send one key or token, as Authorization: Bearer …, or as X-API-Key")
    return credentials.pop()


def _from_cookie(header: str) -> str | None:
    """The first cookie of the name: a browser sends that of the longest path first, and servers at two paths of one
    host each set their own. Source: RFC 6265, 5.4."""
    for pair in header.split(";"):
        name, _, value = pair.strip().partition("=")
        if name == COOKIE:
            return value.strip('"')
    return None


def _check_query(query: bytes) -> None:
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name.lower() in _FORBIDDEN_IN_QUERY or is_key(value):
            raise Unauthenticated("Keys and tokens are not accepted in the address; send Authorization: Bearer …")
