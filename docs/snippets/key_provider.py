import base64
from typing import Any

import httpx

from greenroom import KeyProvider, WrappedKey
from greenroom.errors import KeyRefused


class VaultKeys(KeyProvider):
    """Wraps data keys by the transit engine of Vault."""

    def __init__(self, url: str, token: str, key: str) -> None:
        self._url = f"{url}/v1/transit"
        self._headers = {"X-Vault-Token": token}
        self._key = key

    async def current_key_id(self) -> str:
        key = await self._call("GET", f"keys/{self._key}")
        return str(key["latest_version"])

    async def wrap(self, data_key: bytes) -> WrappedKey:
        body = {"plaintext": base64.b64encode(data_key).decode()}
        wrapped = await self._call("POST", f"encrypt/{self._key}", body)
        return WrappedKey(str(wrapped["key_version"]), wrapped["ciphertext"].encode())

    async def unwrap(self, wrapped: WrappedKey) -> bytes:
        unwrapped = await self._call("POST", f"decrypt/{self._key}", {"ciphertext": wrapped.data.decode()})
        return base64.b64decode(unwrapped["plaintext"])

    async def _call(self, method: str, path: str, body: dict[str, str] | None = None) -> dict[str, Any]:
        try:
            async with httpx.AsyncClient(headers=self._headers) as client:
                reply = await client.request(method, f"{self._url}/{path}", json=body)
                reply.raise_for_status()
        except httpx.HTTPError as error:
            raise KeyRefused(f"Vault: {error}") from error
        return reply.json()["data"]
