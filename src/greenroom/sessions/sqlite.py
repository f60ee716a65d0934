"""Sessions in a SQLite file."""

from __future__ import annotations

import os
import sqlite3
import time
from asyncio import Future
from collections.abc import Callable, Coroutine, Sequence
from functools import cached_property
from typing import Any, TypeVar

from greenroom.errors import AgentConfigError, SessionNotFound
from greenroom.records.session import SessionKey
from greenroom.records.state import ScopedDelta
from greenroom.sessions.cached_session import CachedSession, PreparedEvent, frozen_json
from greenroom.sessions.session_cache import TRUSTED_SECONDS, SessionCache, SessionDatabase
from greenroom.sessions.sql import SqlSessionService
from greenroom.sessions.sql_queries import SEQ_OF_EVENT, SessionQueries, Stored
from greenroom.sessions.stored_event import to_stored
from greenroom.sqlite.database import Database
from greenroom.sqlite.transaction import Transaction
from greenroom.usage.sqlite import SqliteUsageStore

T = TypeVar("T")

_APPEND = """
    INSERT INTO events (session, seq, id, timestamp, data)
    SELECT number,
           ifnull((SELECT seq FROM events WHERE session = sessions.number ORDER BY seq DESC LIMIT 1), fork_seq) + 1,
           ?4, ?5, CAST(?6 AS TEXT)
    FROM sessions WHERE app_name = ?1 AND user_id = ?2 AND id = ?3 AND (fork_seq = 0 OR NOT EXISTS (
        SELECT 1 FROM session_ancestors JOIN events ON events.session = ancestor AND events.id = ?4
        WHERE session_ancestors.session = sessions.number AND events.seq > above AND events.seq <= upto
    ))
    ON CONFLICT (session, id) DO NOTHING
    RETURNING session, seq
"""
_SET = {
    "session": "INSERT INTO session_state VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
    "user": "INSERT INTO user_state VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
    "app": "INSERT INTO app_state VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
}
_UNSET = {
    "session": "DELETE FROM session_state WHERE session = ? AND key = ?",
    "user": "DELETE FROM user_state WHERE app_name = ? AND user_id = ? AND key = ?",
    "app": "DELETE FROM app_state WHERE app_name = ? AND key = ?",
}
_CHANGE = """
    INSERT INTO state_changes (session, key, seq, value)
    SELECT session, key, 0, value FROM session_state WHERE session = ?1 AND key = ?2
        AND NOT EXISTS (SELECT 1 FROM state_changes WHERE session = ?1 AND key = ?2)
    UNION ALL SELECT ?1, ?2, ?3, NULL
"""
# The times of new events are carried over to `sessions.update_time` before sessions are listed, not with each append,
# where that would move two index entries.
_ROLL_FORWARD = """
    UPDATE sessions SET update_time = newest.timestamp
    FROM (
        SELECT session, timestamp, max(number) FROM events
        WHERE number > (SELECT listed_to FROM session_listing) GROUP BY session
    ) AS newest
    WHERE sessions.number = newest.session
"""
_LISTED = """
    UPDATE session_listing SET listed_to = newest
    FROM (SELECT ifnull(max(number), 0) AS newest FROM events) WHERE listed_to <> newest
"""


