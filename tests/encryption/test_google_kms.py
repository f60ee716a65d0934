"""Data keys that Cloud KMS wraps."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from greenroom.encryption.google_kms import GoogleKms
from greenroom.errors import KeyRefused
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.sqlite.database import Database
from tests.encryption.kms_server import KEY_NAME, KmsServer, kms_server

_SESSION: dict[str, Any] = {"app_name": "a", "user_id": "u", "session_id": "s"}


@pytest.fixture
def kms() -> Generator[KmsServer]:
    with kms_server() as server:
        yield server


def keys_of(kms: KmsServer, token: str = "token-1") -> GoogleKms:
    async def get_token() -> str:
        return token

    return GoogleKms(KEY_NAME, url=kms.url, token=get_token)


async def test_a_database_is_opened_with_few_calls(kms: KmsServer, tmp_path: Path) -> None:
    service = SqliteSessionService(tmp_path / "db", keys=keys_of(kms))
    for number in range(20):
        await service.create_session(app_name="a", user_id="u", session_id=f"s-{number}", state={"topic": "zebrafish"})
    await service.close()
    assert kms.calls == ["encrypt", "encrypt", "decrypt", "decrypt"]
    assert b"zebrafish" not in _bytes(tmp_path / "db")

    again = SqliteSessionService(tmp_path / "db", keys=keys_of(kms))
    found = await again.get_session(app_name="a", user_id="u", session_id="s-3")
    assert found is not None
    assert found.state == {"topic": "zebrafish"}
    await again.close()
    assert kms.calls[4:] == ["decrypt", "decrypt"]


async def test_data_keys_are_wrapped_with_the_new_primary_version(kms: KmsServer, tmp_path: Path) -> None:
    service = SqliteSessionService(tmp_path / "db", keys=keys_of(kms))
    await service.create_session(**_SESSION)
    kms.add_version()
    database = Database.open(tmp_path / "db")
    codec: Any = database.codec
    assert (await codec.ring.rewrap(), await codec.ring.rewrap()) == (2, 0)
    await database.close()
    await service.close()

    kms.disable(1)
    again = SqliteSessionService(tmp_path / "db", keys=keys_of(kms))
    assert await again.get_session(**_SESSION) is not None
    await again.close()


async def test_refusals_say_why(kms: KmsServer, tmp_path: Path) -> None:
    service = SqliteSessionService(tmp_path / "db", keys=keys_of(kms))
    await service.create_session(**_SESSION)
    await service.close()
    with pytest.raises(KeyRefused, match="UNAUTHENTICATED"):
        await keys_of(kms, token="another").current_key_id()

    kms.disable(1)
    again = SqliteSessionService(tmp_path / "db", keys=keys_of(kms))
    with pytest.raises(KeyRefused, match="cryptoKeyVersions/1 is not enabled"):
        await again.get_session(**_SESSION)
    await again.close()

    kms.url = "http://127.0.0.1:9"
    with pytest.raises(KeyRefused, match=r"can't be reached at http://127\.0\.0\.1:9"):
        await keys_of(kms).wrap(bytes(32))


def _bytes(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))
