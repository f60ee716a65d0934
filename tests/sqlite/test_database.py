"""One database file: order, group commit, failures, other processes, schema."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from greenroom.errors import StorageError
from greenroom.sqlite.database import Database
from greenroom.sqlite.row_insert import Row, RowInsert

_NOTES = RowInsert(
    "INSERT INTO notes (n, text) VALUES", columns=2, end="ON CONFLICT (n) DO UPDATE SET text = excluded.text"
)

_OPENER = """
import asyncio, sys
from greenroom.sqlite.database import Database

async def main(path):
    print("ready", flush=True)
    sys.stdin.readline()
    database = Database.open(path)
    print(await database.read(lambda cursor: cursor.execute("PRAGMA user_version").fetchone()[0]))
    await database.close()

asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database.open(tmp_path / "x.db")
    await database.submit(_execute("CREATE TABLE notes (n INTEGER PRIMARY KEY, text TEXT UNIQUE)"))
    yield database
    await database.close()


def _execute(sql: str, *arguments: object) -> Callable[[sqlite3.Cursor], list[tuple[object, ...]]]:
    return lambda cursor: cursor.execute(sql, arguments).fetchall()


def _note(text: str) -> Callable[[sqlite3.Cursor], object]:
    return _execute("INSERT INTO notes (text) VALUES (?)", text)


async def _notes(database: Database) -> list[str]:
    rows = await database.read(_execute("SELECT text FROM notes ORDER BY n"))
    return [str(text) for (text,) in rows]


def _raise(error: Exception) -> Callable[[sqlite3.Cursor], None]:
    def apply(cursor: sqlite3.Cursor) -> None:
        cursor.execute("INSERT INTO notes (text) VALUES ('half')")
        raise error

    return apply


async def test_a_path_has_one_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = Database.open("x.db")
    second = Database.open(tmp_path / "y" / ".." / "x.db")
    assert first is second
    await first.close()
    await second.submit(_execute("SELECT 1"))
    await second.close()
    third = Database.open("x.db")
    assert third is not first
    await third.close()


async def test_writes_are_carried_out_in_the_order_of_the_calls(database: Database) -> None:
    futures = [database.submit(_note(str(number))) for number in range(1000)]
    await futures[-1]
    assert all(future.done() for future in futures)
    assert await _notes(database) == [str(number) for number in range(1000)]


async def test_writes_at_once_share_a_commit(database: Database) -> None:
    before = database.stats.commits
    await asyncio.gather(*(database.submit(_note(str(number))) for number in range(100)))
    assert database.stats.commits == before + 1


