"""Run records in a SQLite file, the same as the sessions' or another."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from asyncio import Future
from copy import copy

from greenroom.errors import IdempotencyConflict, StoreInUse
from greenroom.records import wire
from greenroom.records.run import AgentRunRequest, ListRunsResponse, Run, RunFilter
from greenroom.runs.store import RunStore, check_limit, next_page, page_position
from greenroom.sqlite.database import Database
from greenroom.sqlite.row_insert import Row, RowInsert

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_decode_run = wire.decoder(Run)
_decode_request = wire.decoder(AgentRunRequest)

_INSERT = "INSERT INTO runs (id, app_name, user_id, session_id, status, created_at, data, request) VALUES"
_UPDATE = "ON CONFLICT (id) DO UPDATE SET status = excluded.status, data = excluded.data"
_SAVE = RowInsert(_INSERT, columns=8, end=f"{_UPDATE}, request = excluded.request")
_SAVE_PROGRESS = RowInsert(_INSERT, columns=8, end=_UPDATE)
_GET = "SELECT data, request FROM runs WHERE id = ?"
_SAVE_KEY = "INSERT OR IGNORE INTO idempotency_keys (app_name, user_id, key, run_id, digest) VALUES (?, ?, ?, ?, ?)"
_HOLDER = "SELECT run_id FROM idempotency_keys WHERE app_name = ? AND user_id = ? AND key = ?"
_FIND = """
    SELECT data, request, digest FROM idempotency_keys JOIN runs ON runs.id = run_id
    WHERE idempotency_keys.app_name = ? AND idempotency_keys.user_id = ? AND key = ?
"""
_DELETE_KEYS = """
    DELETE FROM idempotency_keys
    WHERE run_id IN (SELECT id FROM runs WHERE app_name = ? AND user_id = ? AND session_id = ?)
"""
_DELETE = "DELETE FROM runs WHERE app_name = ? AND user_id = ? AND session_id = ?"
_UNFINISHED = "SELECT data, request FROM runs WHERE status IN ('queued', 'running') ORDER BY created_at, number"


class SqliteRunStore(RunStore):
    """With the path of a `SqliteSessionService`, both write in one order and share commits."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Opens the file on the first call."""
        self._database = Database.open(path)
        self._lock: _ServerLock | None = None
        self._closed = False

    def save(self, run: Run) -> Future[None]:
        row = _row(run, wire.encode(run.request).decode() if run.request is not None else None)
        key, digest = run.idempotency_key, run.request_digest
        if key is None:
            future = self._database.submit_row(_SAVE, row)
        else:
            scoped_key = run.app_name, run.user_id, key

            def apply(cursor: sqlite3.Cursor) -> None:
                cursor.execute(_SAVE_KEY, (*scoped_key, row[0], digest))
                if cursor.execute(_HOLDER, scoped_key).fetchone() != (row[0],):
                    raise IdempotencyConflict(key)
                _SAVE.write(cursor, [row])

            future = self._database.submit(apply)
        future.add_done_callback(_retrieve)
        return future

    def save_progress(self, run: Run) -> Future[None]:
        future = self._database.submit_row(_SAVE_PROGRESS, _row(run, None))
        future.add_done_callback(_retrieve)
        return future

    async def get(self, run_id: str) -> Run | None:
        return _first(await self._select(_GET, run_id))

    async def find_by_idempotency_key(self, *, app_name: str, user_id: str, key: str) -> Run | None:
        rows = await self._database.read(lambda cursor: cursor.execute(_FIND, (app_name, user_id, key)).fetchall())
        if not rows:
            return None
        data, request, digest = rows[0]
        run = _run(data, request)
        run.idempotency_key, run.request_digest = key, digest
        return run

    async def list_runs(
        self, where: RunFilter, *, limit: int | None = 100, page_token: str | None = None
    ) -> ListRunsResponse:
        check_limit(limit)
        terms, arguments = _conditions(where, page_position(page_token))
        chosen = f"WHERE {' AND '.join(terms)}" if terms else ""
        query = f"SELECT data, request FROM runs {chosen} ORDER BY created_at DESC, id DESC LIMIT ?"
        found = await self._select(query, *arguments, -1 if limit is None else limit + 1)
        page = found[:limit]
        return ListRunsResponse(runs=page, next_page_token=next_page(page) if len(page) < len(found) else None)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        def apply(cursor: sqlite3.Cursor) -> None:
            cursor.execute(_DELETE_KEYS, (app_name, user_id, session_id))
            cursor.execute(_DELETE, (app_name, user_id, session_id))

        await self._database.submit(apply)

    async def list_unfinished(self) -> list[Run]:
        return await self._select(_UNFINISHED)

    async def _select(self, query: str, *arguments: str | float) -> list[Run]:
        rows = await self._database.read(lambda cursor: cursor.execute(query, arguments).fetchall())
        return [_run(data, request) for data, request in rows]

    async def lock(self, *, wait_seconds: float) -> None:
        lock = self._database.companion(_ServerLock, lambda: _ServerLock(self._database.path))
        until = time.monotonic() + wait_seconds
        while not lock.acquire():
            if time.monotonic() >= until:
                raise StoreInUse(self._database.path, lock.holder())
            await asyncio.sleep(0.05)
        self._lock = lock

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._database.close()
            if self._lock is not None:
                self._lock.release()


