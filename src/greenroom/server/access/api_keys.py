"""API keys: the stores of their hashes, a file or PostgreSQL, and a cache of a store.

A key is `gr_<id>_<secret>`, the secret 256 random bits; a store holds the SHA-256 of the whole. A fast hash is
enough: 256 random bits can't be guessed at any speed, and a slow hash would slow down every request.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
import os
import re
import secrets
import sqlite3
import time
from collections.abc import Generator, Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from greenroom.errors import CallerError, StorageError, Unauthenticated
from greenroom.server.access.identity import Identity

PREFIX = "gr_"

_SCHEMA = """
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
        last_used_at REAL
    )
"""
_FORM = re.compile(PREFIX + r"[0-9a-f]{10}_[\w-]{43}")
_SETTLING_SECONDS = 0.05
"""A file that was modified less than this ago may change again without a new modification time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiKey:
    """An API key's stored record. Times are Unix seconds."""

    id: str
    digest: bytes = field(repr=False)
    name: str
    subject: str
    scopes: frozenset[str]
    """As in `Identity`."""
    apps: frozenset[str] | None
    """As in `Identity`; None: all apps."""
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None

    @property
    def identity(self) -> Identity:
        return Identity(
            subject=self.subject, scopes=self.scopes, apps=self.apps, key_id=self.id, expires_at=self.expires_at
        )

    def is_good(self, now: float) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def fits(self, key: str) -> bool:
        return hmac.compare_digest(hashlib.sha256(key.encode()).digest(), self.digest)


def new_key(
    *,
    name: str,
    subject: str,
    scopes: Iterable[str],
    apps: Iterable[str] | None = None,
    expires_at: float | None = None,
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
        apps=None if apps is None else frozenset(apps),
        created_at=time.time(),
        expires_at=expires_at,
    )
    return api_key, key


def is_key(text: str) -> bool:
    """True if the text has the format of a key, valid or not."""
    return _FORM.fullmatch(text) is not None


def id_of(key: str) -> str:
    """The public id of a key; other texts are returned as they are."""
    return key.removeprefix(PREFIX).partition("_")[0] if key.startswith(PREFIX) else key


class ApiKeyStore(Protocol):
    """A store of API keys. Several processes may read and change it. All operations raise StorageError."""

    async def add(self, api_key: ApiKey) -> None: ...

    async def list(self) -> list[ApiKey]:
        """Returns all keys, oldest first, including revoked and expired ones."""
        ...

    async def revoke(self, key_id: str) -> ApiKey:
        """Raises CallerError for an unknown id."""
        ...

    async def mark_used(self, last_used: Mapping[str, float]) -> None:
        """Stores the times at which keys were last used, by the keys' ids."""
        ...

    async def state(self) -> Hashable | None:
        """Returns a value that differs after a key was added or revoked, cheaply; None: unknown."""
        ...

    async def close(self) -> None: ...


class SqliteApiKeys:
    """The file of API keys as an `ApiKeyStore`: reads and writes it in threads."""

    def __init__(self, file: ApiKeyFile) -> None:
        self._file = file

    async def add(self, api_key: ApiKey) -> None:
        await asyncio.to_thread(self._file.add, api_key)

    async def list(self) -> list[ApiKey]:
        return await asyncio.to_thread(self._file.list)

    async def revoke(self, key_id: str) -> ApiKey:
        return await asyncio.to_thread(self._file.revoke, key_id)

    async def mark_used(self, last_used: Mapping[str, float]) -> None:
        await asyncio.to_thread(self._file.mark_used, last_used)

    async def state(self) -> Hashable | None:
        return self._file.state()

    async def close(self) -> None:
        """Does nothing: each operation closes the file."""


class ApiKeyFile:
    """The file of API keys. Several processes may read and change it. All operations raise StorageError."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Does not open the file; `create` creates it if it is missing."""
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
        self.add(api_key)
        return api_key, key

    def add(self, api_key: ApiKey) -> None:
        with self._opened("Writing", creates=True) as connection:
            connection.execute(_SCHEMA)
            connection.execute(
                "INSERT INTO api_keys (id, digest, name, subject, scopes, apps, created_at, expires_at) "
                "VALUES (:id, :digest, :name, :subject, :scopes, :apps, :created_at, :expires_at)",
                {
                    **asdict(api_key),
                    "scopes": "\n".join(sorted(api_key.scopes)),
                    "apps": None if api_key.apps is None else "\n".join(sorted(api_key.apps)),
                },
            )

    def list(self) -> list[ApiKey]:
        """Returns all keys, oldest first, including revoked and expired ones."""
        with self._opened("Reading") as connection:
            rows = connection.execute("SELECT * FROM api_keys ORDER BY created_at, id").fetchall()
        return [_api_key(row) for row in rows]

    def revoke(self, key_id: str) -> ApiKey:
        """Raises CallerError for an unknown id."""
        with self._opened("Writing") as connection:
            connection.execute(
                "UPDATE api_keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (time.time(), key_id)
            )
            row = connection.execute("SELECT * FROM api_keys WHERE id = ?", (key_id,)).fetchone()
        if row is None:
            raise CallerError(f"There is no key with the id {key_id!r}")
        return _api_key(row)

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


