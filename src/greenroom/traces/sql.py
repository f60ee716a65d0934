"""Traces in the SQLite file or the PostgreSQL database of the sessions."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from greenroom.errors import StorageError
from greenroom.records import wire
from greenroom.records.session import SessionKey
from greenroom.telemetry.span import Trace
from greenroom.telemetry.span_record import SpanRecord, span_records, spans_for_display
from greenroom.traces.store import SPANS_SHOWN, TraceStore

if TYPE_CHECKING:
    from greenroom.postgres.connection import Connection
    from greenroom.postgres.database import Database as PostgresDatabase
    from greenroom.sqlite.database import Database as SqliteDatabase

SpanRow: TypeAlias = tuple[str, str, str, str | None, str]
"""app_name, user_id, session_id, event_id, data."""

_log = logging.getLogger("greenroom.traces")
_decode = wire.decoder(list[SpanRecord])

MAX_ROWS = 50_000
"""In one file. A run has one for each of its events: its span, with those before it that have no event of their own."""

WRITE_AFTER_SECONDS = 1.0
"""Time for which traces are gathered, so that a run doesn't pay for a commit of its trace. A crash loses them."""

SHARED_WRITE_AFTER_SECONDS = 0.2
"""The same where other servers read the traces, too."""

_OTHERS_WRITE_SECONDS = SHARED_WRITE_AFTER_SECONDS + 0.1
"""Time in which other servers have written the traces of runs that ended before a query."""

MAX_UNWRITTEN = 2_000
"""Traces that wait for a disk that doesn't keep up; more are dropped."""

_DROP_OLDEST = "DELETE FROM spans WHERE number <= (SELECT max(number) FROM spans) - {max_rows}"
# A run may end after its session was deleted.
_INSERT_IN_SQLITE = """
    INSERT INTO spans (app_name, user_id, session_id, event_id, data)
    SELECT ?1, ?2, ?3, ?4, ?5
    WHERE EXISTS (SELECT 1 FROM sessions WHERE app_name = ?1 AND user_id = ?2 AND id = ?3)
"""
_INSERT_IN_POSTGRES = """
    INSERT INTO spans (app_name, user_id, session_id, event_id, data)
    SELECT app_name, user_id, session_id, event_id, data
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
        WITH ORDINALITY AS given (app_name, user_id, session_id, event_id, data, place)
    WHERE EXISTS (
        SELECT 1 FROM sessions
        WHERE sessions.app_name = given.app_name AND sessions.user_id = given.user_id AND id = session_id
    )
    ORDER BY place
"""
_WHOSE = "AND app_name = coalesce(?, app_name) AND user_id = coalesce(?, user_id)"
_COLUMNS = "app_name, user_id, session_id, event_id, data"
_OF_SESSION = f"SELECT {_COLUMNS} FROM spans WHERE session_id = ? {_WHOSE} ORDER BY number DESC LIMIT {SPANS_SHOWN}"
_OF_EVENT = f"SELECT {_COLUMNS} FROM spans WHERE event_id = ? {_WHOSE} ORDER BY number DESC LIMIT 1"


