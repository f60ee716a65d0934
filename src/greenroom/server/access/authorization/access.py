"""Keys, service accounts and roles, limited to the caller's permissions."""

from __future__ import annotations

import time
from collections.abc import Callable

from greenroom.errors import AccessConflict, Forbidden, InvalidRequest, NotFound, Unauthenticated
from greenroom.records import wire
from greenroom.records.access import (
    ApiKeyInfo,
    CreateApiKeyRequest,
    CreatedApiKey,
    ListApiKeysResponse,
    ListRolesResponse,
    ListServiceAccountsResponse,
    Role,
    RoleRequest,
    ServiceAccount,
    ServiceAccountRequest,
)
from greenroom.server.access.api_key_cache import ApiKeyCache
from greenroom.server.access.api_keys import AccessRecords, ApiKey, new_key
from greenroom.server.access.authorization.authorized import Authorized
from greenroom.server.access.identity import APP_PREFIX, Identity

_DEFAULT_SCOPES = ("run", "read")


class AuthorizedAccess(Authorized[ApiKeyCache]):
    """Keys, service accounts and roles for one administrator, who can't grant more than it has itself.

    An administrator of some apps sees and changes the keys and accounts that are limited to these apps; others are
    reported as not found. What it may grant is checked with its permissions at the time of the change.
    """

    __slots__ = ()

    async def list_keys(
        self, *, user_id: str | None, service_account: str | None, limit: int, page_token: str | None
    ) -> ListApiKeysResponse:
        """Raises Forbidden, InvalidRequest."""
        records = await self._read()
        before = wire.read_page_token(page_token, keys=1) if page_token else None
        found: list[ApiKey] = []
        for key in sorted(records.keys.values(), key=lambda one: (one.created_at, one.id), reverse=True):
            if before is not None and (key.created_at, key.id) >= (before[0], before[1][0]):
                continue
            if user_id is not None and key.subject != user_id:
                continue
            if service_account is not None and key.service_account != service_account:
                continue
            if _reaches_key(self._identity, records, key):
                found.append(key)

        page = found[:limit]
        following = wire.write_page_token(page[-1].created_at, page[-1].id) if len(found) > limit else None
        return ListApiKeysResponse(keys=[key.info for key in page], next_page_token=following)

    async def get_key(self, key_id: str) -> ApiKeyInfo:
        """Raises Forbidden, NotFound."""
        return _key(self._identity, await self._read(), key_id).info

    async def create_key(self, request: CreateApiKeyRequest) -> CreatedApiKey:
        """Raises Forbidden, InvalidRequest, NotFound, AccessConflict."""
        key, secret = _new_key(request)

        def with_key(records: AccessRecords, caller: Identity) -> AccessRecords:
            if key.service_account is None:
                _check_grant(caller, records.scopes_with(key.scopes, key.roles), key.apps)
            else:
                account = _account(caller, records, key.service_account)
                _check_account_grant(caller, records, account)
            return records.with_key(key)

        await self._change(with_key)
        await self._permissions.record("key.created", user_id=key.subject, target=key.id)
        return CreatedApiKey(key=secret, **{name: getattr(key.info, name) for name in ApiKeyInfo.__struct_fields__})

    async def revoke_key(self, key_id: str, *, force: bool) -> ApiKeyInfo:
        """Raises Forbidden, NotFound, and AccessConflict for the last key of an administrator of all apps."""

        def without_key(records: AccessRecords, caller: Identity) -> AccessRecords:
            _key(caller, records, key_id)
            return records.without_key(key_id)

        records = await self._change(without_key, force=force)
        key = records.keys[key_id]
        await self._permissions.record("key.revoked", user_id=key.subject, target=key_id)
        return key.info

    async def list_accounts(self) -> ListServiceAccountsResponse:
        """Raises Forbidden."""
        accounts = (await self._read()).accounts.values()
        seen = [account for account in accounts if _reaches(self._identity, account.apps)]
        return ListServiceAccountsResponse(service_accounts=seen)

    async def get_account(self, name: str) -> ServiceAccount:
        """Raises Forbidden, NotFound."""
        return _account(self._identity, await self._read(), name)

    async def put_account(self, name: str, request: ServiceAccountRequest, *, force: bool) -> ServiceAccount:
        """Creates or replaces an account. Raises Forbidden, InvalidRequest, NotFound, AccessConflict."""

        def with_account(records: AccessRecords, caller: Identity) -> AccessRecords:
            existing = _account(caller, records, name) if name in records.accounts else None
            account = ServiceAccount(
                name=name,
                created_at=time.time() if existing is None else existing.created_at,
                **{field: getattr(request, field) for field in ServiceAccountRequest.__struct_fields__},
            )
            if existing is None or _permissions(account) != _permissions(existing):
                _check_account_grant(caller, records, account)
            return records.with_account(account)

        records = await self._change(with_account, force=force)
        await self._permissions.record("service_account.changed", target=name)
        return records.accounts[name]

    async def delete_account(self, name: str, *, force: bool) -> None:
        """Deletes an account and revokes its keys. Raises Forbidden, NotFound, AccessConflict."""

        def without_account(records: AccessRecords, caller: Identity) -> AccessRecords:
            _account(caller, records, name)
            return records.without_account(name)

        await self._change(without_account, force=force)
        await self._permissions.record("service_account.deleted", target=name)

    async def list_roles(self) -> ListRolesResponse:
        """Raises Forbidden."""
        roles = (await self._read()).roles.values()
        return ListRolesResponse(roles=[role for role in roles if _sees_role(self._identity, role)])

    async def put_role(self, name: str, request: RoleRequest, *, force: bool) -> Role:
        """Creates or replaces a role. Raises Forbidden, InvalidRequest, AccessConflict."""
        role = Role(name=name, description=request.description, scopes=request.scopes)

        def with_role(records: AccessRecords, caller: Identity) -> AccessRecords:
            _check_unlimited(caller)
            existing = records.custom_roles.get(name)
            known = set[str]() if existing is None else set(existing.scopes)
            _check_grant(caller, set(role.scopes) - known, None)
            return records.with_role(role)

        await self._change(with_role, force=force)
        await self._permissions.record("role.changed", target=name)
        return role

    async def delete_role(self, name: str) -> None:
        """Raises Forbidden, NotFound, AccessConflict."""

        def without_role(records: AccessRecords, caller: Identity) -> AccessRecords:
            _check_unlimited(caller)
            return records.without_role(name)

        await self._change(without_role)
        await self._permissions.record("role.deleted", target=name)

    async def _read(self) -> AccessRecords:
        self._identity.check("admin")
        return await self._service.read()

    async def _change(
        self, change: Callable[[AccessRecords, Identity], AccessRecords], *, force: bool = False
    ) -> AccessRecords:
        """Applies a change with the caller's permissions at that moment. Raises AccessConflict, unless forced, if then
        no key could administrate all apps any more."""
        self._identity.check("admin")

        def checked(records: AccessRecords) -> AccessRecords:
            after = change(records, self._present_identity(records))
            now = time.time()
            if not force and records.has_admin(now) and not after.has_admin(now):
                raise AccessConflict(
                    "No valid key could administrate all apps any more. Create one before, or use force=true; "
                    "`greenroom keys create --scopes admin` can create one later"
                )
            return after

        return await self._service.change(checked)

    def _present_identity(self, records: AccessRecords) -> Identity:
        """The caller's permissions by these records, which may be newer than the request."""
        key_id = self._identity.key_id
        if key_id is None:  # a token
            return self._identity
        key = records.keys.get(key_id)
        present = records.identity_of(key) if key is not None and key.is_good(time.time()) else None
        if present is None:
            raise Unauthenticated("This API key is not valid")
        present.check("admin")
        return present


