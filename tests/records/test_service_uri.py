"""Packages add stores by their scheme; no error shows a password."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from greenroom.artifacts.from_uri import artifact_service_from_uri
from greenroom.errors import InvalidRequest
from greenroom.memory.from_uri import memory_service_from_uri
from greenroom.records.service_uri import without_password
from greenroom.sessions.from_uri import session_service_from_uri

_PACKAGE = """
class Store:
    def __init__(self, uri):
        self.uri = uri
"""

BY_KIND: dict[str, Callable[[str], object]] = {
    "session": session_service_from_uri,
    "artifact": artifact_service_from_uri,
    "memory": memory_service_from_uri,
}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with stores for `tape://`."""
    (tmp_path / "tape_stores.py").write_text(_PACKAGE)
    info = tmp_path / "tape_stores-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: tape-stores\nVersion: 1.0\n")
    groups = [f"[greenroom.{kind}_services]\ntape = tape_stores:Store\n" for kind in BY_KIND]
    (info / "entry_points.txt").write_text("\n".join(groups))
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("kind", BY_KIND)
def test_a_package_adds_a_scheme(kind: str) -> None:
    store = BY_KIND[kind]("tape://robot/7")
    assert getattr(store, "uri", None) == "tape://robot/7"
    with pytest.raises(InvalidRequest) as caught:
        BY_KIND[kind]("disk://x")
    assert "memory://" in caught.value.detail
    assert caught.value.detail.endswith(", tape://")


@pytest.mark.parametrize("kind", BY_KIND)
@pytest.mark.parametrize("uri", ["redis://ann:s3cr3t@host/0", "redis://host/0?password=s3cr3t&x=1"])
def test_an_error_shows_no_password(kind: str, uri: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        BY_KIND[kind](uri)
    assert "s3cr3t" not in str(caught.value)
    assert "redis://" in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("postgresql://ann:pw@host/db", "postgresql://ann:********@host/db"),
        ("postgresql://ann:p@w@host/db", "postgresql://ann:********@host/db"),
        ("postgresql:///db?host=/run&password=pw", "postgresql:///db?host=/run&password=********"),
        ("s3://bucket/x?aws_secret_access_key=k&region=eu", "s3://bucket/x?aws_secret_access_key=********&region=eu"),
        ("sqlite:////srv/a:b@c.db", "sqlite:////srv/a:b@c.db"),
    ],
)
def test_secrets_of_uris_are_replaced(uri: str, shown: str) -> None:
    assert without_password(uri) == shown
