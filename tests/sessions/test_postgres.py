"""Sessions in PostgreSQL keep the contract, hot or cold."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from greenroom.sessions.postgres import PostgresSessionService
from greenroom.testing.contracts.session_service import *  # noqa: F403


@pytest.fixture(params=["hot", "cold"])
async def session_service(request: pytest.FixtureRequest, postgres_uri: str) -> AsyncIterator[PostgresSessionService]:
    cache_bytes = 64 * 1024 * 1024 if request.param == "hot" else 0
    service = PostgresSessionService(postgres_uri, cache_bytes=cache_bytes)
    yield service
    await service.close()
