"""API keys in a PostgreSQL database, for servers that share it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from greenroom.errors import CallerError
from greenroom.postgres.database import Database
from greenroom.server.access.api_keys import ApiKey

_COLUMNS = "id, digest, name, subject, scopes, apps, created_at, expires_at, revoked_at, last_used_at"


class PostgresApiKeys:
    """An `ApiKeyStore` in the table `api_keys`."""

    def __init__(self, uri: str) -> None:
        """Connects on first use. Raises MissingExtra."""
        self._database = Database.open(uri)

    async def add(self, api_key: ApiKey) -> None:
        await self._database.execute(
            "INSERT INTO api_keys (id, digest, name, subject, scopes, apps, created_at, expires_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            api_key.id,
            api_key.digest,
            api_key.name,
            api_key.subject,
            sorted(api_key.scopes),
            None if api_key.apps is None else sorted(api_key.apps),
            api_key.created_at,
            api_key.expires_at,
        )

    async def list(self) -> list[ApiKey]:
        rows = await self._database.fetch(f"SELECT {_COLUMNS} FROM api_keys ORDER BY created_at, id")
        return [_api_key(*row) for row in rows]

    async def revoke(self, key_id: str) -> ApiKey:
        rows = await self._database.transact(
            lambda transaction: transaction.fetch(
                "UPDATE api_keys SET revoked_at = coalesce(revoked_at, extract(epoch FROM clock_timestamp())::float8) "
                f"WHERE id = ? RETURNING {_COLUMNS}",
                key_id,
            )
        )
        if not rows:
            raise CallerError(f"There is no key with the id {key_id!r}")
        return _api_key(*rows[0])

    async def mark_used(self, last_used: Mapping[str, float]) -> None:
        await self._database.execute(
            "UPDATE api_keys SET last_used_at = greatest(last_used_at, used_at) "
            "FROM unnest(?::text[], ?::float8[]) AS used (key_id, used_at) WHERE id = key_id",
            list(last_used.keys()),
            list(last_used.values()),
        )

    async def state(self) -> Hashable | None:
        """The numbers of keys and of revoked ones: both only grow."""
        return tuple(*await self._database.fetch("SELECT count(*), count(revoked_at) FROM api_keys"))

    async def close(self) -> None:
        await self._database.close()


def _api_key(*columns: Any) -> ApiKey:
    values = dict(zip(_COLUMNS.split(", "), columns, strict=True))
    values["scopes"] = frozenset(values["scopes"])
    values["apps"] = None if values["apps"] is None else frozenset(values["apps"])
    return ApiKey(**values)
