"""Usage in a PostgreSQL database, the sessions' own."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from greenroom.postgres.connection import Connection
from greenroom.postgres.database import Database, numbered
from greenroom.usage.store import Refusal, Statement, UsageStore, retrieve

T = TypeVar("T")

_RESERVATIONS_LOCK = 0x67726E75
"""Key of the advisory lock that a transaction holds from the check of a limit to the reservation."""


class PostgresUsageStore(UsageStore):
    """Stores usage in the database of the sessions, whose service closes it."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._newest: Future[Any] | None = None

    def write(self, statements: Sequence[Statement]) -> Future[None]:
        async def apply(connection: Connection) -> None:
            for statement, arguments in statements:
                await connection.execute(numbered(statement), *arguments)

        return self._submit(apply)

    async def write_checked(
        self, queries: Sequence[Statement], check: Callable[[list[Any]], Refusal | None], statement: Statement
    ) -> Refusal | None:
        async def apply(connection: Connection) -> Refusal | None:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _RESERVATIONS_LOCK)
            refusal = check([await connection.fetchrow(numbered(query), *values) for query, values in queries])
            if refusal is None:
                await connection.execute(numbered(statement[0]), *statement[1])
            return refusal

        return await self._submit(apply)

    async def fetch(self, query: str, *arguments: Any) -> Sequence[Any]:
        if self._newest is not None and not self._newest.done():
            await asyncio.wait([self._newest])  # writes are carried out in order
        return await self._database.fetch(query, *arguments)

    def _submit(self, apply: Callable[[Connection], Awaitable[T]]) -> Future[T]:
        self._newest = future = self._database.submit(apply)
        future.add_done_callback(retrieve)
        return future