def _row(run: Run, request: str | None) -> Row:
    bare = copy(run)
    bare.request = None
    data = wire.encode(bare).decode()
    return run.id, run.app_name, run.user_id, run.session_id, run.status.value, run.created_at, data, request


def _run(data: str, request: str | None) -> Run:
    run = _decode_run(data.encode())
    if request is not None:  # rows of earlier releases have it in `data`
        run.request = _decode_request(request.encode())
    return run


class _ServerLock:
    """An OS lock on a file beside the database, which ends with its process. All engines of a process share it, and
    so do processes that inherit the open file. The file holds the process id of the server."""

    def __init__(self, path: str) -> None:
        self._path = f"{path}-server"
        self._file: int | None = None
        self._users = 0

    def acquire(self) -> bool:
        if self._file is None:
            os.makedirs(os.path.dirname(os.path.abspath(self._path)), exist_ok=True)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            if not _lock_file(file):
                os.close(file)
                return False
            os.ftruncate(file, 0)
            os.write(file, str(os.getpid()).encode())
            self._file = file
        self._users += 1
        return True

    def release(self) -> None:
        self._users -= 1
        if self._users == 0 and self._file is not None:
            os.close(self._file)
            self._file = None

    def holder(self) -> int | None:
        with contextlib.suppress(OSError, ValueError), open(self._path, encoding="ascii") as file:
            return int(file.read())
        return None


def _lock_file(file: int) -> bool:
    if fcntl is None:  # Windows has no flock
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _retrieve(future: Future[None]) -> None:
    """Marks the exception as seen: the future may be dropped."""
    if not future.cancelled():
        future.exception()


def _first(runs: list[Run]) -> Run | None:
    return runs[0] if runs else None


def _conditions(where: RunFilter, behind: tuple[float, str] | None) -> tuple[list[str], list[str | float]]:
    """Terms of a WHERE clause, and their arguments."""
    terms: list[str] = []
    arguments: list[str | float] = []
    for term, value in (
        ("user_id = ?", where.user_id),
        ("session_id = ?", where.session_id),
        ("created_at >= ?", where.created_from),
        ("created_at < ?", where.created_before),
    ):
        if value is not None:
            terms.append(term)
            arguments.append(value)
    for column, values in (("app_name", where.app_names), ("status", where.statuses)):
        if values is not None:
            terms.append(f"{column} IN ({', '.join('?' * len(values))})")
            arguments += values
    if behind is not None:
        terms.append("(created_at, id) < (?, ?)")
        arguments += behind
    return terms, arguments
