from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from greenroom.credentials.in_memory import InMemoryCredentialService
from greenroom.credentials.service import BaseCredentialService
from greenroom.credentials.sql import PostgresCredentialService, SqliteCredentialService
from greenroom.testing.contracts.credential_service import *  # noqa: F403


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def credential_service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BaseCredentialService]:
    if request.param == "memory":
        service = InMemoryCredentialService()
    elif request.param == "sqlite":
        service = SqliteCredentialService(tmp_path / "credentials.db")
    else:
        service = PostgresCredentialService(request.getfixturevalue("postgres_uri"))
    yield service
    await service.close()


async def test_credentials_are_there_after_a_restart(tmp_path: Path) -> None:
    from greenroom.testing.contracts.credential_service import _ANN, _token  # pyright: ignore[reportPrivateUsage]

    service = SqliteCredentialService(tmp_path / "credentials.db")
    await service.save_credential(**_ANN, credential_key="k", credential=_token("t"))
    await service.close()
    again = SqliteCredentialService(tmp_path / "credentials.db")
    assert await again.load_credential(**_ANN, credential_key="k") == _token("t")
    await again.close()
