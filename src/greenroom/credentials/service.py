"""The contract of a credential store."""

from __future__ import annotations

from abc import ABC, abstractmethod

from greenroom.records.auth import AuthCredential, CredentialRequest

KEPT_SECONDS = 60 * 24 * 3600.0
"""Requests older than this may be forgotten; they have long been out of date."""


class BaseCredentialService(ABC):
    """Keeps what users granted, per app, user and credential key; never shown to clients or models.

    Source: ADK's credential service. What is read is the caller's own: to change it changes nothing here.
    """

    @abstractmethod
    async def load_credential(self, *, app_name: str, user_id: str, credential_key: str) -> AuthCredential | None: ...

    @abstractmethod
    async def save_credential(
        self, *, app_name: str, user_id: str, credential_key: str, credential: AuthCredential
    ) -> None:
        """Keep a credential in place of the one that was kept under this key."""

    @abstractmethod
    async def delete_credential(self, *, app_name: str, user_id: str, credential_key: str) -> None:
        """Forget a credential; one that isn't there is forgotten already."""

    async def list_credentials(self, *, app_name: str, user_id: str) -> dict[str, AuthCredential]:
        """The user's stored credentials by credential key, in the order of the keys; secrets included.

        Not abstract, because stores written for earlier releases lack it. Raises NotImplementedError for those.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement list_credentials")

    @abstractmethod
    async def save_request(self, *, app_name: str, user_id: str, request: CredentialRequest) -> None:
        """Keep a request in place of the one with this id; stored when this returns."""

    @abstractmethod
    async def load_request(self, *, app_name: str, user_id: str, request_id: str) -> CredentialRequest | None: ...

    async def delete_requests(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Forget the requests that runs of a session made.

        Not abstract, because stores written for earlier releases lack it; those keep them until they are out of date.
        """

    async def close(self) -> None:
        """Let go of files and connections."""
