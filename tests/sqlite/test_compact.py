"""`compact` gives the space of deleted sessions and users back to the file system."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from greenroom.errors import StorageError
from greenroom.records import wire
from greenroom.records.content import Blob, Content, Part
from greenroom.records.event import Event
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.sqlite.compact import compact, free_bytes

_KILLED = """
import sys
from greenroom.sqlite.compact import compact

print("ready", flush=True)
compact(sys.argv[1])
"""


async def _fill(path: Path, *, users: Sequence[str], sessions: int = 10) -> None:
    service = SqliteSessionService(path)
    for user in users:
        for number in range(sessions):
            session = await service.create_session(app_name="a", user_id=user, session_id=str(number))
            events: list[Event] = []
            for at in range(20):
                event = Event(id=f"{number}-{at}", author="agent", content=Content(parts=[Part(text="word " * 400)]))
                event.actions.state_delta = {"at": at, "user:at": at}
                events.append(event)
            image = Part(inline_data=Blob(data=random.Random(user + str(number)).randbytes(100_000), mime_type="x/y"))
            events.append(Event(id=f"{number}-image", author="agent", content=Content(parts=[image])))
            await service.append(session, *events)
    await service.close()


async def _contents(path: Path, user: str) -> list[bytes]:
    service = SqliteSessionService(path)
    listed = (await service.list_sessions(app_name="a", user_id=user)).sessions
    contents: list[bytes] = []
    for one in listed:
        session = await service.get_session(**one.key._asdict())
        contents.append(wire.encode(session))
    await service.close()
    return contents


async def _delete_user(path: Path, user: str) -> None:
    service = SqliteSessionService(path)
    await service.delete_user(app_name="a", user_id=user)
    await service.close()


def _kill_compaction(path: Path) -> None:
    """Kills a compacting process when it has begun to write."""
    with subprocess.Popen([sys.executable, "-c", _KILLED, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        log = Path(f"{path}-wal")
        while process.poll() is None and not (log.exists() and log.stat().st_size):
            pass
        process.kill()


async def test_a_deleted_user_frees_disk_space(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await _fill(path, users=["ann", "bob"])
    kept = await _contents(path, "ann")
    before = path.stat().st_size

    await _delete_user(path, "bob")
    assert path.stat().st_size == before
    assert free_bytes(str(path)) > before / 3

    compact(str(path))
    assert path.stat().st_size < before * 0.6
    assert free_bytes(str(path)) == 0
    assert os.listdir(tmp_path) == ["x.db"]
    assert await _contents(path, "ann") == kept
    assert len(kept) == 10


async def test_all_sessions_deleted_one_by_one_leave_a_small_file(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await _fill(path, users=["ann"])
    service = SqliteSessionService(path)
    for number in range(10):
        await service.delete_session(app_name="a", user_id="ann", session_id=str(number))
    await service.close()
    before = path.stat().st_size

    compact(str(path))
    assert path.stat().st_size < before / 5

    await _fill(path, users=["ann"], sessions=1)
    [content] = await _contents(path, "ann")
    assert content.count(b'"id":"0-') == 21


async def test_events_that_a_fork_shares_with_a_deleted_session_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await _fill(path, users=["ann"], sessions=2)
    service = SqliteSessionService(path)
    fork = await service.fork_session(app_name="a", user_id="ann", session_id="0", seq=15)
    await service.delete_session(app_name="a", user_id="ann", session_id="0")
    await service.close()

    compact(str(path))
    service = SqliteSessionService(path)
    session = await service.get_session(**fork.key._asdict())
    await service.close()
    assert session is not None
    assert [event.id for event in session.events] == [f"0-{at}" for at in range(15)]


async def test_a_process_that_has_the_file_open_continues_with_the_compacted_one(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await _fill(path, users=["ann", "bob"], sessions=2)
    service = SqliteSessionService(path)
    session = await service.get_session(app_name="a", user_id="ann", session_id="0")
    assert session is not None
    await service.delete_user(app_name="a", user_id="bob")

    compact(str(path))
    [stored] = await service.append(session, Event(id="next", author="agent"))
    await service.close()
    assert stored.seq == 22
    assert b'"id":"next"' in (await _contents(path, "ann"))[-1]


async def test_a_killed_compaction_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await _fill(path, users=["ann", "bob"])
    kept = await _contents(path, "ann")
    await _delete_user(path, "bob")

    await asyncio.to_thread(_kill_compaction, path)
    assert await _contents(path, "ann") == kept
    compact(str(path))
    assert await _contents(path, "ann") == kept


async def test_a_file_that_another_process_writes_is_not_compacted(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await _fill(path, users=["ann"], sessions=1)
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="locked"):
        compact(str(path), busy_timeout_seconds=0.05)
    writer.execute("ROLLBACK")
    writer.close()
    compact(str(path))


def test_other_programs_files_and_missing_ones_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE notes (text TEXT)")
    connection.commit()
    connection.close()
    before = other.read_bytes()
    with pytest.raises(StorageError, match="not a database of greenroom"):
        compact(str(other))
    assert other.read_bytes() == before

    with pytest.raises(StorageError):
        compact(str(tmp_path / "missing.db"))
    assert not (tmp_path / "missing.db").exists()
