"""The contract of a credential store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

from greenroom.credentials.adk_methods import loading_by_key, saving_by_key, takes_a_config
from greenroom.credentials.requests import PendingRequests
from greenroom.errors import NotOffered
from greenroom.records.auth import AuthCredential, CredentialRequest

_ADK_METHODS = {"load_credential": loading_by_key, "save_credential": saving_by_key}


class BaseCredentialService(ABC):
    """Keeps users' credentials per app, user and credential key; never shown to clients or models.

    Source: ADK's credential service. Returned objects are copies. Methods that are not abstract have a default: pending
    requests are kept in memory, and operations that only the store can implement raise NotOffered. `load_credential`
    and `save_credential` may also have ADK's parameters, `auth_config` and `callback_context`: of the config such a
    store gets the key and the exchanged credential, of the context the app and the user.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, by_key in _ADK_METHODS.items():
            if name in vars(cls) and takes_a_config(vars(cls)[name]):
                setattr(cls, name, by_key(vars(cls)[name]))

    @cached_property
    def pending_requests(self) -> PendingRequests:
        """The requests of a store that doesn't store them: gone when the process ends."""
        return PendingRequests()

    @abstractmethod
    async def load_credential(self, *, app_name: str, user_id: str, credential_key: str) -> AuthCredential | None: ...

    @abstractmethod
    async def save_credential(
        self, *, app_name: str, user_id: str, credential_key: str, credential: AuthCredential
    ) -> None:
        """Stores a credential; replaces an earlier one with this key."""

    async def delete_credential(self, *, app_name: str, user_id: str, credential_key: str) -> None:
        """Deletes a credential; does nothing when there is none."""
        raise NotOffered(f"{type(self).__name__} can't delete credentials")

    async def list_credentials(self, *, app_name: str, user_id: str) -> dict[str, AuthCredential]:
        """The user's stored credentials by credential key, in the order of the keys; secrets included."""
        raise NotOffered(f"{type(self).__name__} can't list credentials")

    async def save_request(self, *, app_name: str, user_id: str, request: CredentialRequest) -> None:
        """Stores a request; replaces an earlier one with this id. In a store on disk, it is there when this returns."""
        self.pending_requests.save(app_name, user_id, request)

    async def load_request(self, *, app_name: str, user_id: str, request_id: str) -> CredentialRequest | None:
        return self.pending_requests.load(app_name, user_id, request_id)

    async def delete_requests(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Deletes the requests that runs of a session made."""
        self.pending_requests.delete_of_session(app_name, user_id, session_id)

    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        """Deletes all credentials and requests of a user in an app."""
        raise NotOffered(f"{type(self).__name__} can't delete a user's credentials together")

    async def close(self) -> None:
        """Closes files and connections."""
