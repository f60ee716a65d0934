"""Tokens of an identity provider: JSON Web Tokens, verified with the keys that it publishes."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from greenroom.errors import AgentConfigError, MissingExtra, Unauthenticated, Unavailable
from greenroom.records.access import SERVICE_PREFIX
from greenroom.server.access.identity import Identity, is_scope
from greenroom.server.settings import TokenSettings

if TYPE_CHECKING:
    from jwt import PyJWK

FETCH_AGAIN_SECONDS = 300.0
KEEP_SECONDS = 3600.0
"""Cached keys are used for this long while the provider can't be reached."""

NEW_KEY_SECONDS = 10.0
"""Minimum interval between fetches for unknown key ids, so that made-up ids can't cause a fetch per request."""

MAX_TOKEN_BYTES = 16 * 1024

MAX_VERIFIED = 10_000
"""Size of the cache of verified tokens. Verifying a signature costs as much as a whole turn of an agent."""


class VerifiedToken(NamedTuple):
    identity: Identity
    """Without the scopes of its roles."""
    roles: frozenset[str]
    """Their names; some may not exist."""


class TokenVerifier:
    """Verifies tokens. Accepts only the algorithms in the settings, and each key only with its own algorithm, so that
    `none` and HMAC with a public key are refused."""

    def __init__(
        self,
        settings: TokenSettings,
        *,
        new_key_seconds: float = NEW_KEY_SECONDS,
        max_verified: int = MAX_VERIFIED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises AgentConfigError, MissingExtra."""
        try:
            import jwt
        except ImportError:
            raise MissingExtra("auth", "PyJWT") from None

        if settings.jwks_url is None or settings.issuer is None or not settings.audiences:
            raise AgentConfigError("Tokens need all of jwks_url, issuer and audiences in [auth.tokens]")
        _check_address(settings.jwks_url)
        self._settings = settings
        self._client = jwt.PyJWKClient(settings.jwks_url, cache_jwk_set=False, timeout=5)
        self._clock = clock
        self._new_key_seconds = new_key_seconds
        self._max_verified = max_verified
        self._keys: dict[str | None, PyJWK] = {}
        self._fetched_at = -math.inf
        self._verified: dict[bytes, tuple[VerifiedToken, float, float]] = {}
        self._fetching = asyncio.Lock()

    async def identify(self, token: str) -> VerifiedToken:
        """Raises Unauthenticated, or Unavailable if the provider's keys can't be fetched."""
        if len(token) > MAX_TOKEN_BYTES:
            raise Unauthenticated("The token is too long")
        digest = hashlib.sha256(token.encode()).digest()
        verified = self._verified.get(digest)
        if verified is not None:
            known, good_until, verify_again_at = verified
            if time.time() < good_until and self._clock() < verify_again_at:
                return known
            del self._verified[digest]
        claims = await self._claims(token)
        roles_claim = self._settings.roles_claim
        roles = frozenset(_words(claims, roles_claim)) if roles_claim is not None else frozenset[str]()
        identity = self._identity(claims, has_roles=bool(roles))
        if len(self._verified) >= self._max_verified:
            self._verified.clear()
        good_until = identity.expires_at or 0.0
        found = VerifiedToken(identity, roles)
        self._verified[digest] = found, good_until, self._fetched_at + FETCH_AGAIN_SECONDS
        return found

    async def _claims(self, token: str) -> dict[str, Any]:
        """The verified claims of a token. Raises as `identify`."""
        import jwt

        settings = self._settings
        try:
            header = jwt.get_unverified_header(token)
        except jwt.InvalidTokenError:
            raise Unauthenticated("This is neither an API key nor a token") from None
        if header.get("alg") not in settings.algorithms:
            raise Unauthenticated("The token's algorithm is not accepted")
        key = await self._key(header.get("kid"))
        try:
            return jwt.decode(
                token,
                key,
                algorithms=list(settings.algorithms),
                audience=list(settings.audiences),
                issuer=settings.issuer,
                leeway=settings.leeway_seconds,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.ExpiredSignatureError:
            raise Unauthenticated("The token has expired") from None
        except jwt.InvalidTokenError as error:
            raise Unauthenticated(f"The token is not valid: {error}") from None
        except jwt.PyJWTError:
            raise Unauthenticated("The token is not valid") from None

    def _identity(self, claims: dict[str, Any], *, has_roles: bool) -> Identity:
        settings = self._settings
        subject = claims.get(settings.subject_claim)
        if not isinstance(subject, str) or not subject:
            raise Unauthenticated(f"The token has no claim {settings.subject_claim!r}")
        if subject.startswith(SERVICE_PREFIX):
            raise Unauthenticated(f"Users whose ids begin with {SERVICE_PREFIX!r} are service accounts of this server")
        scopes = frozenset(scope for scope in _words(claims, settings.scopes_claim) if is_scope(scope))
        has_apps = claims.get(settings.apps_claim) is not None
        return Identity(
            subject=subject,
            scopes=scopes if scopes or has_roles else frozenset(settings.default_scopes),
            apps=frozenset(_words(claims, settings.apps_claim)) if has_apps else None,
            expires_at=float(claims["exp"]) + settings.leeway_seconds,
        )

    async def _key(self, key_id: str | None) -> PyJWK:
        """The provider's key with this id. Fetches the key set again if it is old or lacks the key."""
        import jwt

        age = self._clock() - self._fetched_at
        if age >= FETCH_AGAIN_SECONDS or (key_id not in self._keys and age >= self._new_key_seconds):
            async with self._fetching:
                if self._clock() - self._fetched_at >= age:
                    try:
                        keys = await asyncio.to_thread(self._client.get_signing_keys)
                        self._keys = {key.key_id: key for key in keys}
                        self._fetched_at = self._clock()
                    except jwt.PyJWKClientConnectionError:
                        if age >= KEEP_SECONDS:
                            raise Unavailable("The identity provider's keys can't be fetched at the moment") from None
                    except jwt.PyJWTError:
                        self._keys = {}
                        self._fetched_at = self._clock()
        if key_id is None and len(self._keys) == 1:  # the token does not name its key
            return next(iter(self._keys.values()))
        if key_id not in self._keys:
            raise Unauthenticated("The token's key is not known")
        return self._keys[key_id]


def _words(claims: dict[str, Any], name: str) -> list[str]:
    """The words of a claim: one space-separated string, as in OAuth, or a list of strings. Raises Unauthenticated."""
    try:
        value = msgspec.convert(claims.get(name), str | list[str] | None)
    except msgspec.ValidationError:
        raise Unauthenticated(f"The token's claim {name!r} is neither a text nor a list of texts") from None
    return value.split() if isinstance(value, str) else value or []


def _check_address(url: str) -> None:
    """Refuses plain HTTP except on loopback: keys fetched in the clear could be forged."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    is_here = host == "localhost"
    if not is_here:
        try:
            is_here = ipaddress.ip_address(host).is_loopback
        except ValueError:
            pass
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and is_here)):
        raise AgentConfigError(f"jwks_url must begin with https://, not as {url!r}")
