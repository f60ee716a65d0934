"""Sessions in a SQLite file keep the contract, hot or cold, and outlive whatever happens to the process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import pytest

from greenroom.errors import AgentConfigError, StorageError
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import Blob, Content, Part
from greenroom.records.event import Event
from greenroom.records.session import GetSessionConfig, Session, SessionKey
from greenroom.sessions.backend import TRUSTED_SECONDS
from greenroom.sessions.sql_queries import SESSIONS_PER_DELETION
from greenroom.sessions.sqlite import _EVENTS_PER_LISTING_UPDATE, SqliteSessionService
from greenroom.sqlite.database import Database
from greenroom.testing.contracts.session_service import *  # noqa: F403
from tests.sqlite.work import counting, scans

_WRITER = """
import asyncio, sys
from greenroom.records.event import Event
from greenroom.sessions.sqlite import SqliteSessionService

async def main(path, name, count):
    service = SqliteSessionService(path)
    session = await service.get_session(app_name="a", user_id="u", session_id="s")
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(count):
        event = Event(id=f"{name}-{number}", author=name)
        event.actions.state_delta = {name: number}
        [stored] = await service.append(session, event)
        print(event.id, stored.seq, flush=True)
    await service.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""

_SECOND = """
import asyncio, json, sys
from greenroom.records.event import Event
from greenroom.sessions.sqlite import SqliteSessionService

async def main(path):
    service = SqliteSessionService(path)
    here = {"app_name": "a", "user_id": "u", "session_id": "s"}
    session = await service.get_session(**here)
    print("ready", flush=True)
    for line in sys.stdin:
        event_id, delta, makes_anew = json.loads(line)
        if makes_anew:
            await service.delete_session(**here)
            session = await service.create_session(**here)
        event = Event(id=event_id, author="user")
        event.actions.state_delta = delta
        await service.append(session, event)
        print(json.dumps([[event.id for event in session.events], session.state]), flush=True)
    await service.close()

asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture
async def session_service(cache_bytes: int, tmp_path: Path) -> AsyncIterator[SqliteSessionService]:
    service = SqliteSessionService(tmp_path / "folder" / "sessions.db", cache_bytes=cache_bytes)
    yield service
    await service.close()


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[SqliteSessionService]:
    service = SqliteSessionService(tmp_path / "x.db")
    yield service
    await service.close()


def _second_process(path: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _SECOND, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _in_another_process(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path), name, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _begin(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


async def _load(service: SqliteSessionService, config: GetSessionConfig | None = None) -> Session:
    session = await service.get_session(app_name="a", user_id="u", session_id="s", config=config)
    assert session is not None
    return session


async def _open(service: SqliteSessionService) -> Session:
    return await service.create_session(app_name="a", user_id="u", session_id="s")


def _event(number: int) -> Event:
    event = Event(id=f"e-{number}", author="u", content=Content(role="user", parts=[Part(text="x" * 200)]))
    event.actions.state_delta = {"last": number}
    return event


async def test_everything_is_there_after_reopening(tmp_path: Path) -> None:
    service = SqliteSessionService(tmp_path / "x.db")
    session = await _open(service)
    event = _event(1)
    await service.append(session, event)
    await service.close()
    service = SqliteSessionService(tmp_path / "x.db")
    again = await _load(service)
    assert (list(again.events), again.state, again.last_update_time) == ([event], {"last": 1}, event.timestamp)
    assert (await service.append(again, event))[0].seq == 1
    await service.close()


async def _in_a_task(opening: Awaitable[Session]) -> None:
    await opening


async def test_the_same_service_works_in_one_event_loop_after_another(tmp_path: Path) -> None:
    service = SqliteSessionService(tmp_path / "x.db")

    async def append(number: int) -> int:
        return (await service.append(await _load(service), _event(number)))[0].seq

    def run_all() -> list[int]:
        asyncio.run(_in_a_task(_open(service)))
        return [asyncio.run(append(number)) for number in range(3)]

    assert await asyncio.to_thread(run_all) == [1, 2, 3]
    assert len((await _load(service)).events) == 3
    await service.close()


async def test_appends_at_once_share_commits(service: SqliteSessionService) -> None:
    session = await _open(service)
    before = service.database_stats.commits
    await asyncio.gather(*(service.append(session, _event(number)) for number in range(200)))
    assert service.database_stats.commits - before <= 3


async def test_a_turn_on_a_long_session_reads_nothing(tmp_path: Path) -> None:
    service = SqliteSessionService(tmp_path / "x.db", cache_bytes=1 << 30)
    await _open(service)
    rows = [(f"old-{seq}", seq, wire.encode(Event(id=f"old-{seq}", author="u")).decode()) for seq in range(1, 50_001)]
    insert = "INSERT INTO events (session, id, seq, timestamp, data) VALUES (1, ?, ?, 1.0, ?)"
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db")) as another, another:
        another.executemany(insert, rows)
    await asyncio.sleep(TRUSTED_SECONDS)
    assert len((await _load(service)).events) == service.events_decoded == 50_000
    reads = service.database_stats.reads
    decoded = service.events_decoded
    for number in range(5):
        await asyncio.sleep(TRUSTED_SECONDS)
        session = await _load(service)
        assert (await service.append(session, _event(number)))[0].seq == 50_001 + number
        assert len(session.events) == 50_001 + number
        recent = await _load(service, GetSessionConfig(num_recent_events=3))
        assert len(recent.events) == 3
    assert (service.database_stats.reads, service.events_decoded) == (reads, decoded)
    await service.close()


async def test_a_reader_that_leaves_takes_nobody_along(service: SqliteSessionService) -> None:
    session = await _open(service)
    await service.append(session, _event(0))
    await asyncio.sleep(TRUSTED_SECONDS)  # now it must be found out whether another process wrote
    leaving, staying = [asyncio.create_task(_load(service)) for _ in range(2)]
    await asyncio.sleep(0)
    assert service._sqlite._queue, "they wait for the writer to look"
    leaving.cancel()
    assert [event.id for event in (await staying).events] == ["e-0"]
    assert leaving.cancelled()


async def test_a_part_of_a_cold_session_is_read_without_the_rest(tmp_path: Path) -> None:
    service = SqliteSessionService(tmp_path / "x.db", cache_bytes=0)
    session = await _open(service)
    await asyncio.gather(*(service.append(session, _event(number)) for number in range(100)))
    decoded = service.events_decoded
    part = await _load(service, GetSessionConfig(num_recent_events=2))
    assert (await service.append(part, _event(100)))[0].seq == 101
    assert [event.id for event in part.events] == ["e-98", "e-99", "e-100"]
    assert service.events_decoded - decoded == 2
    await service.close()


async def test_sessions_that_do_not_fit_are_read_again(tmp_path: Path) -> None:
    service = SqliteSessionService(tmp_path / "x.db", cache_bytes=20_000)
    for name in ("s-1", "s-2", "s-3"):
        session = await service.create_session(app_name="a", user_id="u", session_id=name)
        await asyncio.gather(*(service.append(session, _event(number)) for number in range(10)))
    decoded = service.events_decoded
    for name in ("s-1", "s-2", "s-3"):
        loaded = await service.get_session(app_name="a", user_id="u", session_id=name)
        assert loaded is not None
        assert (len(loaded.events), loaded.state) == (10, {"last": 9})
    assert service.events_decoded > decoded
    await service.close()


async def test_two_services_on_one_file_see_each_other_at_once(service: SqliteSessionService) -> None:
    other = SqliteSessionService(service.path)
    session = await _open(service)
    theirs = await _load(other)
    await service.append(session, _event(1))
    assert len((await _load(other)).events) == 1
    assert (await other.append(theirs, _event(2)))[0].seq == 2
    assert len((await _load(service)).events) == 2
    await other.close()


async def test_what_another_process_did_is_seen(service: SqliteSessionService) -> None:
    session = await _open(service)
    second = _second_process(service.path)
    assert second.stdout is not None

    def append(event_id: str, delta: dict[str, object], *, makes_anew: bool = False) -> tuple[list[str], object]:
        """Appends in the second process, and returns its view of the session."""
        assert second.stdin is not None
        assert second.stdout is not None
        second.stdin.write(json.dumps([event_id, delta, makes_anew]) + "\n")
        second.stdin.flush()
        return tuple(json.loads(second.stdout.readline()))

    try:
        assert await asyncio.to_thread(second.stdout.readline) == "ready\n"
        await service.append(session, _event(1))
        assert append("e-2", {"last": 2}) == (["e-1", "e-2"], {"last": 2})
        assert (await service.append(session, _event(3)))[0].seq == 3
        assert [event.id for event in session.events] == ["e-1", "e-2", "e-3"]
        append("e-4", {"user:name": "Ann", "app:motto": "be kind"})
        await asyncio.sleep(TRUSTED_SECONDS)
        assert (await _load(service)).state == {"last": 3, "user:name": "Ann", "app:motto": "be kind"}
        assert service.events_decoded == 3
        append("e-5", {}, makes_anew=True)
        await asyncio.sleep(TRUSTED_SECONDS)
        assert [event.id for event in (await _load(service)).events] == ["e-5"]
    finally:
        second.communicate()


async def test_two_processes_appending_to_one_session_lose_nothing(tmp_path: Path) -> None:
    service = SqliteSessionService(tmp_path / "x.db")
    session = await _open(service)
    processes = [_in_another_process(tmp_path / "x.db", name, 60) for name in ("one", "two")]
    _begin(*processes)
    for number in range(60):
        await service.append(session, _event(number))
    answers = [(await asyncio.to_thread(process.communicate))[0].split("\n") for process in processes]
    acknowledged = dict(line.split() for answer in answers for line in answer if line)
    await service.append(session, _event(60))
    assert len(session.events) == len({event.id for event in session.events}) == 181
    for event_id, place in acknowledged.items():
        assert session.events[int(place) - 1].id == event_id
    assert len(acknowledged) == 120
    assert session.state == {"one": 59, "two": 59, "last": 60}
    again = await _load(service)
    assert (again.state, list(again.events)) == (session.state, list(session.events))
    await service.close()


@pytest.mark.kill
async def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    service = SqliteSessionService(tmp_path / "x.db")
    await _open(service)
    await service.close()
    process = _in_another_process(tmp_path / "x.db", "one", 100_000)
    _begin(process)
    assert process.stdout is not None
    acknowledged = [process.stdout.readline().split() for _ in range(40)]
    process.send_signal(signal.SIGKILL)
    acknowledged += [line.split() for line in process.communicate()[0].split("\n") if line.count(" ") == 1]
    service = SqliteSessionService(tmp_path / "x.db")
    session = await _load(service)
    for event_id, place in acknowledged:
        assert session.events[int(place) - 1].id == event_id
    assert session.state == {"one": len(session.events) - 1}
    assert (await service.append(session, _event(0)))[0].seq == len(session.events)
    await service.close()


async def test_a_failed_append_leaves_everything_as_it_was(service: SqliteSessionService, tmp_path: Path) -> None:
    session = await _open(service)
    await service.append(session, _event(0))
    database = Database.open(tmp_path / "x.db")  # the one that the service has
    (pages,) = await database.submit(lambda cursor: cursor.execute("PRAGMA page_count").fetchone())
    await database.submit(lambda cursor: cursor.execute(f"PRAGMA max_page_count = {pages}").fetchone())
    event = _event(1)
    delta = {"last": 1, "big": "x" * 50_000, "temp:step": 1, "user:name": "Ann"}
    event.actions.state_delta = dict(delta)
    with pytest.raises(StorageError) as caught:
        await service.append(session, event)
    assert "SQLITE_FULL" in caught.value.reason
    assert event.actions.state_delta == delta
    assert (len(session.events), session.state) == (1, {"last": 0})
    again = await _load(service)
    assert (len(again.events), again.state) == (1, {"last": 0})
    await database.submit(lambda cursor: cursor.execute("PRAGMA max_page_count = 100000").fetchone())
    assert (await service.append(session, event))[0].seq == 2
    await database.close()
    assert (len(session.events), session.state) == (2, delta)
    assert len((await _load(service)).events) == 2


async def test_an_event_that_json_cannot_hold_is_refused(service: SqliteSessionService) -> None:
    session = await _open(service)
    event = _event(1)
    event.actions.state_delta = {"a": [object()]}
    with pytest.raises((TypeError, NotImplementedError)):
        await service.append(session, event)
    assert "a" in event.actions.state_delta
    assert (len(session.events), session.state) == (0, {})


async def test_nothing_is_opened_before_the_first_call(tmp_path: Path) -> None:
    service = SqliteSessionService(tmp_path / "folder" / "x.db")
    assert os.listdir(tmp_path) == []
    await service.close()
    await service.close()


async def test_a_closed_service_says_so(tmp_path: Path) -> None:
    service = SqliteSessionService(tmp_path / "x.db")
    session = await _open(service)
    await service.close()
    with pytest.raises(StorageError):
        await service.append(session, _event(1))
    with pytest.raises(StorageError):
        await service.get_session(app_name="a", user_id="u", session_id="other")


async def test_the_file_may_be_named_as_in_adk(tmp_path: Path) -> None:
    """Row 12.6."""
    service = SqliteSessionService(db_path=tmp_path / "chats.db")
    assert service.path == str(tmp_path / "chats.db")
    await service.close()
    with pytest.raises(AgentConfigError, match="path"):
        SqliteSessionService()


async def _append_pictures(service: SqliteSessionService, session: Session) -> None:
    for number in range(3):
        content = Content(parts=[Part(inline_data=Blob(data=b"p" * 100_000, mime_type="image/png"))])
        await service.append(session, Event(id=f"{session.id}-{number}", author="u", content=content))


def _count(path: Path, table: str) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


async def test_large_inline_data_is_stored_once_for_all_sessions_and_deleted_with_the_last(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    service = SqliteSessionService(path)
    try:
        for name in ("s-1", "s-2"):
            await _append_pictures(service, await service.create_session(app_name="a", user_id="u", session_id=name))
        assert (_count(path, "blobs"), _count(path, "event_blobs")) == (1, 6)
        await service.delete_session(app_name="a", user_id="u", session_id="s-1")
        assert (_count(path, "blobs"), _count(path, "event_blobs")) == (1, 3)
        await service.fork_session(app_name="a", user_id="u", session_id="s-2", seq=1)
        await service.delete_session(app_name="a", user_id="u", session_id="s-2")
        assert (_count(path, "blobs"), _count(path, "event_blobs"), _count(path, "events")) == (1, 1, 1)
        await service.delete_user(app_name="a", user_id="u")
    finally:
        await service.close()
    tables = ("sessions", "events", "session_state", "state_changes", "session_ancestors", "blobs", "event_blobs")
    assert {_count(path, table) for table in tables} == {0}


async def test_what_looks_like_actions_without_content_is_kept(tmp_path: Path) -> None:
    maps: JsonObject = {"artifactDelta": {}, "requestedAuthConfigs": {}, "requestedToolConfirmations": {}}
    actions: JsonObject = {"stateDelta": {}, **maps}
    events = [
        Event(author="u", custom_metadata=metadata) for metadata in ({"a": 1, **maps}, {"actions": actions}, actions)
    ]
    for number, delta in enumerate(({}, {"a": 1}, {"a": actions}, {"a": 1, **maps})):
        events.append(Event(id=f"e-{number}", author="u", content=Content(parts=[Part(text='"artifactDelta"')])))
        events[-1].actions.state_delta = delta
    path = tmp_path / "x.db"
    for is_new in (True, False):
        service = SqliteSessionService(path)
        try:
            if is_new:
                session = await service.create_session(app_name="a", user_id="u", session_id="s")
                await service.append(session, *events)
            again = await service.get_session(app_name="a", user_id="u", session_id="s")
            assert again is not None
            assert list(again.events) == events
        finally:
            await service.close()


async def test_listing_needs_no_write_lock(service: SqliteSessionService) -> None:
    session = await _open(service)
    await service.append(session, _event(1))
    another = SqliteSessionService(service.path)
    with contextlib.closing(sqlite3.connect(service.path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        async with asyncio.timeout(2):  # the store waits five seconds for the lock
            for one in (service, another):
                (listed,) = (await one.list_sessions(app_name="a", user_id="u")).sessions
                assert listed.last_update_time == session.last_update_time
    await another.close()


async def test_listing_a_file_just_opened_needs_no_write_lock(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    service = SqliteSessionService(path)
    await _open(service)
    await service.close()
    reopened = SqliteSessionService(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        async with asyncio.timeout(2):
            assert len((await reopened.list_sessions(app_name="a", user_id="u")).sessions) == 1
    await reopened.close()


async def test_listing_works_on_a_full_disk(service: SqliteSessionService) -> None:
    session = await _open(service)
    for number in range(20):
        await service.append(session, _event(number))
    pages = "PRAGMA max_page_count = 1"  # SQLite sets it to the pages that the file has
    await service._sqlite.submit(lambda cursor: cursor.execute(pages).fetchone())
    with pytest.raises(StorageError):
        for number in range(20, 200):
            await service.append(session, _event(number))
    (listed,) = (await service.list_sessions(app_name="a", user_id="u")).sessions
    assert listed.last_update_time == session.last_update_time


@pytest.mark.parametrize("limit", [None, 3])
async def test_listing_orders_sessions_by_their_newest_events(service: SqliteSessionService, limit: int | None) -> None:
    """Also those whose newest event `sessions.update_time` doesn't include yet, or includes since just now."""
    sessions = [await service.create_session(app_name="a", user_id="u", session_id=f"s-{n}") for n in range(5)]
    appended = 0
    for turn in range(0, 2 * _EVENTS_PER_LISTING_UPDATE, 37):
        for _ in range(37):
            session = sessions[appended * 7 % 4]  # the last one gets none
            await service.append(session, Event(author="u", timestamp=2e9 + appended))
            appended += 1
        by_time = sorted(sessions, key=lambda one: one.last_update_time, reverse=limit is not None)
        listed: list[str] = []
        token: str | None = None
        while True:
            page = await service.list_sessions(app_name="a", user_id="u", limit=limit, page_token=token)
            listed += [one.id for one in page.sessions]
            token = page.next_page_token
            if token is None:
                break
        assert listed == [one.id for one in by_time], turn


