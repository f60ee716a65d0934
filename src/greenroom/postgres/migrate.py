"""Migrates a database to this release's schema."""

from __future__ import annotations

from functools import cache
from importlib import resources

from greenroom.errors import StorageError
from greenroom.postgres.connection import Connection

_LOCK = 0x67726E72
"""Key of the advisory lock that replicas take to migrate: 'grnr'."""


@cache
def migrations() -> tuple[str, ...]:
    """The numbered files, in order; the file of number n leads to schema version n.

    Servers of the release before keep running during a rolling upgrade, so a file only adds what they ignore. What is
    no longer used is removed one release later, by a file that also raises `greenroom_schema.oldest_server`:

        release 1 uses the column `a`                                       schema 7
        release 2 adds the column `b`, writes both, reads `b`               schema 8; servers of schema 7 stand it
        release 3 uses `b` only                                             schema 8
        release 4 removes `a`, and sets oldest_server to 8                  schema 9; servers of schema 7 are refused
    """
    folder = resources.files("greenroom.postgres") / "migrations"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return tuple(file.read_text("utf-8") for file in files)


async def prepare(connection: Connection) -> None:
    """Applies the migrations that the database lacks, all or none; any number of processes may do so at once.

    Raises StorageError for a newer database that this release's servers don't stand.
    """
    if await _is_usable(connection):
        return
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        if await _is_usable(connection):
            return
        version = await schema_version(connection)
        for script in migrations()[version:]:
            await connection.execute(script)
        await connection.execute("UPDATE greenroom_schema SET version = $1", len(migrations()))


async def schema_version(connection: Connection) -> int:
    """0 for a database without our tables."""
    # Reading pg_class brings the connection's cache of names up to date, which `to_regclass` alone does not.
    if await connection.fetchval("SELECT 1 FROM pg_class WHERE oid = to_regclass('greenroom_schema')") is None:
        return 0
    return await connection.fetchval("SELECT version FROM greenroom_schema")


async def _is_usable(connection: Connection) -> bool:
    version = await schema_version(connection)
    latest = len(migrations())
    if version > latest:
        oldest = await connection.fetchval("SELECT oldest_server FROM greenroom_schema")
        if latest < oldest:
            raise StorageError(
                "Opening the database",
                f"it was changed by a newer release of greenroom (schema {version}), and needs one of schema {oldest} "
                f"or later; this release has schema {latest}",
            )
    return version >= latest
