"""Encrypted sessions in PostgreSQL keep the contract of appends and reads."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from greenroom.encryption.local_keys import LocalKeys
from greenroom.sessions.postgres import PostgresSessionService
from greenroom.testing.contracts.session_service.appending import *  # noqa: F403
from greenroom.testing.contracts.session_service.forking import *  # noqa: F403


@pytest.fixture
async def session_service(postgres_uri: str, keys: LocalKeys) -> AsyncIterator[PostgresSessionService]:
    service = PostgresSessionService(postgres_uri, cache_bytes=0, keys=keys)
    yield service
    await service.close()
