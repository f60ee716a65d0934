"""Methods of credential stores written for ADK, which take a config and a context, called as the contract says."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from greenroom.records.auth import AuthConfig, AuthCredential, AuthScheme
from greenroom.records.base import JsonObject

Load = Callable[..., Awaitable[AuthCredential | None]]
Save = Callable[..., Awaitable[None]]


@dataclass(frozen=True)
class CredentialOwner:
    """App and user, where a store written for ADK reads them of a context."""

    app_name: str
    user_id: str
    state: JsonObject = field(default_factory=dict[str, Any])
    """Empty: a credential is kept beyond the session."""

    @property
    def _invocation_context(self) -> CredentialOwner:
        return self


def takes_a_config(method: Callable[..., Any]) -> bool:
    return "auth_config" in inspect.signature(method).parameters


def loading_by_key(load: Load) -> Load:
    @wraps(load)
    async def load_credential(self: Any, *given: Any, **named: Any) -> AuthCredential | None:
        if "credential_key" not in named:  # called as in ADK
            return await load(self, *given, **named)
        owner = CredentialOwner(named["app_name"], named["user_id"])
        return await load(self, _config(named["credential_key"]), owner)

    return load_credential


def saving_by_key(save: Save) -> Save:
    @wraps(save)
    async def save_credential(self: Any, *given: Any, **named: Any) -> None:
        if "credential_key" not in named:  # called as in ADK
            await save(self, *given, **named)
            return
        owner = CredentialOwner(named["app_name"], named["user_id"])
        await save(self, _config(named["credential_key"], named["credential"]), owner)

    return save_credential


def _config(key: str, credential: AuthCredential | None = None) -> AuthConfig:
    """A config that names the stored credential; the scheme with which it was granted isn't needed to store it."""
    return AuthConfig(
        auth_scheme=AuthScheme(type="apiKey"),
        exchanged_auth_credential=credential,
        credential_key=key,
    )
