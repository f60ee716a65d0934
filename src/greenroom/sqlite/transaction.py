"""Runs coroutine functions written for both databases on SQLite, where they never wait."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")


class Transaction:
    """A transaction with PostgreSQL's interface, for functions that use both databases. No call waits."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self.cursor = cursor

    async def fetch(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Rows of a query, or of RETURNING."""
        return self.cursor.execute(statement, arguments).fetchall()


def completed(coroutine: Coroutine[Any, Any, T]) -> T:
    """Returns the result of a coroutine that never waits.

    One step runs it to its end, since the function that it awaits (`Transaction.fetch`) doesn't wait either. So one
    function serves asyncpg, which waits, and SQLite, whose thread has no event loop.
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the coroutine waits")
