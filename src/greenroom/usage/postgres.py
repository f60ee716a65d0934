"""Usage in a PostgreSQL database, the sessions' own."""

from __future__ import annotations

import asyncio
import hashlib
from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from greenroom.postgres.connection import LEASE_SECONDS, Connection
from greenroom.postgres.database import Database
from greenroom.postgres.numbered import numbered
from greenroom.usage.store import Account, Refusal, Statement, UsageStore, retrieve

T = TypeVar("T")

_ACCOUNT_LOCKS = 0x67726E75
"""First key of the advisory locks that a transaction holds from the check of limits to the reservation. The second one
is of the account."""

_LOCK = f"""
    SELECT set_config('idle_in_transaction_session_timeout', '{LEASE_SECONDS}s', true),
        set_config('synchronous_commit', 'off', true), pg_advisory_xact_lock({_ACCOUNT_LOCKS}, lock)
    FROM unnest($1::int[]) AS lock
"""
"""A server that is paused here keeps others waiting for the lease at most. A reservation needs not outlast a crash of
PostgreSQL: what the call cost is stored when it ends. All lock in the same order."""


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
        self,
        accounts: Sequence[Account],
        queries: Sequence[Statement],
        check: Callable[[list[Any]], Refusal | None],
        statement: Statement,
    ) -> Refusal | None:
        locks = sorted({_lock_of(account) for account in accounts})

        async def apply(connection: Connection) -> Refusal | None:
            async with connection.transaction():
                await connection.fetch(_LOCK, locks)
                refusal = check([await connection.fetchrow(numbered(query), *values) for query, values in queries])
                if refusal is None:
                    await connection.execute(numbered(statement[0]), *statement[1])
                return refusal

        # Not on the writing connection: its other writes, and those of other servers, would wait for each other.
        await self._wait_for_writes()
        return await self._database.read(apply)

    async def fetch(self, query: str, *arguments: Any) -> Sequence[Any]:
        await self._wait_for_writes()
        return await self._database.fetch(query, *arguments)

    async def _wait_for_writes(self) -> None:
        if self._newest is not None and not self._newest.done():
            await asyncio.wait([self._newest])  # writes are carried out in order

    def _submit(self, apply: Callable[[Connection], Awaitable[T]]) -> Future[T]:
        self._newest = future = self._database.submit(apply)
        future.add_done_callback(retrieve)
        return future


def _lock_of(account: Account) -> int:
    name = "\0".join((account.per, *account.owner))
    return int.from_bytes(hashlib.sha256(name.encode(errors="surrogatepass")).digest()[:4], signed=True)
