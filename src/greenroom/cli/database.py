"""`greenroom db`: the schema of a server's database."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cyclopts import App

from greenroom.cli import data_folder
from greenroom.cli.server_flags import AgentsDir
from greenroom.errors import CallerError

app = App(name="db", help="The schema of a server's database. `serve` applies migrations by itself.")


@app.command
def status(agents_dir: AgentsDir = Path(), /, *, session_service: str | None = None) -> None:
    """Show the schema version of the database, and the one that this release uses.

        greenroom db status --session-service postgresql://user:password@host/database

    Parameters
    ----------
    agents_dir
        The folder that is served.
    session_service
        The store's URI; else the folder's own database.
    """
    name, version, known = asyncio.run(_schema(_uri(agents_dir, session_service), upgrade=False))
    state = "up to date" if version == known else "newer than this release" if version > known else "to be upgraded"
    print(f"{name}: schema {version}, this release uses {known}: {state}")


@app.command
def upgrade(agents_dir: AgentsDir = Path(), /, *, session_service: str | None = None) -> None:
    """Apply the migrations that the database lacks, as a starting server does; any number of these may do so at once.

    Parameters
    ----------
    agents_dir
        The folder that is served.
    session_service
        The store's URI; else the folder's own database.
    """
    name, version, _ = asyncio.run(_schema(_uri(agents_dir, session_service), upgrade=True))
    print(f"{name}: schema {version}")


def _uri(agents_dir: Path, uri: str | None) -> str:
    """Raises CallerError for a folder that isn't there, as when a store's URI stands in its place."""
    if uri is not None:
        return uri
    if not agents_dir.expanduser().is_dir():
        # Not named: the URI may hold a password.
        raise CallerError("The folder DIR doesn't exist; a store's URI follows --session-service")
    return data_folder.session_service_uri(agents_dir)


async def _schema(uri: str, *, upgrade: bool) -> tuple[str, int, int]:
    """The database's name, its schema version, and this release's."""
    from greenroom.sessions.from_uri import session_service_from_uri
    from greenroom.sessions.sqlite import SqliteSessionService

    service = session_service_from_uri(uri)
    async with data_folder.closing(service):
        if isinstance(service, SqliteSessionService):
            return service.path, *await _sqlite_schema(service.path, upgrade=upgrade)
        if uri.startswith("postgres"):
            return await _postgres_schema(uri, upgrade=upgrade)
    raise CallerError("A store in memory has no schema; name a database with --session-service")


async def _sqlite_schema(path: str, *, upgrade: bool) -> tuple[int, int]:
    from greenroom.sqlite.database import Database
    from greenroom.sqlite.migrate import latest_version, schema_version

    if upgrade:
        database = Database.open(path)
        await database.fetch("SELECT 1")
        await database.close()
    return schema_version(path), latest_version()


async def _postgres_schema(uri: str, *, upgrade: bool) -> tuple[str, int, int]:
    from greenroom.postgres.database import Database
    from greenroom.postgres.migrate import migrations, schema_version

    database = Database.open(uri)
    database.is_prepared = not upgrade
    async with data_folder.closing(database):
        return database.name, await database.read(schema_version), len(migrations())
