"""Migrates a database file to this release's schema."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from functools import cache
from importlib import resources
from pathlib import Path

from greenroom.errors import StorageError

APPLICATION_ID = 0x67726E72
"""'grnr' as the application id in the file's header: marks greenroom's SQLite files."""


@cache
def _migrations() -> tuple[tuple[str, ...], ...]:
    """The statements of each numbered file, in order; the file of number n leads to schema version n.

    Each must leave the tables usable by the release before it, which may use the file at the same time.
    """
    folder = resources.files("greenroom.sqlite") / "migrations"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return tuple(_statements(file.read_text("utf-8")) for file in files)


def latest_version() -> int:
    """The schema version of this release."""
    return len(_migrations())


def schema_version(path: str) -> int:
    """The schema version of a file; 0 if it doesn't exist."""
    if not Path(path).is_file():
        return 0
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


def _statements(script: str) -> tuple[str, ...]:
    out: list[str] = []
    pending = ""
    for piece in script.split(";"):
        pending += piece + ";"
        if sqlite3.complete_statement(pending):
            out.append(pending.strip())
            pending = ""
    return tuple(statement for statement in out if statement != ";")


def prepare(connection: sqlite3.Connection, *, patience_seconds: float) -> None:
    """Switch the file to WAL and apply the migrations that it lacks, all or none.

    Any number of processes may do this at once. Raises StorageError for a file that isn't ours, or that is newer than
    the next schema version.
    """
    _version(connection)
    _switch_to_wal(connection, time.monotonic() + patience_seconds)
    if _version(connection) >= len(_migrations()):
        return

    connection.execute("BEGIN IMMEDIATE")

    try:
        for number, statements in enumerate(_migrations()[_version(connection) :], start=_version(connection) + 1):
            for statement in statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _switch_to_wal(connection: sqlite3.Connection, until: float) -> None:
    """SQLite answers "locked" at once, without its usual wait, when two processes switch at the same time."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    latest = len(_migrations())
    if version > latest + 1:
        raise StorageError(
            "Opening the database",
            f"it was written by a newer release of greenroom (schema {version}; this release knows {latest})",
        )
    # In this order: another process may be making the file ours between the two checks, tables and mark at once.
    has_tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] > 0
    is_ours = connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
    if has_tables and not is_ours:
        raise StorageError("Opening the database", "the file is another program's SQLite database")
    return version
