"""Counts the work of SQLite, which is the same in each run of a test, unlike its time."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass

import pytest

from greenroom.sqlite.database import Database

_INSTRUCTIONS_PER_CALL = 10


@dataclass(eq=False)
class Statement:
    """One that was carried out. text: with its parameters' values.

    instructions: of SQLite's virtual machine, a few for each row, or entry of an index, that the statement reads.
    """

    text: str
    instructions: int = 0


class SqliteWork:
    """Of all connections that greenroom opened since `counting` began."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []

    @property
    def instructions(self) -> int:
        return sum(one.instructions for one in self.statements)

    def reset(self) -> None:
        self.statements = []

    def watch(self, connection: sqlite3.Connection) -> None:
        current = Statement("")

        def begin(text: str) -> None:
            nonlocal current
            current = Statement(text)
            self.statements.append(current)

        def count() -> int:
            current.instructions += _INSTRUCTIONS_PER_CALL
            return 0  # the statement continues

        connection.set_trace_callback(begin)
        connection.set_progress_handler(count, _INSTRUCTIONS_PER_CALL)


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


def scans(connection: sqlite3.Connection, statements: Iterable[Statement], tables: Sequence[str]) -> list[str]:
    """The steps of the statements' plans that read one of these tables, or an index of it, from end to end."""
    found: list[str] = []
    # SQLite writes an infinite parameter in a way that it can't read.
    for text in {one.text.replace("-Inf", "-9e999") for one in statements}:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {text}").fetchall()
        steps = [step for *_, step in plan if any(f"{step} ".startswith(f"SCAN {table} ") for table in tables)]
        found += [f"{step}: {text}" for step in steps]
    return found
