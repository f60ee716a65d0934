"""API keys and their stores.

A key is `gr_<id>_<secret>`, the secret 256 random bits; a store holds the SHA-256 of the whole. A fast hash is
enough: 256 random bits can't be guessed at any speed, and a slow hash would slow down every request.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from greenroom.errors import AccessConflict, InvalidRequest, NotFound
from greenroom.records.access import SERVICE_PREFIX, ApiKeyInfo, Role, ServiceAccount
from greenroom.server.access.identity import SCOPES, Identity, is_scope

PREFIX = "gr_"

MAX_KEYS = 10_000
"""Maximum number of keys that are not revoked."""
MAX_ACCOUNTS = 1000
MAX_ROLES = 1000

BUILT_IN_ROLES: Mapping[str, Role] = {
    name: Role(name=name, description=description, scopes=scopes, is_built_in=True)
    for name, description, scopes in (
        ("viewer", "Read what belongs to the user", ["read"]),
        ("operator", "Run, read, traces, metrics and the audit trail", ["run", "read", "debug", "audit"]),
        ("developer", "Run, read, traces, and change the data of apps", ["run", "read", "manage", "debug"]),
        ("admin", "Everything, for all users", ["admin"]),
    )
}

_FORM = re.compile(PREFIX + r"[0-9a-f]{10}_[\w-]{43}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiKey:
    """An API key's stored record. Times are Unix seconds."""

    id: str
    digest: bytes = field(repr=False)
    name: str
    subject: str
    scopes: frozenset[str]
    """As in `Identity`; without those of its roles."""
    apps: frozenset[str] | None
    """As in `Identity`; None: all apps."""
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None
    roles: frozenset[str] = frozenset()
    service_account: str | None = None
    """The name of the account that the key belongs to, whose permissions it has in place of its own."""

    @property
    def info(self) -> ApiKeyInfo:
        return ApiKeyInfo(
            id=self.id,
            name=self.name,
            user_id=self.subject,
            service_account=self.service_account,
            scopes=sorted(self.scopes),
            roles=sorted(self.roles),
            apps=None if self.apps is None else sorted(self.apps),
            created_at=self.created_at,
            expires_at=self.expires_at,
            revoked_at=self.revoked_at,
            last_used_at=self.last_used_at,
        )

    def is_good(self, now: float) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def fits(self, key: str) -> bool:
        return hmac.compare_digest(hashlib.sha256(key.encode()).digest(), self.digest)


def new_key(
    *,
    name: str,
    subject: str,
    scopes: Iterable[str] = (),
    roles: Iterable[str] = (),
    apps: Iterable[str] | None = None,
    expires_at: float | None = None,
    service_account: str | None = None,
) -> tuple[ApiKey, str]:
    """Returns the record of a new key, and the key itself, which is not stored."""
    key_id = secrets.token_hex(5)
    key = f"{PREFIX}{key_id}_{secrets.token_urlsafe(32)}"
    api_key = ApiKey(
        id=key_id,
        digest=hashlib.sha256(key.encode()).digest(),
        name=name,
        subject=subject,
        scopes=frozenset(scopes),
        roles=frozenset(roles),
        apps=None if apps is None else frozenset(apps),
        created_at=time.time(),
        expires_at=expires_at,
        service_account=service_account,
    )
    return api_key, key


def is_key(text: str) -> bool:
    """True if the text has the format of a key, valid or not."""
    return _FORM.fullmatch(text) is not None


def id_of(key: str) -> str:
    """The public id of a key; other texts are returned as they are."""
    return key.removeprefix(PREFIX).partition("_")[0] if key.startswith(PREFIX) else key


