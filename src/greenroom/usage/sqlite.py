"""Usage in a SQLite file, the sessions' own."""

from __future__ import annotations

import sqlite3
from asyncio import Future
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from greenroom.sqlite.database import Database
from greenroom.usage.store import Account, Refusal, Statement, UsageStore, retrieve

T = TypeVar("T")


class SqliteUsageStore(UsageStore):
    """Stores usage in the file of the sessions, whose service closes it."""

    def __init__(self, database: Database | None) -> None:
        """Creates the store. `database` is None for a subclass that keeps its own connection."""
        super().__init__()
        self._database = database

    def write(self, statements: Sequence[Statement]) -> Future[None]:
        def apply(cursor: sqlite3.Cursor) -> None:
            for statement, arguments in statements:
                cursor.execute(statement, arguments)

        return self._submit(apply)

    async def write_checked(
        self,
        accounts: Sequence[Account],
        queries: Sequence[Statement],
        check: Callable[[list[Any]], Refusal | None],
        statement: Statement,
    ) -> Refusal | None:
        def apply(cursor: sqlite3.Cursor) -> Refusal | None:
            refusal = check([cursor.execute(query, arguments).fetchone() for query, arguments in queries])
            if refusal is None:
                cursor.execute(*statement)
            return refusal

        return await self._submit(apply)

    async def fetch(self, query: str, *arguments: Any) -> Sequence[Any]:
        assert self._database is not None
        await self._database.refresh()  # the usage of a run that has just ended may still be queued
        return await self._database.fetch(query, *arguments)

    def _submit(self, apply: Callable[[sqlite3.Cursor], T]) -> Future[T]:
        assert self._database is not None
        future = self._database.submit(apply)
        future.add_done_callback(retrieve)
        return future
