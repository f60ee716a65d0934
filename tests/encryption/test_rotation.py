"""Rotations of keys, and the encryption of databases that have plaintext, lose nothing and leave nothing behind."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from greenroom.artifacts.encrypted import EncryptedArtifactService
from greenroom.artifacts.files import FileArtifactService
from greenroom.encryption.key_provider import KeyProvider
from greenroom.encryption.local_keys import add_key, keys_of_file
from greenroom.errors import DecryptionFailed, KeyRefused
from greenroom.memory.from_uri import memory_service_from_uri
from greenroom.records.content import Blob, Content, Part
from greenroom.records.event import Event
from greenroom.records.feedback import Feedback, FeedbackFilter
from greenroom.records.listings import MemoryEntry
from greenroom.records.run import Run, RunStatus
from greenroom.runs.engine import run_store_beside
from greenroom.sessions.from_uri import session_service_from_uri
from greenroom.sqlite.compact import compact
from tests.encryption.rotate_app import rotate
from tests.processes import END_WITH_PARENT

_WORD = "zebrafish"
_SESSIONS = 20


@pytest.fixture(params=["sqlite", "postgres"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return (
        f"sqlite:///{tmp_path}/greenroom.db" if request.param == "sqlite" else request.getfixturevalue("postgres_uri")
    )


async def test_a_database_with_plaintext_is_encrypted(uri: str, key_file: str, tmp_path: Path) -> None:
    await _fill(uri, None)
    before = await _read(uri, None)
    assert await _values(uri, encrypted=False) > 5 * _SESSIONS

    keys = keys_of_file(key_file)
    assert await _read(uri, keys, search=False) == {**before, "memories": []}  # both kinds of rows are read meanwhile
    await rotate(uri, key_file)
    assert await _values(uri, encrypted=False) == 0
    assert await _read(uri, keys) == before
    if uri.startswith("sqlite"):
        compact(str(tmp_path / "greenroom.db"))
        assert not _is_in_files(tmp_path)

    await _execute(uri, "UPDATE events SET data = '{}' WHERE seq = 1")
    with pytest.raises(DecryptionFailed):  # plaintext can only be forged now
        await _read(uri, keys)


async def test_all_rows_get_the_new_data_key(uri: str, key_file: str) -> None:
    keys = keys_of_file(key_file)
    await _fill(uri, keys)
    before = await _read(uri, keys)
    count = await _values(uri, data_key=1)
    assert await rotate(uri, key_file) >= count > 5 * _SESSIONS
    assert (await _values(uri, data_key=1), await _values(uri, data_key=2)) == (0, count)
    assert await _read(uri, keys) == before


@pytest.mark.kill
async def test_a_killed_rotation_continues(uri: str, key_file: str) -> None:
    keys = keys_of_file(key_file)
    await _fill(uri, keys, sessions=150)
    before = await _read(uri, keys)
    process = await asyncio.create_subprocess_exec(
        *END_WITH_PARENT, sys.executable, "-m", "tests.encryption.rotate_app", uri, key_file
    )
    async with asyncio.timeout(30):
        while not await _values(uri, data_key=2):
            await asyncio.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    await process.wait()

    assert await _values(uri, data_key=1), "the rotation was over before it was killed"
    assert await _read(uri, keys) == before
    await rotate(uri, key_file)
    assert await _values(uri, data_key=1) == 0
    assert await _values(uri, data_key=3) == 0, "the second rotation didn't continue the first"
    assert await _read(uri, keys) == before


async def test_earlier_keys_are_not_needed_after_they_are_replaced(uri: str, key_file: str, tmp_path: Path) -> None:
    keys = keys_of_file(key_file)
    await _fill(uri, keys)
    before = await _read(uri, keys)
    artifacts = EncryptedArtifactService(FileArtifactService(tmp_path / "artifacts"), keys)
    name: Any = {"app_name": "a", "user_id": "u", "session_id": "s", "filename": "n"}
    await artifacts.save_artifact(**name, artifact=Part(text=_WORD))

    add_key(key_file)
    service = session_service_from_uri(uri, keys=keys)
    await service.list_apps()
    assert await _ring(service).rewrap() == 2
    assert await _ring(service).rewrap() == 0
    await service.close()
    assert await artifacts.ring.rewrap() == 2

    _remove_first_key(key_file)
    assert await _read(uri, keys_of_file(key_file)) == before
    again = EncryptedArtifactService(FileArtifactService(tmp_path / "artifacts"), keys_of_file(key_file))
    assert await again.load_artifact(**name) == Part(text=_WORD)


@pytest.mark.parametrize("given", ["none", "another"])
async def test_without_its_keys_nothing_is_opened_or_written(
    uri: str, given: str, key_file: str, tmp_path: Path
) -> None:
    await _fill(uri, keys_of_file(key_file))
    other = str(tmp_path / "other.toml")
    add_key(other)
    count = await _values(uri, data_key=1)
    keys = None if given == "none" else keys_of_file(other)
    service = session_service_from_uri(uri, keys=keys)
    with pytest.raises(KeyRefused, match=r"set encryption\.keys|not the one that encrypted"):
        await service.create_session(app_name="a", user_id="u")
    with pytest.raises(KeyRefused):
        await service.list_sessions(app_name="a")
    await service.close()
    assert (await _values(uri, data_key=1), await _values(uri, encrypted=False)) == (count, 0)


async def _fill(uri: str, keys: KeyProvider | None, *, sessions: int = _SESSIONS) -> None:
    service = session_service_from_uri(uri, keys=keys)
    runs = run_store_beside(service)
    memory = memory_service_from_uri(uri, keys=keys)
    blob = Part(inline_data=Blob(data=_WORD.encode() * 9000, mime_type="text/x-notes"))
    for number in range(sessions):
        names: Any = {"app_name": "a", "user_id": "u", "session_id": f"s-{number}"}
        session = await service.create_session(**names, state={"topic": _WORD, "user:topic": [_WORD], "app:n": number})
        for at in range(3):
            event = Event(id=f"e-{at}", invocation_id="r", author="user")
            parts = [Part(text=f"{_WORD} {number}"), *([blob] if at == 1 else [])]
            event.content = Content(role="user", parts=parts)
            event.actions.state_delta = {"count": at, "user:count": number}
            await service.append_event(session, event)
        run = Run(id=f"r-{number}", status=RunStatus.SUCCEEDED, created_at=1.0, idempotency_key=f"{number}", **names)
        run.request_digest = "00ff"
        await runs.save(run)
        await runs.feedback.save(
            Feedback(
                id=f"f-{number}", event_id="e-1", run_id=run.id, name="helpful", subject="u", source="user",
                label=_WORD, created_at=float(number), **names,
            )
        )  # fmt: skip
    await service.fork_session(app_name="a", user_id="u", session_id="s-0", seq=2, new_session_id="fork")
    await service.delete_session(app_name="a", user_id="u", session_id="s-0")
    text = Content(role="user", parts=[Part(text=f"likes {_WORD}")])
    await memory.add_memories(app_name="a", user_id="u", memories=[MemoryEntry(id="m", content=text)])
    for store in (memory, runs, service):
        await store.close()


async def _read(uri: str, keys: KeyProvider | None, *, search: bool = True) -> dict[str, Any]:
    service = session_service_from_uri(uri, keys=keys)
    runs = run_store_beside(service)
    memory = memory_service_from_uri(uri, keys=keys)
    try:
        sessions: dict[str, Any] = {}
        for listed in (await service.list_sessions(app_name="a", user_id="u")).sessions:
            session = await service.get_session(app_name="a", user_id="u", session_id=listed.id)
            assert session is not None
            sessions[session.id] = (session.state, list(session.events))
        found = await runs.find_by_idempotency_key(app_name="a", user_id="u", key="1")
        liked = await runs.feedback.list(FeedbackFilter(app_name="a", label=_WORD), limit=1000)
        remembered = await memory.search_memory(app_name="a", user_id="u", query=_WORD)
        return {
            "sessions": sessions,
            "run": found,
            "feedback": len(liked.feedback) if search else _SESSIONS,
            "memories": remembered.memories,
        }
    finally:
        for store in (memory, runs, service):
            await store.close()


def _is_in_files(folder: Path) -> bool:
    return any(_WORD.encode() in path.read_bytes() for path in folder.glob("greenroom.db*"))


def _remove_first_key(key_file: str) -> None:
    lines = Path(key_file).read_text().splitlines()
    Path(key_file).write_text("\n".join([*lines[:3], *lines[4:]]) + "\n")


def _ring(service: Any) -> Any:
    database = getattr(service, "_sqlite", None) or service._postgres
    return database.codec.ring


async def _values(uri: str, *, data_key: int | None = None, encrypted: bool = True) -> int:
    """The number of values of texts that this data key has encrypted, or that aren't encrypted."""
    count = 0
    for table, column in (
        ("events", "data"), ("session_state", "value"), ("state_changes", "value"), ("user_state", "value"),
        ("app_state", "value"), ("runs", "data"), ("idempotency_keys", "digest"), ("feedback", "data"),
        ("memories", "data"),
    ):  # fmt: skip
        term = f"LIKE 'enc1:{data_key}:%'" if encrypted else "NOT LIKE 'enc1:%'"
        rows = await _execute(uri, f"SELECT count(*) FROM {table} WHERE {column} {term}")
        count += rows[0][0]
    return count


async def _execute(uri: str, statement: str) -> list[Any]:
    if uri.startswith("sqlite"):
        with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as connection, connection:
            return connection.execute(statement).fetchall()
    connection = await asyncpg.connect(uri)
    try:
        return await connection.fetch(statement)
    finally:
        await connection.close()
