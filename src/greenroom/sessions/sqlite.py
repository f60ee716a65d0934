"""Sessions in a SQLite file."""

from __future__ import annotations

import os
import sqlite3
import time
from asyncio import Future
from collections.abc import Callable, Coroutine, Sequence
from functools import cached_property
from typing import Any, TypeVar

from greenroom.encryption.codec import Codec
from greenroom.encryption.key_provider import KeyProvider
from greenroom.errors import AgentConfigError, SessionNotFound
from greenroom.records.session import SessionKey
from greenroom.records.state import REMOVED, ScopedDelta
from greenroom.sessions.backend import TRUSTED_SECONDS, Stored
from greenroom.sessions.cached_service import CachedSessionService
from greenroom.sessions.cached_session import CachedSession
from greenroom.sessions.places import encode_event, encode_state
from greenroom.sessions.prepared_event import PreparedEvent
from greenroom.sessions.session_cache import SessionCache
from greenroom.sessions.sql import SqlSessionBackend
from greenroom.sessions.sql_queries import PAGE, SEQ_OF_EVENT, SessionQueries
from greenroom.sessions.stored_event import to_stored
from greenroom.sqlite.database import Database, DatabaseStats
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
    RETURNING number, session, seq
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
# `sessions.update_time` is not updated with each append, which would move two index entries, but with every so many
# events of the file. `listed_to` is the number of the last event that it includes; listing reads the later ones.
_EVENTS_PER_LISTING_UPDATE = 256
# The newest event of each session after `listed_to`. The `+` keeps SQLite from reading a whole index of events to have
# them in the order of their sessions.
_NEWEST = """
    SELECT session, timestamp, max(number) FROM events
    WHERE number > (SELECT listed_to FROM session_listing) GROUP BY +session
"""
_UPDATE_LISTING = (
    f"UPDATE sessions SET update_time = timestamp FROM ({_NEWEST}) AS newest WHERE sessions.number = newest.session",
    "UPDATE session_listing SET listed_to = (SELECT ifnull(max(number), 0) FROM events)",
)
# SQLite gives the numbers of deleted last events out again.
_KEEP_LISTING_IN_LOG = """
    UPDATE session_listing SET listed_to = newest
    FROM (SELECT ifnull(max(number), 0) AS newest FROM events) WHERE listed_to > newest
"""
_PAGE = f"""
    WITH newest AS MATERIALIZED ({_NEWEST}),
    unchanged AS (
        {{page_of_sessions}}
    ),
    changed AS (
        SELECT number, fork_seq, update_time, user_id, id FROM (
            SELECT number, fork_seq, newest.timestamp AS update_time, app_name, user_id, id
            FROM newest CROSS JOIN sessions ON number = session
        ) AS sessions WHERE {{terms}}
    )
    SELECT * FROM (SELECT * FROM unchanged UNION ALL SELECT * FROM changed) ORDER BY {{order}} LIMIT ?
"""


