"""API keys, service accounts and roles in a SQLite file of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Generator, Hashable, Iterable, Mapping
from pathlib import Path

from greenroom.errors import StorageError
from greenroom.records import wire
from greenroom.records.access import Role, ServiceAccount
from greenroom.server.access.api_keys import AccessRecords, ApiKey, Change, new_key

_SCHEMA = (
    """
    CREATE TABLE IF NOT EXISTS api_keys (
        id TEXT PRIMARY KEY,
        digest BLOB NOT NULL,
        name TEXT NOT NULL,
        subject TEXT NOT NULL,
        scopes TEXT NOT NULL,
        apps TEXT,
        created_at REAL NOT NULL,
        expires_at REAL,
        revoked_at REAL,
        last_used_at REAL,
        roles TEXT NOT NULL DEFAULT '',
        service_account TEXT
    )
    """,
    "CREATE TABLE IF NOT EXISTS service_accounts (name TEXT PRIMARY KEY, data TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS roles (name TEXT PRIMARY KEY, data TEXT NOT NULL)",
)
_SETTLING_SECONDS = 0.05
"""A file that was modified less than this ago may change again without a new modification time."""

_read_account = wire.decoder(ServiceAccount)
_read_role = wire.decoder(Role)


class SqliteApiKeys:
    """The file of API keys as an `ApiKeyStore`: reads and writes it in threads."""

    def __init__(self, file: ApiKeyFile) -> None:
        self._file = file

    async def read(self) -> AccessRecords:
        return await asyncio.to_thread(self._file.read)

    async def change(self, change: Change) -> AccessRecords:
        return await asyncio.to_thread(self._file.change, change)

    async def mark_used(self, last_used: Mapping[str, float]) -> None:
        await asyncio.to_thread(self._file.mark_used, last_used)

    async def state(self) -> Hashable | None:
        return self._file.state()

    async def close(self) -> None:
        """Does nothing: each operation closes the file."""


class ApiKeyFile:
    """The file of API keys. Several processes may read and change it. All operations raise StorageError."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Does not open the file; a change creates it if it is missing."""
        self.path = Path(path)

    def create(
        self,
        *,
        name: str,
        subject: str,
        scopes: Iterable[str],
        apps: Iterable[str] | None = None,
        expires_at: float | None = None,
    ) -> tuple[ApiKey, str]:
        """Creates a key. Returns its record and the key itself, which is not stored."""
        api_key, key = new_key(name=name, subject=subject, scopes=scopes, apps=apps, expires_at=expires_at)
        self.change(lambda records: records.with_key(api_key))
        return api_key, key

    def revoke(self, key_id: str) -> None:
        """Raises NotFound for an unknown id."""
        self.change(lambda records: records.without_key(key_id))

    def read(self) -> AccessRecords:
        with self._opened("Reading") as connection:
            return _read(connection)

    def change(self, change: Change) -> AccessRecords:
        if not self.path.is_file():
            change(AccessRecords())  # what it raises leaves no file behind
        with self._opened("Writing", creates=True) as connection:
            connection.execute("BEGIN IMMEDIATE")
            _upgrade(connection)
            before = _read(connection)
            after = change(before)
            _write(connection, before, after)
        return after

    def mark_used(self, last_used: Mapping[str, float]) -> None:
        with self._opened("Writing") as connection:
            connection.executemany(
                "UPDATE api_keys SET last_used_at = max(coalesce(last_used_at, 0), ?) WHERE id = ?",
                [(used_at, key_id) for key_id, used_at in last_used.items()],
            )

    def state(self) -> tuple[int, int, int] | None:
        """The file's inode, modification time and size, to detect changes; None if it was modified just now."""
        try:
            status = self.path.stat()
        except OSError as error:
            raise StorageError("Reading the API keys", f"{self.path}: {error.strerror}") from error
        if abs(time.time() - status.st_mtime) < _SETTLING_SECONDS:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    @contextlib.contextmanager
    def _opened(self, operation: str, *, creates: bool = False) -> Generator[sqlite3.Connection]:
        try:
            if creates:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            elif not self.path.is_file():
                raise StorageError(f"{operation} the API keys", f"there is no file {self.path}")
            with contextlib.closing(sqlite3.connect(self.path, timeout=5.0)) as connection, connection:
                connection.row_factory = sqlite3.Row
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise StorageError(f"{operation} the API keys", f"{self.path}: {error}") from error


