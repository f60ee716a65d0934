"""Sessions that live as long as the process."""

from __future__ import annotations

import time
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from greenroom.errors import SessionExists, SessionNotFound
from greenroom.records.base import JsonObject
from greenroom.records.event import Event
from greenroom.records.session import GetSessionConfig, ListEventsResponse, ListSessionsResponse, Session, SessionKey
from greenroom.records.state import apply_delta, split_by_scope
from greenroom.sessions.cached_session import (
    CachedSession,
    PreparedEvent,
    ScopeState,
    check_config,
    check_limit,
    clean_session_id,
    next_page,
    page_position,
    prepare,
    sync,
    to_frozen,
)
from greenroom.sessions.service import BaseSessionService, StoredEvent

T = TypeVar("T")


class InMemorySessionService(BaseSessionService):
    """For tests and trials: keeps all sessions until `delete_session`."""

    def __init__(self) -> None:
        self._apps: dict[str, dict[str, dict[str, CachedSession]]] = {}
        self._app_states: dict[str, ScopeState] = {}
        self._user_states: dict[tuple[str, str], ScopeState] = {}
        self._seqs: dict[SessionKey, dict[str, int]] = {}

    def create_session_sync(self, **options: Any) -> Session:
        return _done(self.create_session(**options))

    def get_session_sync(self, **options: Any) -> Session | None:
        return _done(self.get_session(**options))

    def list_sessions_sync(self, **options: Any) -> ListSessionsResponse:
        return _done(self.list_sessions(**options))

    def delete_session_sync(self, **options: Any) -> None:
        _done(self.delete_session(**options))

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
        sessions = self._apps.setdefault(app_name, {}).setdefault(user_id, {})
        if key.session_id in sessions:
            raise SessionExists(*key)
        delta = split_by_scope(to_frozen(state or {}))
        prepared = prepare(events)
        cached = sessions[key.session_id] = CachedSession(
            key,
            app=self._app_states.setdefault(app_name, ScopeState({})),
            user=self._user_states.setdefault((app_name, user_id), ScopeState({})),
            state={},
            update_time=time.time(),
        )
        self._seqs[key] = {}
        apply_delta(cached.app.values, delta.app)
        apply_delta(cached.user.values, delta.user)
        apply_delta(cached.state, delta.session)
        for one in prepared:
            self._store(cached, one)
        return cached.copy_for_caller()

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        check_config(config)
        cached = self._find(SessionKey(app_name, user_id, session_id))
        return None if cached is None else cached.copy_for_caller(config)

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
        users = self._apps.get(app_name, {})
        chosen = users.values() if user_id is None else [users.get(user_id, {})]
        found = sorted(
            ((one.update_time, one.key.user_id, one.key.session_id), one)
            for sessions in chosen
            for one in sessions.values()
            if behind is None or (one.update_time, one.key.user_id, one.key.session_id) > behind
        )
        page = [cached.without_events() for _, cached in found[:limit]]
        return ListSessionsResponse(sessions=page, next_page_token=next_page(page) if len(page) < len(found) else None)

    async def list_events(
        self, *, app_name: str, user_id: str, session_id: str, after: int = 0, limit: int | None = None
    ) -> ListEventsResponse:
        check_limit(limit)
        cached = self._require(SessionKey(app_name, user_id, session_id))
        first = max(after, 0)
        end = None if limit is None else first + limit
        return ListEventsResponse(events=cached.events[first:end], last_seq=len(cached.events))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        if self._apps.get(app_name, {}).get(user_id, {}).pop(session_id, None) is not None:
            del self._seqs[SessionKey(app_name, user_id, session_id)]

    async def append(self, session: Session, *events: Event) -> list[StoredEvent]:
        cached = self._require(session.key)
        prepared = prepare(events)
        stored = [StoredEvent(self._store(cached, one), None) for one in prepared]
        sync(session, cached.events, prepared)
        return stored

    def _store(self, cached: CachedSession, prepared: PreparedEvent) -> int:
        seqs = self._seqs[cached.key]
        seq = seqs.get(prepared.event.id)
        if seq is None:
            if prepared.original:
                apply_delta(cached.app.values, prepared.scoped.app)
                apply_delta(cached.user.values, prepared.scoped.user)
            cached.append(prepared.event, prepared.scoped.session)
            seq = seqs[prepared.event.id] = len(cached.events)
        return seq

    def _find(self, key: SessionKey) -> CachedSession | None:
        return self._apps.get(key.app_name, {}).get(key.user_id, {}).get(key.session_id)

    def _require(self, key: SessionKey) -> CachedSession:
        cached = self._find(key)
        if cached is None:
            raise SessionNotFound(*key)
        return cached


def _done(call: Coroutine[Any, Any, T]) -> T:
    """The result of a method that never waits."""
    try:
        call.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("a session in memory is never waited for")
