"""Schemas of SQLite files and PostgreSQL databases: made by many at once, and newer than the release."""

from __future__ import annotations

import asyncio
import re
import sqlite3
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


async def test_only_a_file_of_the_next_release_is_used(tmp_path: Path) -> None:
    known = sqlite_migrate.latest_version()
    path = tmp_path / "x.db"
    uri = f"sqlite:///{path}"
    await _write_to(uri, create=True)

    _set_user_version(path, known + 1)
    await _write_to(uri)

    _set_user_version(path, known + 2)
    with pytest.raises(StorageError) as caught:
        await _write_to(uri)
    assert f"newer release of greenroom (schema {known + 2}; this release knows {known})" in caught.value.detail


def _set_user_version(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")


async def test_a_newer_postgresql_database_is_used_if_its_tables_stand_it(empty_postgres_uri: str) -> None:
    known = len(postgres_migrate.migrations())
    await _write_to(empty_postgres_uri, create=True)

    await _set_versions(empty_postgres_uri, known + 3, oldest=known)
    await _write_to(empty_postgres_uri)

    await _set_versions(empty_postgres_uri, known + 3, oldest=known + 1)
    with pytest.raises(StorageError) as caught:
        await _write_to(empty_postgres_uri)
    assert f"needs one of schema {known + 1} or later; this release has schema {known}" in caught.value.detail


async def _set_versions(uri: str, version: int, *, oldest: int) -> None:
    connection = await connect(uri)
    await connection.execute("UPDATE greenroom_schema SET version = $1, oldest_server = $2", version, oldest)
    await connection.close()


async def _write_to(uri: str, *, create: bool = False) -> None:
    service = session_service_from_uri(uri)
    try:
        if create:
            await service.create_session(app_name="a", user_id="u", session_id="s")
        session = await service.get_session(app_name="a", user_id="u", session_id="s")
        assert session is not None
        await service.append(session, Event(author="u"))
    finally:
        await service.close()


_FIRST_SHARED_VERSION = 11
"""From here on, servers of two releases can share a database."""

_REMOVES = re.compile(r"\b(DROP|RENAME|TYPE|NOT NULL(?! DEFAULT))\b", re.IGNORECASE)


def test_migrations_that_remove_or_require_something_refuse_the_servers_before_it() -> None:
    for number, script in enumerate(postgres_migrate.migrations(), start=1):
        if number <= _FIRST_SHARED_VERSION:
            continue
        changes = [line for line in script.splitlines() if not line.startswith("--")]
        altering = re.findall(r"ALTER TABLE[^;]*|DROP [^;]*|ALTER INDEX[^;]*", "\n".join(changes), re.IGNORECASE)
        if any(_REMOVES.search(statement) for statement in altering):
            assert "oldest_server" in script, f"migration {number}"