class SqliteSessionService(CachedSessionService):
    """Keeps sessions in one file, which other processes may use at the same time.

    `get_session` sees writes of other processes within a twentieth of a second, `append` at once.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = "",
        *,
        db_path: str | os.PathLike[str] = "",
        cache_bytes: int = 64 * 1024 * 1024,
        keys: KeyProvider | None = None,
    ) -> None:
        """path, or ADK's db_path: made when missing, its folder too. cache_bytes: for sessions in use; zero means that
        nothing is kept in memory. Of several services on one file the largest wish counts. keys: encrypt what all
        services on the file store.

        Opens the file on the first call.
        """
        if bool(path) == bool(db_path):
            raise AgentConfigError("Give SqliteSessionService the path of its file")
        self._sqlite = database = Database.open(path or db_path)
        if keys is not None:
            database.encrypt(keys)
        cache = database.companion(SessionCache, lambda: SessionCache(SqliteSessionBackend(database)))
        super().__init__(cache.backend, cache=cache, cache_bytes=cache_bytes, close=database.close)
        self.server_database = database.path

    async def load_keys(self) -> None:
        await self._sqlite.fetch("SELECT 1")

    @property
    def is_encrypted(self) -> bool:
        return not self._sqlite.codec.is_plain

    @property
    def path(self) -> str:
        return self._sqlite.path

    @property
    def database_stats(self) -> DatabaseStats:
        return self._sqlite.stats

    @cached_property
    def usage(self) -> SqliteUsageStore:
        return SqliteUsageStore(self._sqlite)


class SqliteSessionBackend(SqlSessionBackend):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._database = database
        database.on_external_write(self._start_epoch)

    def _start_epoch(self) -> None:
        self.epoch += 1

    def write(
        self, work: Callable[[SessionQueries], Coroutine[Any, Any, T]], after_commit: Callable[[T], None] | None = None
    ) -> Future[T]:
        codec = self._database.codec
        return self._database.transact(
            lambda transaction: work(SqliteSessionQueries(transaction, codec)), then=after_commit
        )

    async def snapshot(self, work: Callable[[SessionQueries], Coroutine[Any, Any, T]]) -> T:
        codec = self._database.codec
        return await self._database.snapshot(lambda transaction: work(SqliteSessionQueries(transaction, codec)))

    def append_rows(
        self, key: SessionKey, prepared: Sequence[PreparedEvent], after_commit: Callable[[Stored], None]
    ) -> Future[Stored]:
        codec = self._database.codec

        def apply(cursor: sqlite3.Cursor) -> Stored:
            return [_insert(cursor, codec, key, one, to_stored(one.json or b"")[0]) for one in prepared]

        return self._database.submit(apply, then=after_commit)

    async def is_current(self, cached: CachedSession) -> bool:
        known_at = max(cached.checked_at, self._database.refreshed_at)
        if cached.epoch == self.epoch and time.monotonic() - known_at >= TRUSTED_SECONDS:
            await self._database.refresh()
        return cached.epoch == self.epoch


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
    after_deletion = (_KEEP_LISTING_IN_LOG,)

    def __init__(self, transaction: Transaction, codec: Codec) -> None:
        super().__init__(transaction, codec)
        self._cursor = transaction.cursor

    async def insert(self, key: SessionKey, prepared: Sequence[PreparedEvent], jsons: Sequence[bytes]) -> Stored:
        return [_insert(self._cursor, self.codec, key, one, json) for one, json in zip(prepared, jsons, strict=True)]

    async def save_state(self, key: SessionKey, number: int, delta: ScopedDelta) -> None:
        _save_state(self._cursor, self.codec, key, number, delta)

    async def fetch_page(
        self, terms: Sequence[str], arguments: Sequence[str | float], order: str, limit: int
    ) -> list[Any]:
        unchanged = [*terms, "number NOT IN (SELECT session FROM newest)"]
        page_of_sessions = PAGE.format(terms=" AND ".join(unchanged), order=order)
        query = _PAGE.format(page_of_sessions=page_of_sessions, terms=" AND ".join(terms), order=order)
        return await self.fetch(query, *arguments, limit, *arguments, limit)


def _insert(
    cursor: sqlite3.Cursor, codec: Codec, key: SessionKey, prepared_event: PreparedEvent, json: bytes
) -> tuple[int, bool]:
    """The event's sequence number, and whether it is new in the log. Raises SessionNotFound."""
    event = prepared_event.event
    data = json if codec.is_plain else encode_event(codec, key, event.id, json)
    row = cursor.execute(_APPEND, (*key, event.id, event.timestamp, data)).fetchone()
    if row is None:
        row = cursor.execute(SEQ_OF_EVENT, (*key, event.id)).fetchone()
        if row is None:
            raise SessionNotFound(*key)
        return row[0], False
    number, session, seq = row
    delta = prepared_event.scoped
    if delta.session:
        cursor.executemany(_CHANGE, [(session, name, seq) for name in delta.session])
    if delta.session or delta.user or delta.app:
        _save_state(cursor, codec, key, session, delta)

    if number % _EVENTS_PER_LISTING_UPDATE == 0:
        for statement in _UPDATE_LISTING:
            cursor.execute(statement)
    return seq, True


def _save_state(cursor: sqlite3.Cursor, codec: Codec, key: SessionKey, number: int, delta: ScopedDelta) -> None:
    for scope, owner, values in (
        ("session", (number,), delta.session),
        ("user", (key.app_name, key.user_id), delta.user),
        ("app", (key.app_name,), delta.app),
    ):
        for name, value in values.items():
            if value == REMOVED:
                cursor.execute(_UNSET[scope], (*owner, name))
            else:
                cursor.execute(_SET[scope], (*owner, name, encode_state(codec, key, scope, name, value)))
