"""Encrypted sessions in a SQLite file keep the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from greenroom.encryption.local_keys import LocalKeys
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.contracts.session_service import *  # noqa: F403


@pytest.fixture
async def session_service(tmp_path: Path, keys: LocalKeys) -> AsyncIterator[SqliteSessionService]:
    service = SqliteSessionService(tmp_path / "sessions.db", cache_bytes=0, keys=keys)
    yield service
    await service.close()
