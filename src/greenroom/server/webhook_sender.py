"""Sends messages to webhooks, signed as Standard Webhooks defines it.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import os
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from greenroom.errors import ConfigurationError, InvalidRequest, MissingExtra, NotOffered
from greenroom.records.run import Webhook
from greenroom.records.webhook_delivery import DeliveryAttempt, WebhookDelivery, check_webhook

if TYPE_CHECKING:
    import httpx

_log = logging.getLogger("greenroom.server")

TIMEOUT_SECONDS = 15.0
_MAX_ERROR_LENGTH = 500

_ANY_APP = "*"
_SHARED = "whsec_"
_PRIVATE = "whsk_"
_SHARED_KEY_BYTES = range(24, 65)

Sign: TypeAlias = Callable[[bytes], str]
"""Makes one signature with its version: `v1,…` or `v1a,…`."""


@dataclass(kw_only=True, eq=False)
class WebhookSender:
    """Sends messages to webhooks. Redirects are not followed, and responses are not read beyond their status."""

    secrets: str | None
    """The path of the file with the secrets."""

    allows_private: bool
    timeout_seconds: float = TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        self._client: httpx.AsyncClient | None = None
        self._secrets = WebhookSecrets(self.secrets) if self.secrets is not None else None

    def check(self, app_name: str, webhook: Webhook) -> None:
        """Raises InvalidRequest for a webhook that can't be called, NotOffered without a secret, MissingExtra."""
        check_webhook(webhook)
        self._open()
        if not self.allows_private:
            import httpx

            from greenroom.tools.web.address_guard import AddressRefused, check_host

            try:
                check_host(httpx.URL(webhook.url).host)
            except (AddressRefused, httpx.InvalidURL):
                fault = "The URL of a webhook must be a public address (--allow-private-webhooks allows others)"
                raise InvalidRequest(fault, location=("url",)) from None
        self.signers(app_name)

    async def send(self, delivery: WebhookDelivery) -> DeliveryAttempt:
        """Sends a message once."""
        at = time.time()
        begun = time.monotonic()
        status_code: int | None = None
        error: str | None = None
        try:
            status_code = await self._post(delivery, at)
        except TimeoutError:
            error = f"no response within {self.timeout_seconds:g} seconds"
        except Exception as raised:  # receivers, networks and secrets fail in any way
            error = f"{type(raised).__name__}: {raised}"[:_MAX_ERROR_LENGTH]
        else:
            if not 200 <= status_code < 300:
                error = f"the receiver answered {status_code}"
        return DeliveryAttempt(at=at, seconds=time.monotonic() - begun, status_code=status_code, error=error)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _post(self, delivery: WebhookDelivery, at: float) -> int:
        body = delivery.body.encode()
        timestamp = str(int(at))
        signed = b"%b.%b.%b" % (delivery.id.encode(), timestamp.encode(), body)
        headers = {
            "content-type": "application/json",
            "user-agent": "greenroom",
            "webhook-id": delivery.id,
            "webhook-timestamp": timestamp,
            "webhook-signature": " ".join(sign(signed) for sign in self.signers(delivery.app_name)),
        }
        async with (
            asyncio.timeout(self.timeout_seconds),
            self._open().stream("POST", delivery.url, content=body, headers=headers) as response,
        ):
            return response.status_code

    def _open(self) -> httpx.AsyncClient:
        """Raises MissingExtra."""
        if self._client is None:
            try:
                import httpx
            except ImportError:
                raise MissingExtra("webhooks", "httpx") from None
            from greenroom.tools.web.address_guard import GuardedTransport

            verify = httpx.create_ssl_context()
            transport = None if self.allows_private else GuardedTransport(verify)
            self._client = httpx.AsyncClient(verify=verify, transport=transport, timeout=None, trust_env=False)
        return self._client

    def signers(self, app_name: str) -> list[Sign]:
        """Those of an app's secrets. Raises NotOffered."""
        signers = self._secrets.signers(app_name) if self._secrets is not None else []
        if not signers:
            raise NotOffered(
                f"No secret signs for app {app_name!r}: the server needs one in the file of the setting webhook_secrets"
            )
        return signers


class WebhookSecrets:
    """The secrets of a file, by app. It is read again when it has changed.

    A TOML file: `weather = ["whsec_…", "whsec_…"]` are the secrets of the app `weather`, each of which signs every
    message, and `"*" = ["whsec_…"]` those of all apps without a line of their own. `whsec_` is followed by the
    base64 of a shared key (24 to 64 bytes), and `whsk_` by that of an Ed25519 private key.
    """

    def __init__(self, path: str) -> None:
        """Raises ConfigurationError."""
        self._path = path
        self._changed: tuple[int, int] | None = None
        self._signers: Mapping[str, list[Sign]] = {}
        self._read()

    def signers(self, app_name: str) -> list[Sign]:
        try:
            self._read()
        except ConfigurationError as error:
            _log.error("the secrets of webhooks stay as they were: %s", error)
        return self._signers.get(app_name) or self._signers.get(_ANY_APP) or []

    def _read(self) -> None:
        try:
            status = os.stat(self._path)
            changed = status.st_mtime_ns, status.st_size
            if changed == self._changed:
                return
            self._changed = changed
            with open(self._path, "rb") as file:
                content: dict[str, Any] = tomllib.load(file)
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigurationError([f"webhook_secrets: {self._path} can't be read: {error}"]) from None

        signers: dict[str, list[Sign]] = {}
        for app_name, secrets in content.items():
            listed = cast("list[Any]", secrets) if isinstance(secrets, list) else [secrets]
            signers[app_name] = [self._signer(app_name, secret) for secret in listed]
        self._signers = signers

    def _signer(self, app_name: str, secret: object) -> Sign:
        """Raises ConfigurationError, without the secret."""
        text = secret if isinstance(secret, str) else ""
        try:
            if text.startswith(_SHARED):
                key = base64.b64decode(text.removeprefix(_SHARED), validate=True)
                if len(key) in _SHARED_KEY_BYTES:
                    return _hmac_signer(key)
            if text.startswith(_PRIVATE):
                return _ed25519_signer(base64.b64decode(text.removeprefix(_PRIVATE), validate=True))
        except (binascii.Error, ValueError):
            pass
        raise ConfigurationError(
            [
                f"webhook_secrets: a secret of {app_name!r} in {self._path} is neither whsec_ with the base64 of 24 to "
                "64 bytes, nor whsk_ with that of an Ed25519 private key"
            ]
        )


def _hmac_signer(key: bytes) -> Sign:
    def sign(content: bytes) -> str:
        return "v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()

    return sign


def _ed25519_signer(key: bytes) -> Sign:
    """key: the private key's 32 bytes, which the public key's may follow. Raises ValueError, MissingExtra."""
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise MissingExtra("webhooks", "cryptography") from None

    if len(key) not in (32, 64):
        raise ValueError("an Ed25519 private key has 32 bytes")
    private = Ed25519PrivateKey.from_private_bytes(key[:32])

    def sign(content: bytes) -> str:
        return "v1a," + base64.b64encode(private.sign(content)).decode()

    return sign
