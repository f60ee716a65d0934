"""Usage that is forgotten with the process."""

from __future__ import annotations

import asyncio
import itertools
import operator
import sqlite3
import weakref
from asyncio import Future
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any, TypeVar

from greenroom.usage.sqlite import SqliteUsageStore
from greenroom.usage.store import Statement

T = TypeVar("T")

_SCHEMA = ("sqlite/migrations/0009_model_usage.sql", "sqlite/migrations/0028_budgets.sql")


_BATCH = 100


class InMemoryUsageStore(SqliteUsageStore):
    """The same statements on a database in memory, which executes them in batches and before each query."""

    def __init__(self, *, max_rows: int = 100_000) -> None:
        """Keeps up to `max_rows` rows, one for each run, model and day; the oldest are dropped."""
        super().__init__(None)
        self._max_rows = max_rows
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._connection.close)  # Python 3.13 warns of connections that are left open
        for file in _SCHEMA:
            self._connection.executescript((resources.files("greenroom") / file).read_text("utf-8"))
        self._cursor = self._connection.cursor()
        self._queued: list[Statement] = []

    def write(self, statements: Sequence[Statement]) -> Future[None]:
        self._queued += statements
        if len(self._queued) >= _BATCH:
            self._execute_queued()
        done: Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def _execute_queued(self) -> None:
        queued = self._queued
        self._queued = []
        self._cursor.execute("BEGIN")
        for statement, group in itertools.groupby(queued, key=operator.itemgetter(0)):
            self._cursor.executemany(statement, [arguments for _, arguments in group])
        newest = self._cursor.execute("SELECT MAX(rowid) FROM model_usage").fetchone()[0] or 0
        self._cursor.execute("DELETE FROM model_usage WHERE rowid <= ?", (newest - self._max_rows,))
        self._cursor.execute("COMMIT")

    def _submit(self, apply: Callable[[sqlite3.Cursor], T]) -> Future[T]:
        self._execute_queued()
        done: Future[T] = asyncio.get_running_loop().create_future()
        done.set_result(apply(self._cursor))
        return done

    async def fetch(self, query: str, *arguments: Any) -> Sequence[Any]:
        self._execute_queued()
        return self._cursor.execute(query, arguments).fetchall()
