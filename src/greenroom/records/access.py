"""API keys, service accounts and roles, as administrators see and change them."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from greenroom.errors import InvalidRequest
from greenroom.records.base import Record

MAX_NAMES = 200

AccessName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
"""The name of a role or of a service account."""


def check_name(name: str) -> str:
    """The name. Raises InvalidRequest if it is none of a role or service account."""
    try:
        return msgspec.convert(name, AccessName)
    except msgspec.ValidationError:
        raise InvalidRequest(
            f"{name!r} is no name: it has up to 64 letters, digits, dots, hyphens and underscores, and begins with a "
            "letter or digit"
        ) from None


_LINE = r"^[^\x00-\x1f\x7f]*$"
_Line: TypeAlias = Annotated[str, Meta(max_length=1000, pattern=_LINE)]
_Word: TypeAlias = Annotated[str, Meta(min_length=1, max_length=300, pattern=_LINE)]
_Names: TypeAlias = Annotated[list[_Word], Meta(max_length=MAX_NAMES)]


class RoleRequest(Record, kw_only=True):
    """A named set of scopes."""

    description: _Line = ""
    """For people."""
    scopes: _Names
    """The scopes of those who have the role."""


class Role(RoleRequest, kw_only=True):
    """A stored or built-in role."""

    name: str
    """By which keys, service accounts and tokens name it."""
    is_built_in: bool = False
    """Built-in roles can't be changed."""


class ListRolesResponse(Record, kw_only=True, omit_defaults=False):
    """All roles: the built-in ones, then the others by name."""

    roles: list[Role] = msgspec.field(default_factory=list[Role])
    """At most 1000."""


class ServiceAccountRequest(Record, kw_only=True):
    """A service account's description and permissions, which all its keys have."""

    description: _Line = ""
    """For people."""
    scopes: _Names = msgspec.field(default_factory=list[str])
    """Scopes of its keys, besides those of its roles."""
    roles: _Names = msgspec.field(default_factory=list[str])
    """Names of roles, whose scopes its keys have."""
    apps: _Names | None = None
    """The only apps that its keys may access; without it, all."""
    is_disabled: bool = False
    """True: its keys are refused."""


class ServiceAccount(ServiceAccountRequest, kw_only=True):
    """An identity that is no user. It acts as the user `service:NAME`."""

    name: str
    """Unique among the service accounts."""
    created_at: float
    """Unix seconds."""

    @property
    def subject(self) -> str:
        return SERVICE_PREFIX + self.name


class ListServiceAccountsResponse(Record, kw_only=True, omit_defaults=False):
    """The service accounts that the caller may administrate, by name."""

    service_accounts: list[ServiceAccount] = msgspec.field(default_factory=list[ServiceAccount])
    """At most 1000."""


SERVICE_PREFIX = "service:"
"""Ids of users that begin with it are those of service accounts."""


class Me(Record, kw_only=True, omit_defaults=False):
    """The caller and its permissions."""

    user_id: str | None = None
    """The user that the caller acts for; None without authentication."""
    scopes: list[str] = msgspec.field(default_factory=list[str])
    """With those of its roles; `admin` without authentication."""
    apps: list[str] | None = None
    """The only apps that the caller may access; None: all."""
    key_id: str | None = None
    """The id of the API key that was sent."""


class CreateApiKeyRequest(Record, kw_only=True):
    """A key for a user, with its own permissions, or for a service account, with that account's."""

    name: _Line = ""
    """A description, such as the place where the key is kept."""
    user_id: _Word | None = None
    """The user that the key acts for. It or `serviceAccount` is required."""
    service_account: AccessName | None = None
    """The service account that the key belongs to; then without `scopes`, `roles` and `apps`."""
    scopes: _Names | None = None
    """Its scopes; without scopes and roles `run` and `read`."""
    roles: _Names = msgspec.field(default_factory=list[str])
    """Names of roles, whose scopes the key has, too."""
    apps: _Names | None = None
    """The only apps that the key may access; without it, all."""
    expires_at: Annotated[float, Meta(ge=0, le=1e11)] | None = None
    """Unix seconds; without it, the key never expires."""


class ApiKeyInfo(Record, kw_only=True):
    """The record of a key. The key itself is not stored."""

    id: str
    """The public part of the key."""
    name: str = ""
    """A description."""
    user_id: str
    """The user that the key acts for."""
    service_account: str | None = None
    """The service account that the key belongs to, which has its permissions."""
    scopes: list[str] = msgspec.field(default_factory=list[str])
    """Its scopes, without those of its roles."""
    roles: list[str] = msgspec.field(default_factory=list[str])
    """Names of its roles."""
    apps: list[str] | None = None
    """The only apps that the key may access; None: all."""
    created_at: float
    """Unix seconds, as the other times."""
    expires_at: float | None = None
    """None: never."""
    revoked_at: float | None = None
    """None for a key that isn't revoked."""
    last_used_at: float | None = None
    """Up to a minute old; None for a key that was never used."""


class CreatedApiKey(ApiKeyInfo, kw_only=True):
    """A new key."""

    key: str
    """The key, which can't be shown again."""


class ListApiKeysResponse(Record, kw_only=True, omit_defaults=False):
    """A page of the keys that the caller may administrate."""

    keys: list[ApiKeyInfo] = msgspec.field(default_factory=list[ApiKeyInfo])
    """Newest first."""
    next_page_token: str | None = None
    """`page_token` of the next request; None on the last page."""
