"""Key-encryption keys in Google Cloud KMS, by its REST interface.

Source: https://cloud.google.com/kms/docs/reference/rest/v1/projects.locations.keyRings.cryptoKeys
"""

from __future__ import annotations

import base64
import os
from collections.abc import Awaitable, Callable
from typing import Any, cast

from greenroom.encryption.key_provider import KeyProvider, WrappedKey
from greenroom.errors import GreenroomError, KeyRefused, MissingExtra
from greenroom.google_cloud.credentials import GoogleCredentials
from greenroom.records.auth import ServiceAccount

SCHEME = "google-kms"

_URL = "https://cloudkms.googleapis.com"
_URL_VARIABLE = "CLOUD_KMS_EMULATOR_URL"
_PURPOSE = b"greenroom-data-key"
"""The additional authenticated data of all calls."""

_TIMEOUT_SECONDS = 20.0


class GoogleKms(KeyProvider):
    """Wraps by a symmetric key of Cloud KMS, with its primary version, and unwraps with any enabled version."""

    def __init__(
        self, key_name: str, *, url: str | None = None, token: Callable[[], Awaitable[str]] | None = None
    ) -> None:
        """key_name: `projects/…/locations/…/keyRings/…/cryptoKeys/…`. url: of another server with this interface.
        token: returns access tokens; by default those of the machine's own credentials. Raises MissingExtra.
        """
        try:
            import httpx  # noqa: F401  # pyright: ignore[reportUnusedImport]
        except ImportError:
            raise MissingExtra("google", "httpx") from None
        self._key_name = key_name
        self._url = (url or os.environ.get(_URL_VARIABLE) or _URL).rstrip("/")
        is_google = self._url == _URL
        self._token = token or (GoogleCredentials(ServiceAccount()).token if is_google else None)

    async def current_key_id(self) -> str:
        key = await self._call("GET", self._key_name)
        primary = key.get("primary")
        if not isinstance(primary, dict):
            raise KeyRefused(f"the key {self._key_name} of Cloud KMS has no primary version")
        return str(cast("dict[str, Any]", primary)["name"])

    async def wrap(self, data_key: bytes) -> WrappedKey:
        reply = await self._call(
            "POST",
            f"{self._key_name}:encrypt",
            {"plaintext": _base64(data_key), "additionalAuthenticatedData": _base64(_PURPOSE)},
        )
        return WrappedKey(str(reply["name"]), _bytes(reply.get("ciphertext")))

    async def unwrap(self, wrapped: WrappedKey) -> bytes:
        if not wrapped.key_id.startswith(f"{self._key_name}/cryptoKeyVersions/"):
            raise KeyRefused(f"the data needs the key {wrapped.key_id!r}, and encryption.keys names {self._key_name}")
        reply = await self._call(
            "POST",
            f"{self._key_name}:decrypt",
            {"ciphertext": _base64(wrapped.data), "additionalAuthenticatedData": _base64(_PURPOSE)},
        )
        return _bytes(reply.get("plaintext"))

    async def _call(self, method: str, path: str, body: dict[str, str] | None = None) -> dict[str, Any]:
        import httpx

        headers: dict[str, str] = {}
        try:
            if self._token is not None:
                headers["Authorization"] = f"Bearer {await self._token()}"
            async with httpx.AsyncClient(timeout=_TIMEOUT_SECONDS) as client:
                reply = await client.request(method, f"{self._url}/v1/{path}", json=body, headers=headers)
            if reply.status_code != 200:
                raise KeyRefused(f"Cloud KMS refused a call with {reply.status_code}: {_message(reply.text)}")
            return reply.json()
        except (httpx.HTTPError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise KeyRefused(f"Cloud KMS can't be reached at {self._url}: {reason}") from None
        except KeyRefused:
            raise
        except GreenroomError as error:
            raise KeyRefused(str(error)) from None


def _message(text: str) -> str:
    """The message of an error of Google's interfaces."""
    import msgspec

    try:
        error = msgspec.json.decode(text, type=dict[str, Any])["error"]
        return f"{error['status']}: {error['message']}"
    except (msgspec.DecodeError, KeyError, TypeError):
        return text[:200]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: object) -> bytes:
    return base64.b64decode(text, validate=True) if isinstance(text, str) else b""
