"""Encrypted run records keep the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from greenroom.encryption.local_keys import LocalKeys
from greenroom.postgres.database import Database as PostgresDatabase
from greenroom.runs.postgres_store import PostgresRunStore
from greenroom.runs.sqlite_store import SqliteRunStore
from greenroom.runs.store import RunStore
from greenroom.sqlite.database import Database
from tests.runs.store_contract import *  # noqa: F403


@pytest.fixture(params=["sqlite", "postgres"])
async def run_store(request: pytest.FixtureRequest, tmp_path: Path, keys: LocalKeys) -> AsyncIterator[RunStore]:
    if request.param == "sqlite":
        store: RunStore = SqliteRunStore(tmp_path / "runs.db")
        database: Database | PostgresDatabase = Database.open(tmp_path / "runs.db")
    else:
        uri = request.getfixturevalue("postgres_uri")
        store = PostgresRunStore(uri)
        database = PostgresDatabase.open(uri)
    database.encrypt(keys)
    yield store
    await store.close()
    await database.close()