def _api_key(row: sqlite3.Row) -> ApiKey:
    apps = None if row["apps"] is None else frozenset(row["apps"].splitlines())
    values: dict[str, Any] = {**dict(row), "scopes": frozenset(row["scopes"].splitlines()), "apps": apps}
    return ApiKey(**values)


_log = logging.getLogger("greenroom.server")

REFRESH_SECONDS = 0.5
MARK_SECONDS = 60.0
"""Interval between two updates of a key's time of last use."""


class ApiKeyCache:
    """Caches the keys of a store. Changes take effect within REFRESH_SECONDS, new keys at once. If the store can't be
    read, every key is refused."""

    def __init__(self, store: ApiKeyStore) -> None:
        self._store = store
        self._keys: dict[str, tuple[ApiKey, Identity]] = {}
        self._state: Hashable | None = None
        self._checked_at = float("-inf")
        self._refreshing: asyncio.Task[None] | None = None
        self._used: dict[str, float] = {}
        self._mark_at = time.monotonic()
        self._marking: asyncio.Task[None] | None = None

    async def identify(self, key: str) -> Identity:
        """Raises Unauthenticated, or StorageError."""
        key_id = id_of(key)
        if time.monotonic() >= self._checked_at + REFRESH_SECONDS or key_id not in self._keys:
            await self._refresh(even_if_fresh=key_id not in self._keys)
        if key_id not in self._keys:
            raise Unauthenticated("This API key is not valid")
        api_key, identity = self._keys[key_id]
        now = time.time()
        if not api_key.fits(key) or api_key.revoked_at is not None:
            raise Unauthenticated("This API key is not valid")
        if not api_key.is_good(now):
            raise Unauthenticated("This API key has expired")
        self._used[api_key.id] = now
        if time.monotonic() >= self._mark_at:
            self._mark_at = time.monotonic() + MARK_SECONDS
            self._marking = asyncio.create_task(self.mark_used())
        return identity

    async def is_good(self, key_id: str) -> bool:
        """True if the key is still valid. Raises StorageError."""
        if time.monotonic() >= self._checked_at + REFRESH_SECONDS:
            await self._refresh()
        found = self._keys.get(key_id)
        return found is not None and found[0].is_good(time.time())

    async def mark_used(self) -> None:
        """Stores the times at which keys were last used."""
        used = self._used
        self._used = {}
        if not used:
            return
        try:
            await self._store.mark_used(used)
        except StorageError as error:  # the store may be read-only
            _log.debug("the last use of API keys was not stored: %s", error.detail)

    async def close(self) -> None:
        if self._marking is not None:
            await self._marking
        await self.mark_used()
        if self._refreshing is not None:
            await asyncio.wait([self._refreshing])
        await self._store.close()

    async def _refresh(self, *, even_if_fresh: bool = False) -> None:
        """Reads the keys if they have changed. Callers share a check that is under way, and its error.

        even_if_fresh: checks them even within REFRESH_SECONDS, since a key may just have been created.
        """
        now = time.monotonic()
        checked_from = now if even_if_fresh else now - REFRESH_SECONDS
        while self._checked_at < checked_from:  # twice, if the check that is under way began before the call
            if self._refreshing is None:
                self._refreshing = asyncio.create_task(self._read_changes())
                self._refreshing.add_done_callback(self._end_refresh)
            await asyncio.shield(self._refreshing)

    async def _read_changes(self) -> None:
        checked_at = time.monotonic()
        state = await self._store.state()
        if state is None or state != self._state:
            self._keys = {key.id: (key, key.identity) for key in await self._store.list()}
            self._state = state
        self._checked_at = checked_at

    def _end_refresh(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not task.cancelled():
            task.exception()  # marks it as seen: all callers may have been cancelled
