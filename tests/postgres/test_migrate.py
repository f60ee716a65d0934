"""Schemas of SQLite files and PostgreSQL databases: made by many at once, and newer than the release."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from importlib import resources
from pathlib import Path

import pytest

from greenroom.errors import StorageError
from greenroom.postgres import migrate as postgres_migrate
from greenroom.postgres.connection import connect
from greenroom.records.event import Event
from greenroom.sessions.from_uri import session_service_from_uri
from greenroom.sqlite import migrate as sqlite_migrate

STARTING = 8

SetVersion = Callable[[int], Awaitable[None]]


def test_numbers_follow_one_another() -> None:
    names = sorted(file.name for file in (resources.files("greenroom.postgres") / "migrations").iterdir())
    numbers = [int(name.split("_")[0]) for name in names if name.endswith(".sql")]
    assert numbers == list(range(1, len(numbers) + 1)), names


async def test_replicas_that_start_together_migrate_postgresql_once(empty_postgres_uri: str) -> None:
    connections = await asyncio.gather(*(connect(empty_postgres_uri) for _ in range(STARTING)))
    await asyncio.gather(*(postgres_migrate.prepare(connection) for connection in connections))
    versions = await connections[0].fetch("SELECT version FROM greenroom_schema")
    assert [version for (version,) in versions] == [len(postgres_migrate.migrations())]
    await asyncio.gather(*(connection.close() for connection in connections))


async def test_processes_that_start_together_migrate_a_file_once(tmp_path: Path) -> None:
    path = str(tmp_path / "x.db")

    def open_file() -> int:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=20)) as connection:
            sqlite_migrate.prepare(connection, patience_seconds=20)
            return connection.execute("SELECT count(*) FROM session_listing").fetchone()[0]

    assert await asyncio.gather(*(asyncio.to_thread(open_file) for _ in range(STARTING))) == [1] * STARTING
    assert sqlite_migrate.schema_version(path) == sqlite_migrate.latest_version()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, int, SetVersion]:
    """A URI, this release's schema version, and a function that sets the database's."""
    if request.param == "sqlite":
        path = tmp_path / "x.db"

        async def set_user_version(version: int) -> None:
            with closing(sqlite3.connect(path)) as connection:
                connection.execute(f"PRAGMA user_version = {version}")

        return f"sqlite:///{path}", sqlite_migrate.latest_version(), set_user_version
    uri: str = request.getfixturevalue("empty_postgres_uri")

    async def set_version(version: int) -> None:
        connection = await connect(uri)
        await connection.execute("UPDATE greenroom_schema SET version = $1", version)
        await connection.close()

    return uri, len(postgres_migrate.migrations()), set_version


async def test_only_a_database_of_the_next_release_is_used(database: tuple[str, int, SetVersion]) -> None:
    uri, known, set_version = database
    service = session_service_from_uri(uri)
    await service.create_session(app_name="a", user_id="u", session_id="s")
    await service.close()

    await set_version(known + 1)
    service = session_service_from_uri(uri)
    session = await service.get_session(app_name="a", user_id="u", session_id="s")
    assert session is not None
    await service.append(session, Event(author="u"))
    await service.close()

    await set_version(known + 2)
    service = session_service_from_uri(uri)
    with pytest.raises(StorageError) as caught:
        await service.get_session(app_name="a", user_id="u", session_id="s")
    assert f"newer release of greenroom (schema {known + 2}; this release knows {known})" in caught.value.detail
    await service.close()
