"""Encrypted memories keep the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from greenroom.encryption.local_keys import LocalKeys
from greenroom.memory.from_uri import memory_service_from_uri
from greenroom.memory.service import BaseMemoryService
from greenroom.testing.contracts.memory_service import *  # noqa: F403


@pytest.fixture(params=["sqlite", "postgres"])
async def memory_service(
    request: pytest.FixtureRequest, tmp_path: Path, keys: LocalKeys
) -> AsyncIterator[BaseMemoryService]:
    in_file = request.param == "sqlite"
    uri = f"sqlite:///{tmp_path}/memory.db" if in_file else request.getfixturevalue("postgres_uri")
    service = memory_service_from_uri(uri, keys=keys)
    yield service
    await service.close()