async def test_one_that_fails_fails_alone(database: Database) -> None:
    class RefusedError(Exception):
        pass

    done: list[object] = []
    outcomes = await asyncio.gather(
        database.submit(_note("one"), then=done.append),
        database.submit(_raise(RefusedError("no")), then=done.append),
        database.submit(_note("two"), then=done.append),
        database.submit(_note("one"), then=done.append),
        database.submit(_execute("nonsense")),
        database.submit(_note("three")),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [list, RefusedError, list, StorageError, StorageError, list]
    assert await _notes(database) == ["one", "two", "three"]
    assert len(done) == 2


async def test_a_dropped_future_says_nothing(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    database.submit(_note("one"))
    database.submit(_note("two")).cancel()
    database.submit(_raise(ValueError("no"))).cancel()
    await database.submit(_note("three"))
    assert await _notes(database) == ["one", "two", "three"]
    assert caplog.records == []


async def test_a_cancelled_awaiter_does_not_stop_the_write(database: Database) -> None:
    done: list[object] = []

    async def wait() -> None:
        await database.submit(_note("one"), then=done.append)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await database.submit(_note("two"))
    assert await _notes(database) == ["one", "two"]
    assert done == [[]]


async def test_a_full_disk_is_an_error_and_then_it_works_again(database: Database) -> None:
    await database.submit(_note("before"))
    ((pages,),) = await database.submit(_execute("PRAGMA page_count"))
    await database.submit(_execute(f"PRAGMA max_page_count = {pages}"))
    outcomes = await asyncio.gather(
        database.submit(_note("big" * 10_000)),
        database.submit(_note("small")),
        database.submit(_note("huge" * 10_000)),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [StorageError, list, StorageError]
    assert await _notes(database) == ["before", "small"]
    await database.submit(_execute("PRAGMA max_page_count = 100000"))
    await database.submit(_note("big" * 10_000))
    assert len(await _notes(database)) == 3


async def test_a_lock_held_too_long_is_an_error_for_all_that_wait(database: Database) -> None:
    await database.submit(_execute("PRAGMA busy_timeout = 50"))
    other = sqlite3.connect(database.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    async with asyncio.timeout(5):
        outcomes = await asyncio.gather(
            *(database.submit(_note(str(number))) for number in range(200)), return_exceptions=True
        )
    assert {type(outcome) for outcome in outcomes} == {StorageError}
    assert await _notes(database) == []
    other.execute("ROLLBACK")
    other.close()
    await database.submit(_note("after"))
    assert await _notes(database) == ["after"]


async def test_foreign_writes_are_noticed_and_own_ones_are_not(database: Database) -> None:
    noticed: list[int] = []
    database.on_external_write(lambda: noticed.append(1))
    await database.submit(_note("one"))
    await _notes(database)
    await database.submit(_note("two"))
    assert noticed == []
    other = sqlite3.connect(database.path, isolation_level=None)
    other.execute("INSERT INTO notes (text) VALUES ('theirs')")
    other.close()
    await database.submit(_note("three"))
    await database.submit(_note("four"))
    assert noticed == [1]


async def test_looking_for_foreign_writes_waits_for_no_lock(database: Database) -> None:
    noticed: list[int] = []
    database.on_external_write(lambda: noticed.append(1))
    commits = database.stats.commits
    with contextlib.closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        other.execute("INSERT INTO notes (text) VALUES ('theirs')")
        other.execute("BEGIN IMMEDIATE")
        async with asyncio.timeout(database.busy_timeout_seconds / 2):
            await asyncio.gather(*(database.refresh() for _ in range(100)))
        assert noticed == [1]
        other.execute("INSERT INTO notes (text) VALUES ('more')")
        await database.refresh()
        assert noticed == [1], "it isn't committed yet"
        other.execute("COMMIT")
        await database.refresh()
        assert noticed == [1, 1]
    assert database.stats.commits == commits


async def test_rows_of_a_group_are_written_together_in_their_order_after_the_rest(database: Database) -> None:
    rows = [(number, f"text {number}") for number in range(150)]
    commits = database.stats.commits
    written = [database.submit_row(_NOTES, row) for row in rows]
    again = database.submit_row(_NOTES, (7, "text 7, changed"))
    first = database.submit(_execute("SELECT count(*) FROM notes"))
    await asyncio.gather(*written, again)
    assert await first == [(0,)]
    assert await _notes(database) == [f"text {n}, changed" if n == 7 else text for n, text in rows]
    assert database.stats.commits == commits + 1


async def test_a_row_that_is_refused_fails_alone(database: Database) -> None:
    rows: list[Row] = [(number, f"text {number}") for number in range(100)]
    rows[90] = (90, "text 3")  # the texts are to be unique
    outcomes = await asyncio.gather(*(database.submit_row(_NOTES, row) for row in rows), return_exceptions=True)
    assert [number for number, outcome in enumerate(outcomes) if outcome is not None] == [90]
    assert isinstance(outcomes[90], StorageError)
    assert "UNIQUE" in str(outcomes[90])
    assert await _notes(database) == [f"text {number}" for number in range(100) if number != 90]


async def test_asking_a_closed_database_is_refused(tmp_path: Path) -> None:
    database = Database.open(tmp_path / "x.db")
    await database.refresh()
    await database.close()
    with pytest.raises(StorageError):
        await database.refresh()


async def test_a_reader_cannot_write(database: Database) -> None:
    with pytest.raises(StorageError):
        await database.read(_note("one"))
    assert await _notes(database) == []


async def test_what_was_submitted_is_written_before_closing(tmp_path: Path) -> None:
    database = Database.open(tmp_path / "x.db")
    for sql in ("CREATE TABLE notes (n INTEGER PRIMARY KEY, text TEXT UNIQUE)", "INSERT INTO notes VALUES (1, 'a')"):
        database.submit(_execute(sql))
    await database.close()
    with sqlite3.connect(tmp_path / "x.db") as connection:
        assert connection.execute("SELECT text FROM notes").fetchall() == [("a",)]
    connection.close()
    with pytest.raises(StorageError):
        await database.submit(_note("late"))
    with pytest.raises(StorageError):
        await _notes(database)


def test_it_serves_one_event_loop_after_another(tmp_path: Path) -> None:
    database = Database.open(tmp_path / "x.db")

    async def submit_and_leave() -> None:
        await database.submit(_execute("CREATE TABLE IF NOT EXISTS notes (n INTEGER PRIMARY KEY, text TEXT)"))
        database.submit(_note("left behind"))

    async def look() -> list[str]:
        await database.submit(_execute("SELECT 1"))
        return await _notes(database)

    for count in range(1, 20):
        asyncio.run(submit_and_leave())
        assert asyncio.run(look()) == ["left behind"] * count
    asyncio.run(database.close())


async def test_a_path_that_cannot_be_opened_is_an_error_each_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    database = Database.open(tmp_path / "file" / "x.db")
    for _ in range(2):
        with pytest.raises(StorageError):
            await database.submit(_execute("SELECT 1"))
    (tmp_path / "file").unlink()
    await database.submit(_execute("SELECT 1"))
    await database.close()


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("This is not a database. " * 100)
    database = Database.open(tmp_path / "x.db")
    with pytest.raises(StorageError) as caught:
        await database.read(_execute("SELECT 1"))
    assert "SQLITE_NOTADB" in caught.value.reason
    await database.close()


async def test_a_file_of_a_newer_release_is_refused(database: Database, tmp_path: Path) -> None:
    await database.submit(_execute("PRAGMA user_version = 9999"))
    await database.close()
    newer = Database.open(tmp_path / "x.db")
    with pytest.raises(StorageError) as caught:
        await newer.submit(_execute("SELECT 1"))
    assert "newer release" in caught.value.reason
    await newer.close()


async def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute("CREATE TABLE sessions (id TEXT)")
    connection.close()
    before = (tmp_path / "x.db").read_bytes()
    database = Database.open(tmp_path / "x.db")
    with pytest.raises(StorageError) as caught:
        await database.submit(_execute("SELECT 1"))
    assert "another program" in caught.value.reason
    await database.close()
    assert (tmp_path / "x.db").read_bytes() == before


def test_processes_may_open_a_new_file_at_once(tmp_path: Path) -> None:
    for attempt in range(2):
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", _OPENER, str(tmp_path / f"{attempt}.db")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(4)
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        versions = {process.communicate()[0].strip() for process in processes}
        assert len(versions) == 1
        assert versions != {"0"}
        assert {process.returncode for process in processes} == {0}


async def test_a_wal_that_may_not_grow_is_written_back(tmp_path: Path) -> None:
    database = Database.open(tmp_path / "x.db")
    database.reclaim_seconds = 0.0
    await database.submit(lambda cursor: cursor.execute("CREATE TABLE big (id INTEGER PRIMARY KEY, data TEXT)"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    try:
        for number in range(20):
            row = (1, f"{number}" * 100_000)
            await database.submit(
                lambda cursor, row=row: cursor.execute("INSERT OR REPLACE INTO big VALUES (?, ?)", row)
            )
        assert (tmp_path / "x.db-wal").stat().st_size <= 1_000_000
        with pytest.raises(StorageError, match=r"SQLITE_(FULL|IOERR)"):
            row = (2, "x" * 2_000_000)
            await database.submit(lambda cursor: cursor.execute("INSERT INTO big VALUES (?, ?)", row))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert await database.read(lambda cursor: cursor.execute("SELECT count(*) FROM big").fetchone()) == (1,)
    await database.close()
