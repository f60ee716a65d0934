"""The data keys of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from greenroom.encryption.key_provider import WrappedKey
from greenroom.encryption.key_ring import KeyStore, StoredKey, StoredKeys
from greenroom.encryption.key_tables import (
    ADD_KEY,
    ALLOW_PLAINTEXT,
    HAS_KEYS,
    PLAINTEXT,
    RESERVE,
    REWRAP,
    SELECT_KEYS,
    row_of,
    stored_keys,
    text_of,
)
from greenroom.errors import StorageError
from greenroom.postgres.connection import Connection, connect
from greenroom.postgres.migrate import prepare
from greenroom.postgres.numbered import numbered

_HAS_TABLE = "SELECT count(*) FROM pg_class WHERE oid = to_regclass('encryption_keys')"
_LOCK = "LOCK TABLE encryption_keys IN SHARE ROW EXCLUSIVE MODE"


class PostgresKeyStore(KeyStore):
    """Uses connections of its own, each for one call."""

    def __init__(self, uri: str, name: str) -> None:
        self._uri = uri
        self.name = name

    async def read(self) -> StoredKeys:
        async with self._connection() as connection:
            if not await has_keys(connection):
                return StoredKeys([], allows_plaintext=False)
            plaintext = await connection.fetchval(PLAINTEXT)
            return stored_keys(await connection.fetch(SELECT_KEYS), plaintext)

    async def add(self, keys: Sequence[StoredKey]) -> None:
        async with self._connection() as connection:
            await prepare(connection)
            async with connection.transaction():
                await connection.execute(_LOCK)
                if not await has_keys(connection):
                    await connection.execute(ALLOW_PLAINTEXT)
                for key in keys:
                    await connection.execute(numbered(ADD_KEY), *row_of(key))

    async def reserve(self, key_id: int, values: int) -> int:
        async with self._connection() as connection:
            return await connection.fetchval(numbered(RESERVE), values, key_id) or 0

    async def rewrap(self, key_id: int, before: WrappedKey, after: WrappedKey) -> bool:
        async with self._connection() as connection:
            row = await connection.fetchval(numbered(REWRAP), after.key_id, text_of(after), key_id, text_of(before))
            return row is not None

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[Connection]:
        connection: Connection | None = None
        try:
            connection = await connect(self._uri)
            yield connection
        except Exception as error:
            import asyncpg

            if isinstance(
                error, asyncpg.PostgresError | asyncpg.InterfaceError | asyncpg.InternalClientError | OSError
            ):
                raise StorageError("Reading the encryption keys", f"{error} ({type(error).__name__})") from error
            raise
        finally:
            if connection is not None:
                await connection.close(timeout=5)


async def has_keys(connection: Connection) -> bool:
    """True for a database whose content is encrypted, or is being encrypted."""
    if not await connection.fetchval(_HAS_TABLE):
        return False
    return bool(await connection.fetchval(HAS_KEYS))
