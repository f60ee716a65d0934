"""Reads on the connections of the pool."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from greenroom.postgres.database import Database, Transaction


@pytest.fixture
async def database(postgres_uri: str) -> AsyncIterator[Database]:
    database = Database.open(postgres_uri, pool_size=1)
    yield database
    await database.close()


async def test_a_snapshot_follows_a_read_that_was_cancelled_before_its_query(database: Database) -> None:
    """A query that was prepared and not executed leaves its connection in a transaction."""

    async def prepare(connection: Any) -> None:
        await connection.prepare("SELECT count(*) FROM sessions WHERE id = $1")

    async def read(transaction: Transaction) -> list[Any]:
        return await transaction.fetch("SELECT 1")

    await database.read(prepare)
    assert await database.snapshot(read) == [(1,)]
    assert await database.snapshot(read) == [(1,)]
