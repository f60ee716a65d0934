"""Run records in a SQLite file, the same as the sessions' or another."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from asyncio import Future
from collections.abc import Sequence
from typing import NamedTuple

from greenroom.errors import IdempotencyConflict, StoreInUse
from greenroom.records.audit import AuditEntry
from greenroom.records.inbox import RequestChanges
from greenroom.records.run import Run
from greenroom.records.webhook_delivery import WebhookDelivery
from greenroom.runs.sql_requests import write_changes
from greenroom.runs.sql_store import (
    ADD_DELIVERY,
    KEY_HOLDER,
    SAVE_KEY,
    SAVE_WAKE_UP,
    RunRow,
    SqlRunStore,
    delivery_row,
    encoded_digest,
    row_of,
)
from greenroom.sqlite.database import Database
from greenroom.sqlite.row_insert import RowInsert
from greenroom.sqlite.transaction import Transaction, completed
from greenroom.statistics.rollups import write_entry
from greenroom.statistics.run_figures import RunFigures
from greenroom.statistics.sql import ADD_ENTRY

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_INSERT = "INSERT INTO runs (id, app_name, user_id, session_id, status, created_at, data, request) VALUES"
_UPDATE = """
    ON CONFLICT (id) DO UPDATE
    SET status = excluded.status, data = excluded.data, request = coalesce(excluded.request, request)
"""
_SAVE = RowInsert(_INSERT, columns=8, end=_UPDATE)


class RunToSave(NamedTuple):
    row: RunRow
    figures: Sequence[RunFigures] = ()


class SaveRuns:
    """Writes rows of runs, and adds their figures to the statistics together."""

    def write(self, cursor: sqlite3.Cursor, rows: Sequence[RunToSave]) -> None:
        _SAVE.write(cursor, [run.row for run in rows])
        figures = [one for run in rows for one in run.figures]
        if figures:
            cursor.execute(ADD_ENTRY, (write_entry(figures),))


_save_runs = SaveRuns()


class SqliteRunStore(SqlRunStore):
    """Stores runs in SQLite. With the path of a `SqliteSessionService`, both write in one order and share commits."""

    data_contains = "instr(data, ?) > 0"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Opens the file on the first call."""
        self._file = Database.open(path)
        super().__init__(self._file, audit_chains=1)
        self._lock: _ServerLock | None = None

    def save(
        self,
        run: Run,
        *,
        is_to_remember: bool = False,
        requests: RequestChanges | None = None,
        audit: Sequence[AuditEntry] = (),
        figures: Sequence[RunFigures] = (),
    ) -> Future[None]:
        deliveries = self._new_deliveries(run) if run.webhooks else ()
        saved = RunToSave(row_of(self._file.codec, run, is_to_remember=is_to_remember), figures)
        if run.idempotency_key is None and not deliveries and requests is None and not run.is_delayed and not audit:
            return self._queued(self._file.submit_row(_save_runs, saved))
        has_new_key = run.idempotency_key is not None
        saving = self._save_with(run, saved, deliveries, has_new_key=has_new_key, requests=requests, audit=audit)
        return self._queued(saving)

    def save_progress(self, run: Run) -> Future[None]:
        deliveries = self._new_deliveries(run) if run.webhooks else ()
        saved = RunToSave(row_of(self._file.codec, run, with_request=False))
        if not deliveries:
            return self._queued(self._file.submit_row(_save_runs, saved))
        return self._queued(self._save_with(run, saved, deliveries, has_new_key=False))

    def _save_with(
        self,
        run: Run,
        saved: RunToSave,
        deliveries: Sequence[WebhookDelivery],
        *,
        has_new_key: bool,
        requests: RequestChanges | None = None,
        audit: Sequence[AuditEntry] = (),
    ) -> Future[None]:
        """Writes a record in one transaction with its idempotency key, its start time, messages to webhooks, requests
        to people, entries of the audit trail, and figures.
        """
        run_id = run.id
        key = run.idempotency_key if has_new_key else None
        scoped_key = run.app_name, run.user_id, key
        codec = self._file.codec
        digest = encoded_digest(codec, run) if key is not None else None
        start_at = run.start_at if run.is_delayed else None

        def apply(cursor: sqlite3.Cursor) -> None:
            if key is not None:
                cursor.execute(SAVE_KEY, (*scoped_key, run_id, digest))
                if cursor.execute(KEY_HOLDER, scoped_key).fetchone() != (run_id,):
                    raise IdempotencyConflict(key)
            _save_runs.write(cursor, [saved])
            if start_at is not None:
                cursor.execute(SAVE_WAKE_UP, (run_id, start_at))
            for delivery in deliveries:
                cursor.execute(ADD_DELIVERY, delivery_row(codec, delivery))
            if requests is not None:
                completed(write_changes(Transaction(cursor), codec, requests))
            if audit:
                completed(self._audit.write(Transaction(cursor), audit))

        saving = self._file.submit(apply, then=self._audit.confirming(audit), after_rows=True)
        return self._note_deliveries(deliveries, saving)

    async def lock(self, *, wait_seconds: float) -> None:
        lock = self._file.companion(_ServerLock, lambda: _ServerLock(self._file.path))
        until = time.monotonic() + wait_seconds
        while not lock.acquire():
            if time.monotonic() >= until:
                raise StoreInUse(self._file.path, lock.holder())
            await asyncio.sleep(0.05)
        self._lock = lock

    async def close(self) -> None:
        await super().close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


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
