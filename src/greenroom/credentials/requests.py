"""Pending requests for credentials in the memory of this process."""

from __future__ import annotations

from greenroom.records import wire
from greenroom.records.auth import CredentialRequest

KEPT_SECONDS = 60 * 24 * 3600.0
"""Requests older than this may be deleted; they expired long before."""

_read_request = wire.decoder(CredentialRequest)


class PendingRequests:
    """Requests by app, user and id, in the order of their creation."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str, str], tuple[float, bytes]] = {}

    def save(self, app_name: str, user_id: str, request: CredentialRequest) -> None:
        for key, (created_at, _) in list(self._requests.items()):
            if created_at >= request.created_at - KEPT_SECONDS:
                break  # they are in the order of creation
            del self._requests[key]
        self._requests[app_name, user_id, request.id] = request.created_at, wire.encode(request)

    def load(self, app_name: str, user_id: str, request_id: str) -> CredentialRequest | None:
        kept = self._requests.get((app_name, user_id, request_id))
        return _read_request(kept[1]) if kept is not None else None

    def delete_of_session(self, app_name: str, user_id: str, session_id: str) -> None:
        for key, (_, data) in list(self._requests.items()):
            if key[:2] == (app_name, user_id) and _read_request(data).session_id == session_id:
                del self._requests[key]

    def delete_of_user(self, app_name: str, user_id: str) -> None:
        for key in [key for key in self._requests if key[:2] == (app_name, user_id)]:
            del self._requests[key]
