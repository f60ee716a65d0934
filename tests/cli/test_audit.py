"""`greenroom audit`: make a key, export the trail, verify it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from greenroom.audit.signing import HeadSigner
from greenroom.cli.commands import app
from greenroom.errors import CallerError
from greenroom.records.audit import new_entry
from greenroom.runs.sqlite_store import SqliteRunStore


def run(*arguments: str) -> int:
    """Returns the exit code."""
    try:
        app(list(arguments), exit_on_error=False)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An agents folder whose server keeps a trail with some entries."""
    monkeypatch.chdir(tmp_path)
    assert run("audit", "keygen", "audit.pem") == 0
    (tmp_path / "greenroom.toml").write_text('[audit]\nkey = "audit.pem"\n')

    async def write() -> None:
        store = SqliteRunStore(tmp_path / ".greenroom" / "greenroom.db")
        signer = HeadSigner.load("audit.pem")
        await store.audit.append([new_entry("server.started")], signer=signer)
        await store.audit.append([new_entry("run.started", subject="ann")])
        await store.audit.sign(signer)
        await store.close()

    asyncio.run(write())
    return tmp_path


def test_exported_trail_verifies_until_a_line_is_changed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (folder / "audit.pem").stat().st_mode & 0o777 == 0o600
    assert run("audit", "export", "trail.jsonl", ".") == 0
    assert run("audit", "verify", "trail.jsonl", "--public-key", "audit.pem.pub") == 0
    assert "4 entries in 1 chains are as they were written" in capsys.readouterr().out

    trail = folder / "trail.jsonl"
    trail.write_bytes(trail.read_bytes().replace(b'"ann"', b'"eve"'))
    assert run("audit", "verify", "trail.jsonl", "--public-key", "audit.pem.pub") == 1
    assert "line 3: was changed" in capsys.readouterr().out


def test_database_verifies_and_a_kept_head_shows_what_was_removed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = str(folder / ".greenroom" / "greenroom.db")
    assert run("audit", "verify", database, "--public-key", "audit.pem.pub") == 0
    assert run("audit", "export", "trail.jsonl", ".") == 0
    lines = (folder / "trail.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "head.json").write_bytes(lines[-1])
    (folder / "short.jsonl").write_bytes(b"".join(lines[:2]))
    assert run("audit", "verify", "short.jsonl", "--public-key", "audit.pem.pub") == 0
    assert run("audit", "verify", "short.jsonl", "--public-key", "audit.pem.pub", "--head", "head.json") == 1
    assert "entry 4 of chain 1, which is missing" in capsys.readouterr().out


def test_cut_trail_verifies_by_itself_and_after_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = str(folder / ".greenroom" / "greenroom.db")
    assert run("keys", "create", ".", "--user", "ann") == 0
    capsys.readouterr()
    assert run("audit", "cut", "old.jsonl", ".", "--before", "2999-01-01") == 0
    assert "Moved 5 entries to old.jsonl" in capsys.readouterr().err
    assert (folder / "old.jsonl").stat().st_mode & 0o777 == 0o600

    assert run("audit", "verify", database, "--public-key", "audit.pem.pub") == 0
    assert "complete from 20" in capsys.readouterr().out
    assert run("audit", "verify", "old.jsonl", database, "--public-key", "audit.pem.pub") == 0
    out = capsys.readouterr().out
    assert "8 entries in 1 chains are as they were written" in out
    assert "complete" not in out

    old = folder / "old.jsonl"
    old.write_bytes(old.read_bytes().replace(b'"ann"', b'"eve"'))
    assert run("audit", "verify", "old.jsonl", database, "--public-key", "audit.pem.pub") == 1
    assert "old.jsonl, line 3: was changed" in capsys.readouterr().out


def test_wrong_cuts_are_refused(folder: Path) -> None:
    with pytest.raises(CallerError, match="no signed head before this time"):
        run("audit", "cut", "old.jsonl", ".", "--before", "2020-01-01T00:00:00")
    (folder / "old.jsonl").write_text("mine")
    with pytest.raises(CallerError, match="File exists"):
        run("audit", "cut", "old.jsonl", ".", "--before", "2999-01-01")
    assert (folder / "old.jsonl").read_text() == "mine"
    (folder / "greenroom.toml").write_text("")
    with pytest.raises(CallerError, match="keeps no audit trail"):
        run("audit", "cut", "new.jsonl", ".", "--before", "2999-01-01")


def test_keys_are_recorded_when_they_are_created_and_revoked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("keys", "create", ".", "--user", "ann") == 0
    key = capsys.readouterr().out.strip()
    assert run("keys", "revoke", key, ".") == 0
    assert run("audit", "export", "trail.jsonl", ".") == 0
    assert run("audit", "verify", "trail.jsonl", "--public-key", "audit.pem.pub") == 0
    trail = (folder / "trail.jsonl").read_text()
    assert '"action":"key.created"' in trail
    assert '"action":"key.revoked"' in trail
    assert key not in trail


def test_key_is_not_overwritten(folder: Path) -> None:
    with pytest.raises(Exception, match="can't be written"):
        run("audit", "keygen", "audit.pem")
