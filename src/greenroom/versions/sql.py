"""Published versions in a database, by statements that SQLite and PostgreSQL share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from greenroom.errors import TooManyVersions
from greenroom.records import wire
from greenroom.records.app_version import PublishedVersion, Shares, Traffic
from greenroom.versions.store import (
    MAX_VERSIONS,
    TrafficState,
    VersionStore,
    check_is_unused,
    check_shares,
    version_not_found,
)

if TYPE_CHECKING:
    from greenroom.postgres.database import Database as PostgresDatabase
    from greenroom.sqlite.database import Database as SqliteDatabase

_LOCK = """
    INSERT INTO app_traffic (app_name, revision, last_number, data) VALUES (?, 0, 0, '{"shares":{}}')
    ON CONFLICT (app_name) DO UPDATE SET revision = app_traffic.revision + 1
    RETURNING last_number, data
"""
"""Also locks the row until the transaction ends, so that changes of an app come one after the other."""
_COUNT_UP = "UPDATE app_traffic SET last_number = ? WHERE app_name = ?"
_SET_SHARES = "UPDATE app_traffic SET data = ? WHERE app_name = ?"
_TRAFFIC = "SELECT app_name, revision, data FROM app_traffic"

_INSERT = """
    INSERT INTO app_versions (app_name, number, name, version, data, whole, archive) VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_COUNT = "SELECT count(*) FROM app_versions WHERE app_name = ?"
_NAMES = "SELECT name FROM app_versions WHERE app_name = ?"
_LIST = "SELECT data FROM app_versions WHERE app_name = ? ORDER BY number DESC"
_GET = "SELECT whole FROM app_versions WHERE app_name = ? AND name = ?"
_FIND = "SELECT data FROM app_versions WHERE app_name = ? AND version = ?"
_ARCHIVE = "SELECT archive FROM app_versions WHERE app_name = ? AND version = ?"
_DELETE = "DELETE FROM app_versions WHERE app_name = ? AND name = ? RETURNING name"


_decode = wire.decoder(PublishedVersion)
_decode_traffic = wire.decoder(Traffic)


class Transaction(Protocol):
    async def fetch(self, statement: str, *arguments: Any) -> Sequence[Any]: ...


class SqlVersionStore(VersionStore):
    """In the database of the runs, which closes it."""

    def __init__(self, database: SqliteDatabase | PostgresDatabase) -> None:
        self._database = database

    async def publish(self, version: PublishedVersion, archive: bytes) -> PublishedVersion:
        app_name = version.app_name

        async def write(transaction: Transaction) -> PublishedVersion:
            [(last_number, _)] = await transaction.fetch(_LOCK, app_name)
            existing = await transaction.fetch(_FIND, app_name, version.version)
            if existing:
                return _decode(existing[0][0].encode())
            [(count,)] = await transaction.fetch(_COUNT, app_name)
            if count >= MAX_VERSIONS:
                raise TooManyVersions(app_name, MAX_VERSIONS)
            number = last_number + 1
            stored = msgspec.structs.replace(version, name=f"v{number}")
            whole = wire.encode(stored).decode()
            listed = msgspec.structs.replace(stored, agents=None, files=None)
            data = wire.encode(listed).decode()
            await transaction.fetch(_INSERT, app_name, number, stored.name, stored.version, data, whole, archive)
            await transaction.fetch(_COUNT_UP, number, app_name)
            return listed

        return await self._database.transact(write)

    async def list(self, app_name: str) -> list[PublishedVersion]:
        return [_decode(data.encode()) for (data,) in await self._database.fetch(_LIST, app_name)]

    async def get(self, app_name: str, name: str) -> PublishedVersion | None:
        rows = await self._database.fetch(_GET, app_name, name)
        return _decode(rows[0][0].encode()) if rows else None

    async def find(self, app_name: str, version: str) -> PublishedVersion | None:
        rows = await self._database.fetch(_FIND, app_name, version)
        return _decode(rows[0][0].encode()) if rows else None

    async def read_archive(self, app_name: str, version: str) -> bytes | None:
        rows = await self._database.fetch(_ARCHIVE, app_name, version)
        return bytes(rows[0][0]) if rows else None

    async def delete(self, app_name: str, name: str) -> None:
        async def write(transaction: Transaction) -> None:
            [(_, data)] = await transaction.fetch(_LOCK, app_name)
            check_is_unused(app_name, name, _decode_traffic(data.encode()).shares)
            if not await transaction.fetch(_DELETE, app_name, name):
                raise version_not_found(app_name, name)

        await self._database.transact(write)

    async def set_traffic(self, app_name: str, shares: Shares) -> None:
        async def write(transaction: Transaction) -> None:
            await transaction.fetch(_LOCK, app_name)
            names = [name for (name,) in await transaction.fetch(_NAMES, app_name)]
            check_shares(app_name, shares, names)
            await transaction.fetch(_SET_SHARES, wire.encode(Traffic(shares=shares)).decode(), app_name)

        await self._database.transact(write)

    async def list_traffic(self) -> Mapping[str, TrafficState]:
        rows = await self._database.fetch(_TRAFFIC)
        return {
            app_name: TrafficState(revision, _decode_traffic(data.encode()).shares) for app_name, revision, data in rows
        }
