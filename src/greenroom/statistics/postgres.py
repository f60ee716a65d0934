"""Statistics in PostgreSQL, which several servers add to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from greenroom.statistics.rollups import RowKey, Rows, read_sum, write_sum
from greenroom.statistics.sql import SqlStatisticsStore, Transaction

if TYPE_CHECKING:
    from greenroom.postgres.database import Database

_LOCK = 0x73746174
"""The advisory lock of the transaction that changes sums."""

_TRY_LOCK = f"SELECT pg_try_advisory_xact_lock({_LOCK})"
_READ_ROWS = """
    SELECT step, kind, time, app_name, name, data FROM statistics
    JOIN unnest(?1::int[], ?2::text[], ?3::bigint[], ?4::text[], ?5::text[]) AS k (step, kind, time, app_name, name)
    USING (step, kind, time, app_name, name)
"""
_WRITE_ROWS = """
    INSERT INTO statistics (step, kind, time, app_name, name, data)
    SELECT * FROM unnest(?1::int[], ?2::text[], ?3::bigint[], ?4::text[], ?5::text[], ?6::text[])
    ON CONFLICT (step, kind, time, app_name, name) DO UPDATE SET data = excluded.data
"""


class PostgresStatisticsStore(SqlStatisticsStore):
    def __init__(self, database: Database, *, wait_for_writes: Callable[[], Awaitable[None]]) -> None:
        super().__init__(database, wait_for_writes=wait_for_writes)

    async def _fold(self, transaction: Transaction) -> int:
        [(is_locked,)] = await transaction.fetch(_TRY_LOCK)
        return await super()._fold(transaction) if is_locked else 0

    async def _add(self, transaction: Transaction, rows: Rows) -> None:
        columns = list(map(list, zip(*sorted(rows), strict=True)))
        for *key, data in await transaction.fetch(_READ_ROWS, *columns):
            rows[RowKey(*key)].add(read_sum(data))
        written = [write_sum(rows[key]) for key in sorted(rows)]
        await transaction.fetch(_WRITE_ROWS, *columns, written)
