"""A session store on any backend, with the sessions in use in memory."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

from greenroom.errors import NotFound, SessionNotFound
from greenroom.records.base import JsonObject
from greenroom.records.event import Event
from greenroom.records.session import (
    GetSessionConfig,
    ListEventsResponse,
    ListSessionsResponse,
    Session,
    SessionFilter,
    SessionKey,
)
from greenroom.records.state import split_by_scope
from greenroom.sessions.arguments import check_config, check_limit
from greenroom.sessions.backend import Created, SessionBackend, Stored
from greenroom.sessions.cached_session import PartialLog
from greenroom.sessions.caller_session import append_own, extend_log, is_partial, sync
from greenroom.sessions.frozen import to_frozen
from greenroom.sessions.prepared_event import PreparedEvent, prepare, undo
from greenroom.sessions.service import BaseSessionService, StoredEvent
from greenroom.sessions.session_cache import Appended, Deleted, SessionCache


class CachedSessionService(BaseSessionService):
    """A session store on a backend, with the sessions in use in memory.

    An append whose awaiter is cancelled is stored nevertheless.
    """

    def __init__(
        self,
        backend: SessionBackend,
        *,
        cache: SessionCache | None = None,
        cache_bytes: int = 64 * 1024 * 1024,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Caches sessions of a backend.

        cache: of this backend, if other services share it. close: releases the backend's resources. cache_bytes: for
        sessions in use; the largest value wins if several services share a cache.
        """
        self._backend = backend
        self._cache = cache or SessionCache(backend)
        self._cache.max_bytes = max(self._cache.max_bytes, cache_bytes)
        self._close_backend = close
        self._closed = False

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._close_backend is not None:
            await self._close_backend()

    @property
    def events_decoded(self) -> int:
        """The number of events read from the backend into memory; events that are appended to a session in memory don't
        count.
        """
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
        key = self.key_or_new(app_name, user_id, session_id)
        delta = split_by_scope(to_frozen(state or {}))
        now = time.time()
        prepared = prepare(events, encode=True)

        def after_commit(created: Created) -> None:
            self._cache.report(created.session)
            self._report_appended(key, prepared, created.stored)

        try:
            created, _ = await self._backend.create(key, now, delta, prepared, after_commit)
        except Exception:
            undo(prepared)
            raise

        cached = self._cache.peek(key)
        if cached is None or cached.number != created.number:
            cached = await self._cache.fetch(key, whole=True) if prepared else created
            if cached is None:  # another process has deleted it meanwhile
                raise SessionNotFound(*key)
        return cached.copy_for_caller()

    async def fork_session(
        self, *, app_name: str, user_id: str, session_id: str, seq: int | None = None, new_session_id: str | None = None
    ) -> Session:
        key = SessionKey(app_name, user_id, session_id)
        new_key = self.key_or_new(app_name, user_id, new_session_id)
        forked = await self._backend.fork(key, new_key, seq, time.time())
        session = forked.copy_for_caller()
        session.events = PartialLog()
        return session

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        check_config(config)
        key = SessionKey(app_name, user_id, session_id)
        if config is not None and config.until_seq is not None:
            return await self._read_part(key, config)
        cached = await self._cache.get_current(key)
        is_complete = config is None or not config.from_compaction
        if cached is None or (is_complete and cached.events.skipped):
            is_part = config is not None and not (config.num_recent_events is None and config.after_timestamp is None)
            peeked = self._cache.peek(key)
            if config is not None and is_part and (peeked is None or peeked.events.skipped):
                return await self._read_part(key, config)
            cached = await self._cache.fetch(key, whole=is_complete)
        return None if cached is None else cached.copy_for_caller(config)

    async def _read_part(self, key: SessionKey, config: GetSessionConfig) -> Session | None:
        """Reads the requested events of a session, without the rest of its log."""
        stored = await self._backend.read_part(key, config)
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
        where: SessionFilter | None = None,
        limit: int | None = None,
        page_token: str | None = None,
    ) -> ListSessionsResponse:
        check_limit(limit)
        page = await self._backend.list_sessions(app_name, user_id, where or SessionFilter(), limit, page_token)
        sessions = [one.copy_for_caller() for one in page.sessions]
        return ListSessionsResponse(sessions=sessions, next_page_token=page.next_page_token)

    async def list_events(
        self, *, app_name: str, user_id: str, session_id: str, after: int = 0, limit: int | None = None
    ) -> ListEventsResponse:
        check_limit(limit)
        key = SessionKey(app_name, user_id, session_id)
        cached = await self._cache.get_current(key)
        first = max(after, 0) - (cached.events.skipped if cached is not None else 0)
        if cached is not None and first >= 0:
            events = cached.events[first : None if limit is None else first + limit]
            return ListEventsResponse(events=events, last_seq=cached.events.end)

        page = await self._backend.read_events(key, after, limit)
        if page is None:
            raise SessionNotFound(*key)
        self._cache.events_decoded += len(page.events)
        return ListEventsResponse(events=page.events, last_seq=page.last_seq)

    async def list_apps(self) -> list[str]:
        return await self._backend.list_apps()

    async def seq_of_event(self, *, app_name: str, user_id: str, session_id: str, event_id: str) -> int:
        key = SessionKey(app_name, user_id, session_id)
        seq = await self._backend.find_event(key, event_id)
        if seq is None:
            raise NotFound(f"Event not found: {event_id!r} in session {session_id!r}")
        return seq

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        key = SessionKey(app_name, user_id, session_id)
        await self._backend.delete(key, lambda: self._cache.report(Deleted(key)))

    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        def after_commit(deleted: Sequence[SessionKey]) -> None:
            for key in deleted:
                self._cache.report(Deleted(key))

        await self._backend.delete_user(app_name, user_id, after_commit)

    async def close_session(self, session: Session) -> None:
        self._cache.release(session.key)

    async def append(self, session: Session, *events: Event) -> list[StoredEvent]:
        """Appends as the contract requires. On failure, session and events are unchanged, and can be appended again."""
        key = session.key
        prepared = prepare(events, encode=True)

        def after_commit(stored: Stored) -> None:
            self._report_appended(key, prepared, stored)

        try:
            stored = await self._backend.append(key, prepared, after_commit)
        except Exception:  # nothing was stored
            undo(prepared)
            raise

        last = max((seq for seq, _ in stored), default=0)
        cached = self._cache.peek(key)
        if cached is not None and cached.events.end < last:
            cached = await self._cache.fetch(key)
        if cached is not None and cached.events.end >= last:
            sync(session, cached.events, prepared)
        else:
            await self._sync_from_rows(session, key, stored, prepared)
        return [StoredEvent(seq, one.json) for one, (seq, _) in zip(prepared, stored, strict=True)]

    def _report_appended(self, key: SessionKey, prepared: list[PreparedEvent], stored: Stored) -> None:
        for one, (seq, is_new) in zip(prepared, stored, strict=True):
            if is_new:
                self._cache.report(Appended(key, one, seq))

    async def _sync_from_rows(
        self, session: Session, key: SessionKey, stored: Stored, prepared: list[PreparedEvent]
    ) -> None:
        """Reads the events that the caller's copy lacks, for a session that isn't in memory, if the copy holds the log
        from its start.
        """
        while not is_partial(session):
            end = session.events.end
            if stored == [(seq, True) for seq in range(end + 1, end + 1 + len(stored))]:
                break
            last_id = session.events[-1].id if end else None
            later = await self._backend.read_later(key, last_id, end)
            if later is None:
                break
            self._cache.events_decoded += len(later)
            # Otherwise another append on the same session object was faster.
            if session.events.end == end:
                extend_log(session, later, prepared)
                return
        append_own(session, prepared)
