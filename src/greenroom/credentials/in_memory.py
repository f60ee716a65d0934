"""Credentials in this process, gone when it ends."""

from __future__ import annotations

from greenroom.credentials.service import BaseCredentialService
from greenroom.records import wire
from greenroom.records.auth import AuthCredential

_read_credential = wire.decoder(AuthCredential)


class InMemoryCredentialService(BaseCredentialService):
    """Keeps requests as the base class does."""

    def __init__(self) -> None:
        self._credentials: dict[tuple[str, str, str], bytes] = {}

    async def load_credential(self, *, app_name: str, user_id: str, credential_key: str) -> AuthCredential | None:
        kept = self._credentials.get((app_name, user_id, credential_key))
        return _read_credential(kept) if kept is not None else None

    async def save_credential(
        self, *, app_name: str, user_id: str, credential_key: str, credential: AuthCredential
    ) -> None:
        self._credentials[app_name, user_id, credential_key] = wire.encode(credential)

    async def delete_credential(self, *, app_name: str, user_id: str, credential_key: str) -> None:
        self._credentials.pop((app_name, user_id, credential_key), None)

    async def list_credentials(self, *, app_name: str, user_id: str) -> dict[str, AuthCredential]:
        stored = sorted(
            (key, data) for (app, user, key), data in self._credentials.items() if (app, user) == (app_name, user_id)
        )
        return {key: _read_credential(data) for key, data in stored}

    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        for key in [key for key in self._credentials if key[:2] == (app_name, user_id)]:
            del self._credentials[key]
        self.pending_requests.delete_of_user(app_name, user_id)
