"""`greenroom db`: the schema of a server's database, and its size on disk."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import NamedTuple

from cyclopts import App

from greenroom.cli import data_folder
from greenroom.cli.parameters import AgentsDir, SessionStore
from greenroom.cli.serving import session_service_of
from greenroom.errors import CallerError, StoreInUse

app = App(name="db", help="Show, upgrade and compact a server's database.")


@app.command
def status(agents_dir: AgentsDir = Path(), /, *, session_service: SessionStore = None) -> None:
    """Show the schema version of the database and the one of this release.

    A starting server upgrades the schema itself.

        greenroom db status --session-service postgresql://user:password@host/database
    """
    schema = asyncio.run(schema_of(session_service_of(agents_dir, session_service), upgrade=False))
    if schema.version == schema.latest:
        state = "up to date"
    elif schema.version > schema.latest:
        state = "newer than this release"
    else:
        state = "needs an upgrade"
    print(f"{schema.name}: schema {schema.version}, this release uses {schema.latest}: {state}")

    if schema.free_bytes:
        size = os.path.getsize(schema.name)
        print(f"{_megabytes(schema.free_bytes)} of {_megabytes(size)} hold no data; `greenroom db compact` frees them")


@app.command
def upgrade(agents_dir: AgentsDir = Path(), /, *, session_service: SessionStore = None) -> None:
    """Apply the migrations that the database lacks, as a starting server does.

    Several processes may do this at the same time.
    """
    found = asyncio.run(schema_of(session_service_of(agents_dir, session_service), upgrade=True))
    print(f"{found.name}: schema {found.version}")


@app.command
def compact(agents_dir: AgentsDir = Path(), /, *, session_service: SessionStore = None) -> None:
    """Free the disk space of deleted sessions and users in a SQLite file. Stop the server first.

    Rewrites the file, which needs twice its size of free disk space. PostgreSQL reuses the space by itself.

        greenroom db compact examples
    """
    path = asyncio.run(_sqlite_path(session_service_of(agents_dir, session_service)))
    if not os.path.isfile(path):
        raise CallerError(f"There is no database at {path}")

    before = os.path.getsize(path)
    asyncio.run(_compact(path))
    print(f"{path}: {_megabytes(before)} before, {_megabytes(os.path.getsize(path))} now")


async def check_schema(uri: str) -> None:
    """Raises CallerError for a database that this release would upgrade when it opens it."""
    schema = await schema_of(uri, upgrade=False)
    if schema.version < schema.latest:
        raise CallerError(
            f"{schema.name} has schema {schema.version}, and this release uses {schema.latest}. Nothing was changed; "
            "`greenroom db upgrade` or a start of the server applies the migrations"
        )


class _SchemaState(NamedTuple):
    """The schema of a database."""

    name: str
    """The name of the database, or the path of a SQLite file."""
    version: int
    latest: int
    """The version of this release."""
    free_bytes: int = 0
    """The size of a SQLite file's pages that hold no data."""


async def schema_of(uri: str, *, upgrade: bool) -> _SchemaState:
    from greenroom.sessions.from_uri import session_service_from_uri
    from greenroom.sessions.sqlite import SqliteSessionService

    service = session_service_from_uri(uri)
    async with data_folder.closing(service):
        path = service.path if isinstance(service, SqliteSessionService) else None
    if path is not None:
        return await _sqlite_schema(path, upgrade=upgrade)
    if uri.startswith("postgres"):
        return await _postgres_schema(uri, upgrade=upgrade)
    raise CallerError("An in-memory store has no schema. Name a database with --session-service")


async def _sqlite_schema(path: str, *, upgrade: bool) -> _SchemaState:
    from greenroom.sqlite.compact import free_bytes
    from greenroom.sqlite.database import Database
    from greenroom.sqlite.migrate import latest_version, schema_version

    if upgrade:
        database = Database.open(path, holds_content=False)
        await database.fetch("SELECT 1")
        await database.close()
    return _SchemaState(path, schema_version(path), latest_version(), free_bytes(path))


async def _postgres_schema(uri: str, *, upgrade: bool) -> _SchemaState:
    from greenroom.postgres.database import Database
    from greenroom.postgres.migrate import migrations, schema_version

    database = Database.open(uri, holds_content=False)
    database.is_prepared = not upgrade
    async with data_folder.closing(database):
        version = await database.read(schema_version)
        return _SchemaState(database.name, version, len(migrations()))


async def _sqlite_path(uri: str) -> str:
    """Raises CallerError for a store that is no SQLite file."""
    from greenroom.sessions.from_uri import session_service_from_uri
    from greenroom.sessions.sqlite import SqliteSessionService

    service = session_service_from_uri(uri)
    async with data_folder.closing(service):
        if isinstance(service, SqliteSessionService):
            return service.path
    raise CallerError(
        "Only SQLite files are compacted. PostgreSQL reuses the space of deleted rows by itself; to give it back to "
        "the operating system, run VACUUM FULL there"
    )


async def _compact(path: str) -> None:
    """Compacts a file. Holds the lock of its server, so that none starts on the file in the meantime."""
    from greenroom.runs.sqlite_store import SqliteRunStore
    from greenroom.sqlite.compact import compact

    runs = SqliteRunStore(path)
    async with data_folder.closing(runs):
        try:
            await runs.lock(wait_seconds=0)
        except StoreInUse as error:
            holder = "" if error.process_id is None else f" (process id {error.process_id})"
            raise CallerError(f"A server is using {path}{holder}. Stop it, compact, and start it again") from error
        compact(path)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
