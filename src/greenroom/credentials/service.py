"""The contract of a credential store."""

from __future__ import annotations

from abc import ABC, abstractmethod

from greenroom.errors import NotOffered
from greenroom.records.auth import AuthCredential, CredentialRequest

KEPT_SECONDS = 60 * 24 * 3600.0
"""Requests older than this may be deleted; they expired long before."""


class BaseCredentialService(ABC):
    """Keeps users' credentials per app, user and credential key; never shown to clients or models.

    Source: ADK's credential service. Returned objects are copies.
    """

    @abstractmethod
    async def load_credential(self, *, app_name: str, user_id: str, credential_key: str) -> AuthCredential | None: ...

    @abstractmethod
    async def save_credential(
        self, *, app_name: str, user_id: str, credential_key: str, credential: AuthCredential
    ) -> None:
        """Stores a credential; replaces an earlier one with this key."""

    @abstractmethod
    async def delete_credential(self, *, app_name: str, user_id: str, credential_key: str) -> None:
        """Deletes a credential; does nothing when there is none."""

    async def list_credentials(self, *, app_name: str, user_id: str) -> dict[str, AuthCredential]:
        """The user's stored credentials by credential key, in the order of the keys; secrets included.

        Not abstract, because stores written for earlier releases lack it. Raises NotImplementedError for those.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement list_credentials")

    @abstractmethod
    async def save_request(self, *, app_name: str, user_id: str, request: CredentialRequest) -> None:
        """Stores a request; replaces an earlier one with this id. It is on disk when this returns."""

    @abstractmethod
    async def load_request(self, *, app_name: str, user_id: str, request_id: str) -> CredentialRequest | None: ...

    async def delete_requests(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Deletes the requests that runs of a session made.

        Not abstract, because stores written for earlier releases lack it; those keep them until they are out of date.
        """

    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        """Deletes all credentials and requests of a user in an app."""
        raise NotOffered(f"{type(self).__name__} can't delete a user's credentials together")

    async def close(self) -> None:
        """Closes files and connections."""
