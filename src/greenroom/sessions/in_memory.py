"""Sessions that live as long as the process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TypeVar

from greenroom.errors import NotFound, SessionExists, SessionNotFound
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
from greenroom.records.state import apply_delta, split_by_scope
from greenroom.sessions.arguments import (
    check_config,
    check_fork,
    check_limit,
    next_page,
    page_position,
)
from greenroom.sessions.cached_session import CachedSession, PartialLog, ScopeState
from greenroom.sessions.caller_session import sync
from greenroom.sessions.frozen import to_frozen
from greenroom.sessions.prepared_event import PreparedEvent, prepare
from greenroom.sessions.service import BaseSessionService, StoredEvent
from greenroom.sqlite.transaction import completed

T = TypeVar("T")


class InMemorySessionService(BaseSessionService):
    """Keeps all sessions in memory until `delete_session`, for tests and experiments."""

    def __init__(self) -> None:
        self._apps: dict[str, dict[str, dict[str, CachedSession]]] = {}
        self._app_states: dict[str, ScopeState] = {}
        self._user_states: dict[tuple[str, str], ScopeState] = {}
        self._seqs: dict[SessionKey, dict[str, int]] = {}
        self._initial_states: dict[SessionKey, JsonObject] = {}
        """Of each session before its first event; a fork has its parent's."""

    def create_session_sync(self, **options: Any) -> Session:
        return completed(self.create_session(**options))

    def get_session_sync(self, **options: Any) -> Session | None:
        return completed(self.get_session(**options))

    def list_sessions_sync(self, **options: Any) -> ListSessionsResponse:
        return completed(self.list_sessions(**options))

    def delete_session_sync(self, **options: Any) -> None:
        completed(self.delete_session(**options))

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
        self._check_new(key)
        delta = split_by_scope(to_frozen(state or {}))
        prepared = prepare(events)
        cached = self._add(key, {})
        apply_delta(cached.app.values, delta.app)
        apply_delta(cached.user.values, delta.user)
        apply_delta(cached.state, delta.session)
        self._initial_states[key] = dict(cached.state)
        for prepared_event in prepared:
            self._store(cached, prepared_event)
        return cached.copy_for_caller()

    async def fork_session(
        self, *, app_name: str, user_id: str, session_id: str, seq: int | None = None, new_session_id: str | None = None
    ) -> Session:
        parent = self._require(SessionKey(app_name, user_id, session_id))
        key = self.key_or_new(app_name, user_id, new_session_id)
        seq = check_fork(seq, len(parent.events))
        self._check_new(key)
        fork = self._add(key, self._state_after(parent, seq))
        fork.events = parent.events.first(seq)
        self._seqs[key] = {event_id: at for event_id, at in self._seqs[parent.key].items() if at <= seq}
        self._initial_states[key] = self._initial_states[parent.key]
        session = fork.without_events()
        session.events = PartialLog()
        return session

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        check_config(config)
        cached = self._find(SessionKey(app_name, user_id, session_id))
        if cached is None:
            return None
        until = None if config is None else config.until_seq
        return cached.copy_for_caller(config, None if until is None else self._state_after(cached, until))

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
        before = page_position(page_token)
        users = self._apps.get(app_name, {})
        chosen = users.values() if user_id is None else [users.get(user_id, {})]
        matching = [
            session
            for sessions in chosen
            for session in sessions.values()
            if (before is None or _position(session) < before) and session.fits(where)
        ]
        matching.sort(key=_position, reverse=limit is not None)
        page = [cached.without_events() for cached in matching[:limit]]
        return ListSessionsResponse(
            sessions=page, next_page_token=next_page(page) if len(page) < len(matching) else None
        )

    async def list_events(
        self, *, app_name: str, user_id: str, session_id: str, after: int = 0, limit: int | None = None
    ) -> ListEventsResponse:
        check_limit(limit)
        cached = self._require(SessionKey(app_name, user_id, session_id))
        first = max(after, 0)
        end = None if limit is None else first + limit
        return ListEventsResponse(events=cached.events[first:end], last_seq=len(cached.events))

    async def list_apps(self) -> list[str]:
        return sorted(app for app, users in self._apps.items() if any(users.values()))

    async def seq_of_event(self, *, app_name: str, user_id: str, session_id: str, event_id: str) -> int:
        seq = self._seqs[self._require(SessionKey(app_name, user_id, session_id)).key].get(event_id)
        if seq is None:
            raise NotFound(f"Event not found: {event_id!r} in session {session_id!r}")
        return seq

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        if self._apps.get(app_name, {}).get(user_id, {}).pop(session_id, None) is not None:
            key = SessionKey(app_name, user_id, session_id)
            del self._seqs[key], self._initial_states[key]

    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        for session_id in list(self._apps.get(app_name, {}).get(user_id, {})):
            await self.delete_session(app_name=app_name, user_id=user_id, session_id=session_id)
        self._user_states.pop((app_name, user_id), None)

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

    def _check_new(self, key: SessionKey) -> None:
        if self._find(key) is not None:
            raise SessionExists(*key)

    def _add(self, key: SessionKey, state: JsonObject) -> CachedSession:
        cached = CachedSession(
            key,
            app=self._app_states.setdefault(key.app_name, ScopeState({})),
            user=self._user_states.setdefault((key.app_name, key.user_id), ScopeState({})),
            state=state,
            update_time=time.time(),
        )
        self._apps.setdefault(key.app_name, {}).setdefault(key.user_id, {})[key.session_id] = cached
        self._seqs[key] = {}
        return cached

    def _state_after(self, cached: CachedSession, seq: int) -> JsonObject:
        """The session's own state after that event, frozen."""
        if seq >= len(cached.events):
            return dict(cached.state)
        state = dict(self._initial_states[cached.key])
        for event in cached.events[:seq]:
            if event.actions.state_delta:
                apply_delta(state, to_frozen(split_by_scope(event.actions.state_delta).session))
        return state

    def _find(self, key: SessionKey) -> CachedSession | None:
        try:
            return self._apps[key.app_name][key.user_id][key.session_id]
        except KeyError:
            return None

    def _require(self, key: SessionKey) -> CachedSession:
        cached = self._find(key)
        if cached is None:
            raise SessionNotFound(*key)
        return cached


def _position(session: CachedSession) -> tuple[float, str, str]:
    """The session's place in a listing."""
    return session.update_time, session.key.user_id, session.key.session_id
