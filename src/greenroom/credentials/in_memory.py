"""Credentials in this process, gone when it ends."""

from __future__ import annotations

from greenroom.credentials.service import KEPT_SECONDS, BaseCredentialService
from greenroom.records import wire
from greenroom.records.auth import AuthCredential, CredentialRequest

_read_credential = wire.decoder(AuthCredential)
_read_request = wire.decoder(CredentialRequest)


class InMemoryCredentialService(BaseCredentialService):
    def __init__(self) -> None:
        self._credentials: dict[tuple[str, str, str], bytes] = {}
        self._requests: dict[tuple[str, str, str], tuple[float, bytes]] = {}

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

    async def save_request(self, *, app_name: str, user_id: str, request: CredentialRequest) -> None:
        for key, (created_at, _) in list(self._requests.items()):
            if created_at >= request.created_at - KEPT_SECONDS:
                break  # they are in the order of creation
            del self._requests[key]
        self._requests[app_name, user_id, request.id] = request.created_at, wire.encode(request)

    async def delete_requests(self, *, app_name: str, user_id: str, session_id: str) -> None:
        for key, (_, data) in list(self._requests.items()):
            if key[:2] == (app_name, user_id) and _read_request(data).session_id == session_id:
                del self._requests[key]

    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        for kept in (self._credentials, self._requests):
            for key in [key for key in kept if key[:2] == (app_name, user_id)]:
                del kept[key]

    async def load_request(self, *, app_name: str, user_id: str, request_id: str) -> CredentialRequest | None:
        kept = self._requests.get((app_name, user_id, request_id))
        return _read_request(kept[1]) if kept is not None else None