def _new_key(request: CreateApiKeyRequest) -> tuple[ApiKey, str]:
    """Raises InvalidRequest."""
    if (request.user_id is None) == (request.service_account is None):
        raise InvalidRequest("A key is for a userId or for a serviceAccount: give one of them")
    if request.expires_at is not None and request.expires_at <= time.time():
        raise InvalidRequest("expiresAt is in the past", location=("body", "expiresAt"))
    if request.service_account is not None:
        if request.scopes is not None or request.roles or request.apps is not None:
            raise InvalidRequest("The key of a service account has its permissions: leave out scopes, roles and apps")
        account = ServiceAccount(name=request.service_account, created_at=0.0)
        return new_key(
            name=request.name,
            subject=account.subject,
            expires_at=request.expires_at,
            service_account=account.name,
        )
    scopes = request.scopes
    if scopes is None:
        scopes = [] if request.roles else [*_DEFAULT_SCOPES]
    return new_key(
        name=request.name,
        subject=request.user_id or "",
        scopes=scopes,
        roles=request.roles,
        apps=request.apps,
        expires_at=request.expires_at,
    )


def _reaches(caller: Identity, apps: list[str] | frozenset[str] | None) -> bool:
    return caller.apps is None or (apps is not None and caller.apps.issuperset(apps))


def _reaches_key(caller: Identity, records: AccessRecords, key: ApiKey) -> bool:
    if key.service_account is None:
        return _reaches(caller, key.apps)
    account = records.accounts.get(key.service_account)
    return _reaches(caller, None if account is None else account.apps)


def _key(caller: Identity, records: AccessRecords, key_id: str) -> ApiKey:
    """Raises NotFound, also for a key beyond the caller's apps."""
    key = records.key(key_id)
    if not _reaches_key(caller, records, key):
        raise NotFound(f"There is no key with the id {key_id!r}")
    return key


def _account(caller: Identity, records: AccessRecords, name: str) -> ServiceAccount:
    """Raises NotFound, also for an account beyond the caller's apps."""
    account = records.account(name)
    if not _reaches(caller, account.apps):
        raise NotFound(f"There is no service account {name!r}")
    return account


def _sees_role(caller: Identity, role: Role) -> bool:
    apps = (scope.removeprefix(APP_PREFIX) for scope in role.scopes if scope.startswith(APP_PREFIX))
    return all(caller.reaches(app) for app in apps)


def _permissions(account: ServiceAccount) -> tuple[set[str], set[str], set[str] | None]:
    return set(account.scopes), set(account.roles), None if account.apps is None else set(account.apps)


def _check_account_grant(caller: Identity, records: AccessRecords, account: ServiceAccount) -> None:
    """Raises Forbidden."""
    apps = None if account.apps is None else frozenset(account.apps)
    _check_grant(caller, records.scopes_with(account.scopes, account.roles), apps)


def _check_grant(caller: Identity, scopes: set[str] | frozenset[str], apps: frozenset[str] | None) -> None:
    """Raises Forbidden."""
    if not caller.covers(scopes, apps):
        own_apps = "all" if caller.apps is None else ", ".join(sorted(caller.apps)) or "none"
        raise Forbidden(
            f"These credentials can't grant more than they have: the scopes {', '.join(sorted(caller.scopes))} "
            f"(`admin` doesn't include `approve:NAME`) for the apps: {own_apps}"
        )


def _check_unlimited(caller: Identity) -> None:
    """Raises Forbidden."""
    if not caller.is_unlimited:
        raise Forbidden("Roles hold for all apps, so only administrators of all apps may change them")
