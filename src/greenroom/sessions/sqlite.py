"""Sessions in a SQLite file."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from functools import partial

from greenroom.errors import AgentConfigError, SessionNotFound
from greenroom.records.base import JsonObject
from greenroom.records.event import Event
from greenroom.records.session import GetSessionConfig, ListEventsResponse, ListSessionsResponse, Session, SessionKey
from greenroom.records.state import split_by_scope
from greenroom.sessions import sqlite_rows
from greenroom.sessions.cached_session import (
    CachedSession,
    PartialLog,
    PreparedEvent,
    append_own,
    check_config,
    check_limit,
    clean_session_id,
    extend_log,
    is_partial,
    next_page,
    page_position,
    prepare,
    sync,
    to_frozen,
    undo,
)
from greenroom.sessions.service import BaseSessionService, StoredEvent
from greenroom.sessions.session_cache import Appended, Deleted, SessionCache
from greenroom.sqlite.database import Database, DatabaseStats


class SqliteSessionService(BaseSessionService):
    """Keeps sessions in one file, which other processes may use at the same time.

    What another process wrote is seen by `get_session` within a twentieth of a second, and by `append` at once.
    An append whose awaiter is cancelled is stored nevertheless.
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
        self._database = Database.open(path or db_path)
        self._cache = self._database.companion(SessionCache, lambda: SessionCache(self._database))
        self._cache.max_bytes = max(self._cache.max_bytes, cache_bytes)
        self._closed = False

    @property
    def path(self) -> str:
        return self._database.path

    @property
    def database_stats(self) -> DatabaseStats:
        return self._database.stats

    @property
    def events_decoded(self) -> int:
        """Events read from the file into memory; none for those that are appended to a session in memory."""
        return self._cache.events_decoded

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: JsonObject | None = None,
        session_id: str | None = None,
        events: Sequence[Event] = (),
    ) -> Session:
        key = SessionKey(app_name, user_id, clean_session_id(session_id))
        delta = split_by_scope(to_frozen(state or {}))
        now = time.time()
        prepared = prepare(events, encode=True)

        def apply(cursor: sqlite3.Cursor) -> tuple[CachedSession, list[tuple[int, bool]]]:
            created = sqlite_rows.create(cursor, key, now, delta)
            return created, [sqlite_rows.append(cursor, key, one) for one in prepared]

        def then(result: tuple[CachedSession, list[tuple[int, bool]]]) -> None:
            self._cache.report(result[0])
            self._report_appended(key, prepared, result[1])

        try:
            created, _ = await self._database.submit(apply, then=then)
        except Exception:
            undo(prepared)
            raise
        cached = self._cache.peek(key)
        if cached is None or cached.number != created.number:
            cached = await self._cache.fetch(key) if prepared else created
            if cached is None:  # another process has deleted it meanwhile
                raise SessionNotFound(*key)
        return cached.copy_for_caller()

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        check_config(config)
        key = SessionKey(app_name, user_id, session_id)
        cached = await self._cache.get_current(key)
        if cached is None:
            is_part = config is not None and not (config.num_recent_events is None and config.after_timestamp is None)
            if config is not None and is_part and self._cache.peek(key) is None:
                return await self._read_part(key, config)
            cached = await self._cache.fetch(key)
        return None if cached is None else cached.copy_for_caller(config)

    async def _read_part(self, key: SessionKey, config: GetSessionConfig) -> Session | None:
        """Reads the requested events of a session that isn't in memory, without the rest of its log."""
        stored = await self._database.read(lambda cursor: sqlite_rows.read_part(cursor, key, config))
        if stored is None:
            return None
        self._cache.events_decoded += len(stored.events)
        session = stored.copy_for_caller()
        session.events = PartialLog(stored.events)
        return session

    async def list_sessions(
        self,
        *,
        app_name: str,
        user_id: str | None = None,
        limit: int | None = None,
        page_token: str | None = None,
    ) -> ListSessionsResponse:
        check_limit(limit)
        behind = page_position(page_token)
        one_more = None if limit is None else limit + 1
        await self._database.submit(sqlite_rows.roll_forward)
        listed = await self._database.read(
            lambda cursor: sqlite_rows.read_page(cursor, app_name, user_id, behind, one_more)
        )
        page = [one.copy_for_caller() for one in listed[:limit]]
        return ListSessionsResponse(sessions=page, next_page_token=next_page(page) if len(page) < len(listed) else None)

    async def list_events(
        self, *, app_name: str, user_id: str, session_id: str, after: int = 0, limit: int | None = None
    ) -> ListEventsResponse:
        check_limit(limit)
        key = SessionKey(app_name, user_id, session_id)
        cached = await self._cache.get_current(key)
        if cached is not None:
            first = max(after, 0)
            events = cached.events[first : None if limit is None else first + limit]
            return ListEventsResponse(events=events, last_seq=len(cached.events))
        page = await self._database.read(lambda cursor: sqlite_rows.read_events(cursor, key, after, limit))
        if page is None:
            raise SessionNotFound(*key)
        self._cache.events_decoded += len(page[0])
        return ListEventsResponse(events=page[0], last_seq=page[1])

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        key = SessionKey(app_name, user_id, session_id)
        await self._database.submit(
            lambda cursor: sqlite_rows.delete(cursor, key), then=lambda _: self._cache.report(Deleted(key))
        )

    async def append(self, session: Session, *events: Event) -> list[StoredEvent]:
        """As the contract says. When it fails, session and events are as they were, and can be appended again."""
        key = session.key
        prepared = prepare(events, encode=True)

        def apply(cursor: sqlite3.Cursor) -> list[tuple[int, bool]]:
            return [sqlite_rows.append(cursor, key, one) for one in prepared]

        def then(stored: list[tuple[int, bool]]) -> None:
            self._report_appended(key, prepared, stored)

        try:
            stored = await self._database.submit(apply, then=then)
        except Exception:  # nothing was stored
            undo(prepared)
            raise
        last = max((seq for seq, _ in stored), default=0)
        cached = self._cache.peek(key)
        if cached is not None and len(cached.events) < last:
            cached = await self._cache.fetch(key)
        if cached is not None and len(cached.events) >= last:
            sync(session, cached.events, prepared)
        else:
            await self._sync_from_rows(session, key, stored, prepared)
        return [StoredEvent(seq, one.json) for one, (seq, _) in zip(prepared, stored, strict=True)]

    def _report_appended(self, key: SessionKey, prepared: list[PreparedEvent], stored: list[tuple[int, bool]]) -> None:
        for one, (seq, is_new) in zip(prepared, stored, strict=True):
            if is_new:
                self._cache.report(Appended(key, one, seq))

    async def _sync_from_rows(
        self, session: Session, key: SessionKey, stored: list[tuple[int, bool]], prepared: list[PreparedEvent]
    ) -> None:
        """For a session that isn't in memory: read what its holder lacks, if it holds the log from the start."""
        while not is_partial(session):
            known = len(session.events)
            if stored == [(seq, True) for seq in range(known + 1, known + 1 + len(stored))]:
                break
            last_id = session.events[-1].id if known else None
            later = await self._database.read(partial(sqlite_rows.read_later, key=key, last_id=last_id, known=known))
            if later is None:
                break
            self._cache.events_decoded += len(later)
            # Otherwise another append on the same session object was faster.
            if len(session.events) == known:
                extend_log(session, later, prepared)
                return
        append_own(session, prepared)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._database.close()
