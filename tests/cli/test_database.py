"""`greenroom db` shows and upgrades schemas, and compacts SQLite files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from greenroom.postgres.migrate import migrations
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.runs.sqlite_store import SqliteRunStore
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.sqlite.migrate import latest_version
from tests.cli.conftest import Cli


@pytest.fixture
def db(cli: Cli) -> Callable[..., str]:
    """Runs `greenroom db`, which must succeed, and returns its output."""

    def run(*arguments: str) -> str:
        done = cli("db", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_a_sqlite_file_is_upgraded(cli: Cli, db: Callable[..., str]) -> None:
    store = ("--session-service", "sqlite:///x.db")
    assert f"schema 0, this release uses {latest_version()}" in db("status", *store)
    assert not (cli.folder / "x.db").exists()
    assert cli.run_process("db", "upgrade", *store).returncode == 0
    assert "up to date" in db("status", *store)


def test_a_postgresql_database_is_upgraded(db: Callable[..., str], empty_postgres_uri: str) -> None:
    uri = empty_postgres_uri.replace("postgres@", "postgres:secret@")
    shown = db("status", "--session-service", uri)
    assert f"schema 0, this release uses {len(migrations())}" in shown
    assert "secret" not in shown
    db("upgrade", "--session-service", uri)
    assert "up to date" in db("status", "--session-service", uri)


@pytest.mark.parametrize("command", ["status", "upgrade"])
def test_a_missing_folder_is_refused_and_not_created(cli: Cli, command: str) -> None:
    for given in ("missing", "postgresql://ada:secret@host/database"):
        refused = cli("db", command, given)
        assert refused.returncode == 1
        assert "Use --session-service for the URI of a store" in refused.stderr
        assert "secret" not in refused.stderr
    assert [path.name for path in cli.folder.iterdir()] == ["agents"]


def test_a_store_in_memory_has_no_schema(cli: Cli) -> None:
    refused = cli("db", "status", "--session-service", "memory://")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "An in-memory store has no schema" in refused.stderr


async def _delete_all_but_one_session(path: Path) -> None:
    service = SqliteSessionService(path)
    for number in range(20):
        session = await service.create_session(app_name="a", user_id="u", session_id=str(number))
        text = Part(text="word " * 10_000)
        await service.append(session, Event(author="agent", content=Content(parts=[text])))
    for number in range(1, 20):
        await service.delete_session(app_name="a", user_id="u", session_id=str(number))
    await service.close()


async def test_a_sqlite_file_is_compacted_when_no_server_uses_it(cli: Cli, db: Callable[..., str]) -> None:
    path = cli.folder / "x.db"
    await _delete_all_but_one_session(path)
    before = path.stat().st_size
    store = ("--session-service", "sqlite:///x.db")
    assert "hold no data; `greenroom db compact` frees them" in db("status", *store)

    server = SqliteRunStore(path)
    await server.lock(wait_seconds=0)
    refused = cli.run_process("db", "compact", *store)
    await server.close()
    assert refused.returncode == 1
    assert "A server is using" in refused.stderr
    assert path.stat().st_size == before

    shown = db("compact", *store)
    assert f"{before / 1e6:.1f} MB before" in shown
    assert path.stat().st_size < before / 3
    assert "hold no data" not in db("status", *store)


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("sqlite:///missing.db", "There is no database at"),
        ("postgresql://ada:secret@host/database", "VACUUM FULL"),
        ("memory://", "Only SQLite files are compacted"),
    ],
)
def test_only_an_existing_sqlite_file_is_compacted(cli: Cli, uri: str, reason: str) -> None:
    refused = cli("db", "compact", "--session-service", uri)
    assert refused.returncode == 1
    assert reason in refused.stderr
    assert "secret" not in refused.stderr
    assert [path.name for path in cli.folder.iterdir()] == ["agents"]
