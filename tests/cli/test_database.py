"""`greenroom db` shows and upgrades schemas, and compacts SQLite files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from greenroom.postgres.migrate import migrations
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.runs.sqlite_store import SqliteRunStore
from greenroom.sessions.sqlite import SqliteSessionService
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
        assert "Use --session-service for the URI of a store" in " ".join(refused.stderr.split())
        assert "secret" not in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_store_in_memory_has_no_schema() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        _db("status", "--session-service", "memory://")


async def _delete_all_but_one_session(path: Path) -> None:
    service = SqliteSessionService(path)
    for number in range(20):
        session = await service.create_session(app_name="a", user_id="u", session_id=str(number))
        text = Part(text="word " * 10_000)
        await service.append(session, Event(author="agent", content=Content(parts=[text])))
    for number in range(1, 20):
        await service.delete_session(app_name="a", user_id="u", session_id=str(number))
    await service.close()


async def test_a_sqlite_file_is_compacted_when_no_server_uses_it(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await _delete_all_but_one_session(path)
    before = path.stat().st_size
    uri = f"sqlite:///{path}"
    assert "hold no data; `greenroom db compact` frees them" in _db("status", "--session-service", uri)

    server = SqliteRunStore(path)
    await server.lock(wait_seconds=0)
    with pytest.raises(subprocess.CalledProcessError) as refused:
        _db("compact", "--session-service", uri)
    await server.close()
    assert "A server is using" in refused.value.stderr
    assert path.stat().st_size == before

    shown = _db("compact", "--session-service", uri)
    assert f"{before / 1e6:.1f} MB before" in shown
    assert path.stat().st_size < before / 3
    assert "hold no data" not in _db("status", "--session-service", uri)


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("sqlite:///{folder}/missing.db", "There is no database at"),
        ("postgresql://ada:secret@host/database", "VACUUM FULL"),
        ("memory://", "Only SQLite files are compacted"),
    ],
)
def test_only_an_existing_sqlite_file_is_compacted(uri: str, reason: str, tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "greenroom", "db", "compact", "--session-service", uri.format(folder=tmp_path)]
    refused = subprocess.run(arguments, capture_output=True, text=True)
    assert refused.returncode == 1
    assert reason in " ".join(refused.stderr.split())
    assert "secret" not in refused.stderr
    assert list(tmp_path.iterdir()) == []