class SqlTraceStore(TraceStore):
    def __init__(self, database: SqliteDatabase | PostgresDatabase, *, with_content: bool, max_rows: int) -> None:
        """Takes ownership of `database`, which is closed with the store."""
        self._database = database
        self._with_content = with_content
        self.max_rows = max_rows
        self.is_shared = False
        """True if other servers write traces, too."""

        self._unwritten: list[Trace] = []
        self._writing: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @abstractmethod
    def write(self, make_rows: Callable[[], Sequence[SpanRow]]) -> asyncio.Future[None]:
        """Inserts spans of sessions that exist, and deletes those above `max_rows`. make_rows: takes a while."""

    def trace_ended(self, trace: Trace) -> None:
        if trace.root is None or len(self._unwritten) >= MAX_UNWRITTEN:
            return
        self._unwritten.append(trace)
        if self._timer is None and not self._closed:
            seconds = SHARED_WRITE_AFTER_SECONDS if self.is_shared else WRITE_AFTER_SECONDS
            self._timer = asyncio.get_running_loop().call_later(seconds, self._write)

    async def of_session(self, session_id: str, *, app_name: str | None, user_id: str | None) -> list[SpanRecord]:
        if self.is_shared:
            await asyncio.sleep(_OTHERS_WRITE_SECONDS)
        groups = await self._select(_OF_SESSION, session_id, app_name, user_id)
        spans = [span for group in reversed(groups) for span in group]
        return spans_for_display(spans[-SPANS_SHOWN:])

    async def of_event(self, event_id: str, *, app_name: str | None, user_id: str | None) -> SpanRecord | None:
        found = await self._select(_OF_EVENT, event_id, app_name, user_id)
        if not found and self.is_shared:
            await asyncio.sleep(_OTHERS_WRITE_SECONDS)
            found = await self._select(_OF_EVENT, event_id, app_name, user_id)
        return found[0][-1] if found else None

    async def forget(self, key: SessionKey) -> None:
        """The database deletes them together with the session."""

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._write()
            if self._writing is not None:
                await asyncio.wait([self._writing])
            await self._database.close()

    def _write(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._unwritten:
            return
        traces = self._unwritten
        self._unwritten = []
        self._writing = self.write(lambda: [row for trace in traces for row in self._rows(trace)])
        self._writing.add_done_callback(_log_failure)

    def _rows(self, trace: Trace) -> list[SpanRow]:
        app_name, user_id, session_id = trace.run.key
        encode = self._database.codec.encode
        rows: list[SpanRow] = []
        for group in _by_event(span_records(trace, with_content=self._with_content)):
            event_id = group[-1].event_id
            data = encode(wire.encode(group), "spans", app_name, user_id, session_id, event_id)
            rows.append((app_name, user_id, session_id, event_id, data))
        return rows

    async def _select(self, query: str, key: str, app_name: str | None, user_id: str | None) -> list[list[SpanRecord]]:
        self._write()
        if self._writing is not None:
            await asyncio.wait([self._writing])
        rows = await self._database.fetch(query, key, app_name, user_id)
        decode = self._database.codec.decode
        return [_decode(decode(data, "spans", *place)) for *place, data in rows]


class SqliteTraceStore(SqlTraceStore):
    """Needs a file that a `SqliteSessionService` writes its sessions to."""

    def __init__(self, path: str | os.PathLike[str], *, with_content: bool = True, max_rows: int = MAX_ROWS) -> None:
        """Opens the file on the first call.

        with_content: True to store requests, replies and results.
        """
        from greenroom.sqlite.database import Database

        self._file = Database.open(path)
        super().__init__(self._file, with_content=with_content, max_rows=max_rows)

    def write(self, make_rows: Callable[[], Sequence[SpanRow]]) -> asyncio.Future[None]:
        rows: list[SpanRow] = []

        def apply(cursor: sqlite3.Cursor) -> None:
            if not rows:  # made here, in the writer's thread, and once
                rows.extend(make_rows())
            cursor.executemany(_INSERT_IN_SQLITE, rows)
            cursor.execute(_DROP_OLDEST.format(max_rows="?"), (self.max_rows,))

        return self._file.submit(apply)


class PostgresTraceStore(SqlTraceStore):
    """Needs a database that a `PostgresSessionService` writes its sessions to."""

    def __init__(
        self, uri: str, *, with_content: bool = True, max_rows: int = MAX_ROWS, is_shared: bool = False
    ) -> None:
        """Connects on the first call.

        with_content: True to store requests, replies and results. is_shared: True if other servers write traces, too:
        then all write sooner, and queries wait until they have.
        """
        from greenroom.postgres.database import Database

        self._postgres = Database.open(uri)
        super().__init__(self._postgres, with_content=with_content, max_rows=max_rows)
        self.is_shared = is_shared

    def write(self, make_rows: Callable[[], Sequence[SpanRow]]) -> asyncio.Future[None]:
        return asyncio.ensure_future(self._insert(make_rows))

    async def _insert(self, make_rows: Callable[[], Sequence[SpanRow]]) -> None:
        rows = await asyncio.to_thread(make_rows)

        async def apply(connection: Connection) -> None:
            if rows:
                await connection.execute(_INSERT_IN_POSTGRES, *map(list, zip(*rows, strict=True)))
            await connection.execute(_DROP_OLDEST.format(max_rows="$1"), self.max_rows)

        await self._postgres.submit(apply)


def _by_event(spans: list[SpanRecord]) -> list[list[SpanRecord]]:
    """Splits spans into groups that end with the span of an event; the last group may lack one."""
    groups: list[list[SpanRecord]] = [[]]
    for span in spans:
        groups[-1].append(span)
        if span.event_id is not None:
            groups.append([])
    return groups if groups[-1] else groups[:-1]


def _log_failure(writing: asyncio.Future[None]) -> None:
    if not writing.cancelled() and (error := writing.exception()) is not None:
        reason = error.detail if isinstance(error, StorageError) else repr(error)
        _log.warning("traces could not be written: %s", reason)
