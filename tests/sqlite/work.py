"""Counts the work of SQLite, which is the same in each run of a test, unlike its time."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator, Sequence

import pytest

from greenroom.sqlite.database import Database

_INSTRUCTIONS_PER_CALL = 10


class SqliteWork:
    """Of all connections that greenroom opened since `counting` began."""

    def __init__(self) -> None:
        self.instructions = 0
        """Of SQLite's virtual machine: a few for each row, or entry of an index, that a statement reads."""

        self.statements: list[str] = []
        """With their parameters' values."""

    def reset(self) -> None:
        self.instructions = 0
        self.statements = []

    def watch(self, connection: sqlite3.Connection) -> None:
        connection.set_progress_handler(self._count, _INSTRUCTIONS_PER_CALL)
        connection.set_trace_callback(self._record)

    def _record(self, statement: str) -> None:
        self.statements.append(statement)

    def _count(self) -> int:
        self.instructions += _INSTRUCTIONS_PER_CALL
        return 0  # the statement continues


@contextlib.contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Generator[SqliteWork]:
    """Counts from now on, in files that are opened from now on."""
    work = SqliteWork()
    connect = Database._connect

    def watched(database: Database) -> sqlite3.Connection:
        connection = connect(database)
        work.watch(connection)
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(Database, "_connect", watched)
        yield work


def scans(connection: sqlite3.Connection, statement: str, tables: Sequence[str]) -> list[str]:
    """The steps of a statement's plan that read one of these tables, or an index of it, from end to end."""
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
    return [step for *_, step in plan if any(f"{step} ".startswith(f"SCAN {table} ") for table in tables)]