@dataclass(frozen=True, kw_only=True, slots=True)
class AccessRecords:
    """The keys, service accounts and roles of a store at one moment. Changes return new records."""

    keys: Mapping[str, ApiKey] = field(default_factory=dict[str, ApiKey])
    """By id, oldest first, including revoked and expired ones."""
    accounts: Mapping[str, ServiceAccount] = field(default_factory=dict[str, ServiceAccount])
    """By name."""
    custom_roles: Mapping[str, Role] = field(default_factory=dict[str, Role])
    """By name."""

    @property
    def roles(self) -> Mapping[str, Role]:
        """The built-in and the custom roles, by name."""
        return {**BUILT_IN_ROLES, **self.custom_roles}

    def scopes_with(self, scopes: Iterable[str], roles: Iterable[str]) -> frozenset[str]:
        """The scopes and those of the roles. A role that doesn't exist has none."""
        all_scopes = set(scopes)
        for name in roles:
            role = BUILT_IN_ROLES.get(name) or self.custom_roles.get(name)
            if role is not None:
                all_scopes.update(role.scopes)
        return frozenset(all_scopes)

    def identity_of(self, key: ApiKey) -> Identity | None:
        """The identity of the key's bearer at present. None if its service account is disabled or deleted."""
        scopes, roles, apps = key.scopes, key.roles, key.apps
        if key.service_account is not None:
            account = self.accounts.get(key.service_account)
            if account is None or account.is_disabled:
                return None
            scopes, roles = frozenset(account.scopes), frozenset(account.roles)
            apps = None if account.apps is None else frozenset(account.apps)
        return Identity(
            subject=key.subject,
            scopes=self.scopes_with(scopes, roles),
            apps=apps,
            key_id=key.id,
            expires_at=key.expires_at,
        )

    def has_admin(self, now: float) -> bool:
        """True if a valid key may administrate all apps."""
        identities = (self.identity_of(key) for key in self.keys.values() if key.is_good(now))
        return any(identity is not None and identity.is_unlimited for identity in identities)

    def key(self, key_id: str) -> ApiKey:
        """Raises NotFound."""
        found = self.keys.get(key_id)
        if found is None:
            raise NotFound(f"There is no key with the id {key_id!r}")
        return found

    def account(self, name: str) -> ServiceAccount:
        """Raises NotFound."""
        found = self.accounts.get(name)
        if found is None:
            raise NotFound(f"There is no service account {name!r}")
        return found

    def role(self, name: str) -> Role:
        """Raises NotFound."""
        found = self.roles.get(name)
        if found is None:
            raise NotFound(f"There is no role {name!r}")
        return found

    def with_key(self, key: ApiKey) -> AccessRecords:
        """Raises InvalidRequest for unknown scopes and roles, NotFound for an unknown account, AccessConflict."""
        if key.service_account is not None:
            self.account(key.service_account)
        elif key.subject.startswith(SERVICE_PREFIX):
            raise InvalidRequest(f"Ids of users must not begin with {SERVICE_PREFIX!r}")
        check_scopes(key.scopes)
        self.check_roles(key.roles)
        if sum(one.revoked_at is None for one in self.keys.values()) >= MAX_KEYS:
            raise AccessConflict(f"There are {MAX_KEYS} keys that are not revoked; revoke some first")
        return replace(self, keys={**self.keys, key.id: key})

    def without_key(self, key_id: str) -> AccessRecords:
        """Revokes a key. Raises NotFound."""
        key = self.key(key_id)
        if key.revoked_at is not None:
            return self
        return replace(self, keys={**self.keys, key_id: replace(key, revoked_at=time.time())})

    def with_account(self, account: ServiceAccount) -> AccessRecords:
        """Adds or replaces an account. Raises InvalidRequest for unknown scopes and roles, AccessConflict."""
        check_scopes(account.scopes)
        self.check_roles(account.roles)
        if account.name not in self.accounts and len(self.accounts) >= MAX_ACCOUNTS:
            raise AccessConflict(f"There are {MAX_ACCOUNTS} service accounts; delete one")
        return replace(self, accounts={**self.accounts, account.name: account})

    def without_account(self, name: str) -> AccessRecords:
        """Deletes an account and revokes its keys. Raises NotFound."""
        self.account(name)
        records = replace(self, accounts={key: one for key, one in self.accounts.items() if key != name})
        for key in self.keys.values():
            if key.service_account == name:
                records = records.without_key(key.id)
        return records

    def with_role(self, role: Role) -> AccessRecords:
        """Adds or replaces a role. Raises InvalidRequest for unknown scopes, AccessConflict."""
        if role.name in BUILT_IN_ROLES:
            raise AccessConflict(f"The role {role.name!r} is built in and can't be changed")
        check_scopes(role.scopes)
        if role.name not in self.custom_roles and len(self.custom_roles) >= MAX_ROLES:
            raise AccessConflict(f"There are {MAX_ROLES} roles; delete one")
        return replace(self, custom_roles={**self.custom_roles, role.name: role})

    def without_role(self, name: str) -> AccessRecords:
        """Raises NotFound, AccessConflict if the role is built in or in use."""
        if self.role(name).is_built_in:
            raise AccessConflict(f"The role {name!r} is built in and can't be deleted")
        users = [f"key {key.id}" for key in self.keys.values() if name in key.roles and key.revoked_at is None]
        users += [f"service account {account.name!r}" for account in self.accounts.values() if name in account.roles]
        if users:
            more = f" and {len(users) - 1} more" if len(users) > 1 else ""
            raise AccessConflict(f"The role {name!r} is in use by {users[0]}{more}")
        return replace(self, custom_roles={key: one for key, one in self.custom_roles.items() if key != name})

    def check_roles(self, names: Iterable[str]) -> None:
        """Raises InvalidRequest for roles that don't exist."""
        for name in names:
            if name not in BUILT_IN_ROLES and name not in self.custom_roles:
                raise InvalidRequest(f"There is no role {name!r}. Known: {', '.join(self.roles)}")


def check_scopes(scopes: Iterable[str]) -> None:
    """Raises InvalidRequest for texts that are no scopes."""
    for scope in scopes:
        if not is_scope(scope):
            known = f"{', '.join(SCOPES)}, app:NAME, approve:NAME, admin"
            raise InvalidRequest(f"There is no scope {scope!r}. Known: {known}")


Change = Callable[[AccessRecords], AccessRecords]


class ApiKeyStore(Protocol):
    """A store of API keys, service accounts and roles. Several processes may read and change it. All operations raise
    StorageError."""

    async def read(self) -> AccessRecords: ...

    async def change(self, change: Change) -> AccessRecords:
        """Stores what `change` returns for the present records, and returns it. What it raises leaves them as they are.

        Changes of several processes are made one after the other. `change` may be called more than once.
        """
        ...

    async def mark_used(self, last_used: Mapping[str, float]) -> None:
        """Stores the times at which keys were last used, by the keys' ids."""
        ...

    async def state(self) -> Hashable | None:
        """Returns a value that differs after a change, cheaply; None: unknown."""
        ...

    async def close(self) -> None: ...