def _upgrade(connection: sqlite3.Connection) -> None:
    """Creates missing tables, and the columns that files of earlier versions lack."""
    for statement in _SCHEMA:
        connection.execute(statement)
    columns = {row["name"] for row in connection.execute("PRAGMA table_info(api_keys)")}
    if "roles" not in columns:
        connection.execute("ALTER TABLE api_keys ADD COLUMN roles TEXT NOT NULL DEFAULT ''")
        connection.execute("ALTER TABLE api_keys ADD COLUMN service_account TEXT")


def _read(connection: sqlite3.Connection) -> AccessRecords:
    """Reads a file of this version or an earlier one, which may lack tables and columns."""
    keys = connection.execute("SELECT * FROM api_keys ORDER BY created_at, id").fetchall()
    tables = {row["name"] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    accounts: list[ServiceAccount] = []
    roles: list[Role] = []
    if "roles" in tables:
        rows = connection.execute("SELECT data FROM service_accounts ORDER BY name")
        accounts = [_read_account(row["data"].encode()) for row in rows]
        roles = [_read_role(row["data"].encode()) for row in connection.execute("SELECT data FROM roles ORDER BY name")]
    return AccessRecords(
        keys={row["id"]: _api_key(row) for row in keys},
        accounts={account.name: account for account in accounts},
        custom_roles={role.name: role for role in roles},
    )


def _write(connection: sqlite3.Connection, before: AccessRecords, after: AccessRecords) -> None:
    """Stores the differences. Keys are never deleted, and only their revocation changes."""
    for key in after.keys.values():
        if key.id not in before.keys:
            connection.execute(
                "INSERT INTO api_keys (id, digest, name, subject, scopes, roles, apps, service_account, created_at, "
                "expires_at, revoked_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    key.id,
                    key.digest,
                    key.name,
                    key.subject,
                    "\n".join(sorted(key.scopes)),
                    "\n".join(sorted(key.roles)),
                    None if key.apps is None else "\n".join(sorted(key.apps)),
                    key.service_account,
                    key.created_at,
                    key.expires_at,
                    key.revoked_at,
                ),
            )
        elif key.revoked_at != before.keys[key.id].revoked_at:
            connection.execute("UPDATE api_keys SET revoked_at = ? WHERE id = ?", (key.revoked_at, key.id))
    _write_named(connection, "service_accounts", before.accounts, after.accounts)
    _write_named(connection, "roles", before.custom_roles, after.custom_roles)


def _write_named(
    connection: sqlite3.Connection,
    table: str,
    before: Mapping[str, ServiceAccount | Role],
    after: Mapping[str, ServiceAccount | Role],
) -> None:
    for name in before.keys() - after.keys():
        connection.execute(f"DELETE FROM {table} WHERE name = ?", (name,))
    for name, record in after.items():
        if record != before.get(name):
            connection.execute(
                f"INSERT INTO {table} (name, data) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET data = excluded.data",
                (name, wire.encode(record).decode()),
            )


def _api_key(row: sqlite3.Row) -> ApiKey:
    has_roles = "roles" in tuple(row.keys())  # a Row contains values, not names
    return ApiKey(
        id=row["id"],
        digest=row["digest"],
        name=row["name"],
        subject=row["subject"],
        scopes=frozenset(row["scopes"].splitlines()),
        roles=frozenset(row["roles"].splitlines()) if has_roles else frozenset(),
        apps=None if row["apps"] is None else frozenset(row["apps"].splitlines()),
        service_account=row["service_account"] if has_roles else None,
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
        last_used_at=row["last_used_at"],
    )
