"""API keys, service accounts and roles in a PostgreSQL database, for servers that share it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from greenroom.postgres.database import Database, Transaction
from greenroom.records import wire
from greenroom.records.access import Role, ServiceAccount
from greenroom.server.access.api_keys import AccessRecords, ApiKey, Change

_COLUMNS = (
    "id, digest, name, subject, scopes, apps, created_at, expires_at, revoked_at, last_used_at, roles, service_account"
)
_KEYS = f"SELECT {_COLUMNS} FROM api_keys ORDER BY created_at, id"
_ACCOUNTS = "SELECT data FROM service_accounts ORDER BY name"
_ROLES = "SELECT data FROM roles ORDER BY name"
_COUNT_CHANGE = """
    INSERT INTO access_revision (id, number) VALUES (1, 1)
    ON CONFLICT (id) DO UPDATE SET number = access_revision.number + 1
"""

_read_account = wire.decoder(ServiceAccount)
_read_role = wire.decoder(Role)


class PostgresApiKeys:
    """An `ApiKeyStore` in the tables `api_keys`, `service_accounts` and `roles`."""

    def __init__(self, uri: str) -> None:
        """Connects on first use. Raises MissingExtra."""
        self._database = Database.open(uri, holds_content=False)

    async def read(self) -> AccessRecords:
        return await self._database.transact(_read)

    async def change(self, change: Change) -> AccessRecords:
        async def changed(transaction: Transaction) -> AccessRecords:
            await transaction.fetch(_COUNT_CHANGE)  # others wait for its lock
            before = await _read(transaction)
            after = change(before)
            await _write(transaction, before, after)
            return after

        return await self._database.transact(changed)

    async def mark_used(self, last_used: Mapping[str, float]) -> None:
        await self._database.execute(
            "UPDATE api_keys SET last_used_at = greatest(last_used_at, used_at) "
            "FROM unnest(?::text[], ?::float8[]) AS used (key_id, used_at) WHERE id = key_id",
            list(last_used.keys()),
            list(last_used.values()),
        )

    async def state(self) -> Hashable | None:
        """The number of changes; earlier releases count none, but only add and revoke keys."""
        rows = await self._database.fetch(
            "SELECT count(*), count(revoked_at), (SELECT number FROM access_revision) FROM api_keys"
        )
        return tuple(rows[0])

    async def close(self) -> None:
        await self._database.close()


async def _read(transaction: Transaction) -> AccessRecords:
    keys = [_api_key(*row) for row in await transaction.fetch(_KEYS)]
    accounts = [_read_account(data.encode()) for (data,) in await transaction.fetch(_ACCOUNTS)]
    roles = [_read_role(data.encode()) for (data,) in await transaction.fetch(_ROLES)]
    return AccessRecords(
        keys={key.id: key for key in keys},
        accounts={account.name: account for account in accounts},
        custom_roles={role.name: role for role in roles},
    )


async def _write(transaction: Transaction, before: AccessRecords, after: AccessRecords) -> None:
    """Stores the differences. Keys are never deleted, and only their revocation changes."""
    for key in after.keys.values():
        if key.id not in before.keys:
            await transaction.fetch(
                "INSERT INTO api_keys (id, digest, name, subject, scopes, roles, apps, service_account, created_at, "
                "expires_at, revoked_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                key.id,
                key.digest,
                key.name,
                key.subject,
                sorted(key.scopes),
                sorted(key.roles),
                None if key.apps is None else sorted(key.apps),
                key.service_account,
                key.created_at,
                key.expires_at,
                key.revoked_at,
            )
        elif key.revoked_at != before.keys[key.id].revoked_at:
            await transaction.fetch("UPDATE api_keys SET revoked_at = ? WHERE id = ?", key.revoked_at, key.id)
    await _write_named(transaction, "service_accounts", before.accounts, after.accounts)
    await _write_named(transaction, "roles", before.custom_roles, after.custom_roles)


async def _write_named(
    transaction: Transaction,
    table: str,
    before: Mapping[str, ServiceAccount | Role],
    after: Mapping[str, ServiceAccount | Role],
) -> None:
    for name in before.keys() - after.keys():
        await transaction.fetch(f"DELETE FROM {table} WHERE name = ?", name)
    for name, record in after.items():
        if record != before.get(name):
            await transaction.fetch(
                f"INSERT INTO {table} (name, data) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET data = excluded.data",
                name,
                wire.encode(record).decode(),
            )


def _api_key(*columns: Any) -> ApiKey:
    values = dict(zip(_COLUMNS.split(", "), columns, strict=True))
    values["scopes"] = frozenset(values["scopes"])
    values["roles"] = frozenset(values["roles"])
    values["apps"] = None if values["apps"] is None else frozenset(values["apps"])
    return ApiKey(**values)
