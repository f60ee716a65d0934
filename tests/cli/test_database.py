"""`greenroom db` shows and upgrades schemas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from greenroom.postgres.migrate import migrations
from greenroom.sqlite.migrate import latest_version


def _db(*arguments: str) -> str:
    command = [sys.executable, "-m", "greenroom", "db", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.replace("\n", " ")


def test_a_sqlite_file_is_upgraded(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'x.db'}"
    assert f"schema 0, this release uses {latest_version()}" in _db("status", "--session-service", uri)
    assert not (tmp_path / "x.db").exists()
    _db("upgrade", "--session-service", uri)
    assert "up to date" in _db("status", "--session-service", uri)


def test_a_postgresql_database_is_upgraded(empty_postgres_uri: str) -> None:
    uri = empty_postgres_uri.replace("postgres@", "postgres:secret@")
    shown = _db("status", "--session-service", uri)
    assert f"schema 0, this release uses {len(migrations())}" in shown
    assert "secret" not in shown
    _db("upgrade", "--session-service", uri)
    assert "up to date" in _db("status", "--session-service", uri)


@pytest.mark.parametrize("command", ["status", "upgrade"])
def test_a_folder_that_is_not_there_is_refused_and_not_made(command: str, tmp_path: Path) -> None:
    for given in ("missing", "postgresql://ada:secret@host/database"):
        arguments = [sys.executable, "-m", "greenroom", "db", command, given]
        refused = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True)
        assert refused.returncode == 1
        assert "a store's URI follows --session-service" in " ".join(refused.stderr.split())
        assert "secret" not in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_store_in_memory_has_no_schema() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        _db("status", "--session-service", "memory://")
