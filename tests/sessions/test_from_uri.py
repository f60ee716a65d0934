"""A session store is found by its address."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.errors import InvalidRequest
from greenroom.sessions.from_uri import session_service_from_uri
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.sessions.sqlite import SqliteSessionService


@pytest.mark.parametrize("uri", ["memory://", "MEMORY://", "sqlite://", "sqlite:///:memory:", "sqlite+aiosqlite://"])
def test_memory_is_named_in_several_ways(uri: str) -> None:
    assert isinstance(session_service_from_uri(uri), InMemorySessionService)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("sqlite:///x.db", "{cwd}/x.db"),
        ("sqlite:///./data/x.db", "{cwd}/data/x.db"),
        ("sqlite:////tmp/x.db", "/tmp/x.db"),
        ("sqlite+aiosqlite:////tmp/x.db?timeout=5", "/tmp/x.db"),
    ],
)
async def test_a_file_is_named_as_sqlalchemy_does(
    uri: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    service = session_service_from_uri(uri)
    assert isinstance(service, SqliteSessionService)
    assert service.path == expected.format(cwd=tmp_path)
    await service.close()


@pytest.mark.parametrize("uri", ["mysql://host/db", "x.db", "", "sqlite:x.db", "sqlite://x.db", "memory"])
def test_other_addresses_are_refused_with_those_that_are_known(uri: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        session_service_from_uri(uri)
    assert "sqlite:///" in caught.value.detail
