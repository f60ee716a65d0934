"""Feedback in PostgreSQL, whose writes are those of the session's owner."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from greenroom.feedback.sql import SqlFeedbackStore, Transaction
from greenroom.postgres.connection import Connection
from greenroom.postgres.database import Database
from greenroom.postgres.database import Transaction as PostgresTransaction
from greenroom.postgres.ownership import check
from greenroom.records.session import SessionKey


class PostgresFeedbackStore(SqlFeedbackStore):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._postgres = database

    async def _write(self, key: SessionKey, write: Callable[[Transaction], Coroutine[Any, Any, None]]) -> None:
        owned = self._postgres.owned_shards
        fence = owned.fence(key, owned.epochs)

        async def apply(connection: Connection) -> None:
            await check(fence, connection)
            await write(PostgresTransaction(connection))

        await self._postgres.submit(apply)
