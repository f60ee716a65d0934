"""The data keys of a database file."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

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
from greenroom.sqlite.migrate import prepare

_BUSY_TIMEOUT_SECONDS = 5.0
_HAS_TABLE = "SELECT count(*) FROM sqlite_schema WHERE name = 'encryption_keys'"


class SqliteKeyStore(KeyStore):
    """Uses connections of its own, each for one call."""

    def __init__(self, path: str) -> None:
        self.name = path

    async def read(self) -> StoredKeys:
        if not _exists(self.name):
            return StoredKeys([], allows_plaintext=False)
        with _connection(self.name) as connection:
            if not has_keys(connection):
                return StoredKeys([], allows_plaintext=False)
            plaintext: int = connection.execute(PLAINTEXT).fetchone()[0]
            return stored_keys(connection.execute(SELECT_KEYS).fetchall(), plaintext)

    async def add(self, keys: Sequence[StoredKey]) -> None:
        Path(self.name).parent.mkdir(parents=True, exist_ok=True)
        with _connection(self.name) as connection:
            prepare(connection, patience_seconds=_BUSY_TIMEOUT_SECONDS)
            connection.execute("BEGIN IMMEDIATE")
            if not has_keys(connection):
                connection.execute(ALLOW_PLAINTEXT)
            connection.executemany(ADD_KEY, [row_of(key) for key in keys])
            connection.execute("COMMIT")

    async def reserve(self, key_id: int, values: int) -> int:
        with _connection(self.name) as connection:
            rows = connection.execute(RESERVE, (values, key_id)).fetchall()
            return rows[0][0] if rows else 0

    async def rewrap(self, key_id: int, before: WrappedKey, after: WrappedKey) -> bool:
        with _connection(self.name) as connection:
            return bool(connection.execute(REWRAP, (after.key_id, text_of(after), key_id, text_of(before))).fetchall())


def _exists(path: str) -> bool:
    return os.path.exists(path)


def has_keys(connection: sqlite3.Connection) -> bool:
    """True for a file whose content is encrypted, or is being encrypted."""
    if not connection.execute(_HAS_TABLE).fetchone()[0]:
        return False
    return bool(connection.execute(HAS_KEYS).fetchone()[0])


@contextmanager
def _connection(path: str) -> Generator[sqlite3.Connection]:
    try:
        with contextlib.closing(
            sqlite3.connect(path, timeout=_BUSY_TIMEOUT_SECONDS, isolation_level=None)
        ) as connection:
            yield connection
    except (sqlite3.Error, OSError) as error:
        raise StorageError("Reading the encryption keys", str(error)) from error