class SqliteSessionService(SqlSessionService):
    """Keeps sessions in one file, which other processes may use at the same time.

    `get_session` sees writes of other processes within a twentieth of a second, `append` at once.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = "",
        *,
        db_path: str | os.PathLike[str] = "",
        cache_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        """path, or ADK's db_path: made when missing, its folder too. cache_bytes: for sessions in use; zero means that
        nothing is kept in memory. Of several services on one file the largest wish counts.

        Opens the file on the first call.
        """
        if bool(path) == bool(db_path):
            raise AgentConfigError("Give SqliteSessionService the path of its file")
        self._sqlite = database = Database.open(path or db_path)
        cache = database.companion(SessionCache, lambda: SessionCache(SqliteSessionDatabase(database)))
        super().__init__(database, cache, cache_bytes=cache_bytes)
        self.server_database = database.path

    @property
    def path(self) -> str:
        return self._sqlite.path

    @cached_property
    def usage(self) -> SqliteUsageStore:
        return SqliteUsageStore(self._sqlite)


class SqliteSessionDatabase(SessionDatabase):
    def __init__(self, database: Database) -> None:
        self._database = database
        database.on_external_write(self._start_epoch)

    def _start_epoch(self) -> None:
        self.epoch += 1

    def write(
        self, work: Callable[[SessionQueries], Coroutine[Any, Any, T]], then: Callable[[T], None] | None = None
    ) -> Future[T]:
        return self._database.transact(lambda transaction: work(SqliteSessionQueries(transaction)), then=then)

    async def read(self, work: Callable[[SessionQueries], Coroutine[Any, Any, T]]) -> T:
        return await self._database.snapshot(lambda transaction: work(SqliteSessionQueries(transaction)))

    def append_rows(
        self, key: SessionKey, prepared: Sequence[PreparedEvent], then: Callable[[Stored], None]
    ) -> Future[Stored]:
        def apply(cursor: sqlite3.Cursor) -> Stored:
            return [_insert(cursor, key, one, to_stored(one.json or b"")[0]) for one in prepared]

        return self._database.submit(apply, then=then)

    async def is_current(self, cached: CachedSession) -> bool:
        known_at = max(cached.checked_at, self._database.refreshed_at)
        if cached.epoch == self.epoch and time.monotonic() - known_at >= TRUSTED_SECONDS:
            await self._database.refresh()
        return cached.epoch == self.epoch

    async def prepare_listing(self) -> None:
        await self._database.execute_all([(_ROLL_FORWARD, ()), (_LISTED, ())])


class SqliteSessionQueries(SessionQueries):
    find_statement = find_locked_statement = """
        SELECT sessions.number, ifnull(newest.seq, fork_seq), fork_seq, ifnull(newest.timestamp, update_time), 0, 0
        FROM sessions LEFT JOIN events AS newest ON newest.session = sessions.number
            AND newest.seq = (SELECT max(seq) FROM events WHERE session = sessions.number)
        WHERE app_name = ? AND user_id = ? AND sessions.id = ?
    """
    create_statement = """
        INSERT INTO sessions (app_name, user_id, id, update_time, fork_seq) VALUES (?, ?, ?, ?, ?)
        ON CONFLICT (app_name, user_id, id) DO NOTHING RETURNING number
    """
    before_deletion = (_ROLL_FORWARD,)
    # SQLite may give the last events' numbers out again.
    after_deletion = (_LISTED,)

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction)
        self._cursor = transaction.cursor

    async def insert(self, key: SessionKey, prepared: Sequence[PreparedEvent], jsons: Sequence[bytes]) -> Stored:
        return [_insert(self._cursor, key, one, json) for one, json in zip(prepared, jsons, strict=True)]

    async def save_state(self, key: SessionKey, number: int, delta: ScopedDelta) -> None:
        _save_state(self._cursor, key, number, delta)


def _insert(cursor: sqlite3.Cursor, key: SessionKey, one: PreparedEvent, json: bytes) -> tuple[int, bool]:
    """The event's sequence number, and whether it is new in the log. Raises SessionNotFound."""
    event = one.event
    row = cursor.execute(_APPEND, (*key, event.id, event.timestamp, json)).fetchone()
    if row is None:
        row = cursor.execute(SEQ_OF_EVENT, (*key, event.id)).fetchone()
        if row is None:
            raise SessionNotFound(*key)
        return row[0], False
    number, seq = row
    delta = one.scoped
    if delta.session:
        cursor.executemany(_CHANGE, [(number, name, seq) for name in delta.session])
    if delta.session or delta.user or delta.app:
        _save_state(cursor, key, number, delta)
    return seq, True


def _save_state(cursor: sqlite3.Cursor, key: SessionKey, number: int, delta: ScopedDelta) -> None:
    for scope, owner, values in (
        ("session", (number,), delta.session),
        ("user", (key.app_name, key.user_id), delta.user),
        ("app", (key.app_name,), delta.app),
    ):
        for name, value in values.items():
            if value is None:
                cursor.execute(_UNSET[scope], (*owner, name))
            else:
                cursor.execute(_SET[scope], (*owner, name, frozen_json(value)))