async def test_a_session_is_listed_by_its_newest_event_after_others_were_deleted(service: SqliteSessionService) -> None:
    kept = await service.create_session(app_name="a", user_id="u", session_id="kept")
    deleted = await _open(service)
    for number in range(_EVENTS_PER_LISTING_UPDATE):  # the last one brings the listing up to date
        await service.append(deleted, _event(number))
    await service.delete_session(app_name="a", user_id="u", session_id="s")
    await service.append(kept, Event(author="u", timestamp=2e9))  # gets the number of a deleted event
    (listed,) = (await service.list_sessions(app_name="a", user_id="u")).sessions
    assert listed.last_update_time == 2e9


async def test_a_user_with_many_sessions_is_deleted_in_several_transactions(service: SqliteSessionService) -> None:
    count = 2 * SESSIONS_PER_DELETION
    for number in range(count):
        await service.create_session(app_name="a", user_id="u", session_id=f"s-{number}", state={"user:name": "Ann"})
    commits = service.database_stats.commits
    await service.delete_user(app_name="a", user_id="u")
    assert service.database_stats.commits == commits + 3
    assert (await service.list_sessions(app_name="a", user_id="u")).sessions == []
    assert (await _open(service)).state == {}


async def test_listing_and_deleting_cost_the_same_whatever_the_file_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs: list[int] = []
    with counting(monkeypatch) as work:
        service = SqliteSessionService(tmp_path / "x.db")
        for sessions_of_others in (0, 5000):
            others = [SessionKey("a", f"u-{number % 100}", f"o-{number}") for number in range(sessions_of_others)]
            await asyncio.gather(*(service.create_session(**key._asdict(), events=[_event(0)]) for key in others))
            session = await _open(service)
            await service.append(session, *(_event(number) for number in range(5)))

            work.reset()
            await service.list_sessions(app_name="a", user_id="u", limit=20)
            await service.delete_session(app_name="a", user_id="u", session_id="s")
            costs.append(work.instructions)
        with contextlib.closing(sqlite3.connect(service.path)) as connection:
            assert any("FROM events" in one.text for one in work.statements)
            assert scans(connection, work.statements, ("events", "sessions")) == []
        await service.close()
    # One look at each event since the listing was updated, at most so many; a few instructions per look.
    assert costs[1] - costs[0] < 60 * _EVENTS_PER_LISTING_UPDATE, costs


async def test_closing_a_session_removes_it_from_the_cache(tmp_path: Path) -> None:
    service = SqliteSessionService(tmp_path / "chats.db")
    session = await service.create_session(app_name="a", user_id="u", session_id="s")
    await service.append(session, Event(author="u"), Event(author="u"))
    where: JsonObject = {"app_name": "a", "user_id": "u", "session_id": "s"}
    await service.get_session(**where)
    assert service.events_decoded == 0

    await service.close_session(session)
    assert await service.get_session(**where) is not None
    assert service.events_decoded == 2
    await service.close()
