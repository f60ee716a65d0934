"""Sessions that Vertex AI keeps for a reasoning engine (Agent Engine), over its REST interface.

Source: `projects.locations.reasoningEngines.sessions` of the Vertex AI API, v1beta1. Events carry all that we store in
`rawEvent`, as ADK for Python writes them; those of other writers are read from the fields that the interface names.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from greenroom.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    NotOffered,
    SessionExists,
    SessionNotFound,
    StorageError,
)
from greenroom.google_cloud.firestore import from_iso, to_iso
from greenroom.google_cloud.vertex import VertexClient
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.event import Event
from greenroom.records.session import GetSessionConfig, SessionFilter, SessionKey
from greenroom.records.state import REMOVED, USER_PREFIX, ScopedDelta, apply_delta, merge_scopes, split_by_scope
from greenroom.sessions.backend import Created, LogPage, SessionBackend, SessionPage, Stored, is_trusted
from greenroom.sessions.cached_session import CachedSession, ScopeState, filter_events
from greenroom.sessions.frozen import from_frozen, to_frozen
from greenroom.sessions.prepared_event import PreparedEvent
from greenroom.sessions.remote import RemoteSessionService, RemoteWrites
from greenroom.sessions.service import SessionCapability
from greenroom.sessions.session_cache import SessionCache

_SESSION_ID = re.compile("[a-zA-Z0-9_-]{1,200}")
_PAGE = 100
_CLOCK_SKEW_SECONDS = 60.0
"""Events with times so much before the newest known one are listed again, for writers whose clocks differ."""

_ACTIONS = ("skipSummarization", "stateDelta", "artifactDelta", "escalate", "requestedAuthConfigs")
_METADATA = (
    "partial", "turnComplete", "interrupted", "branch", "longRunningToolIds", "groundingMetadata", "customMetadata",
)  # fmt: skip


class VertexAiSessionService(RemoteSessionService):
    """Stores sessions in Vertex AI. One process at a time may write to a session: the service has neither sequence
    numbers nor conditional writes.

    `get_session` sees writes of other processes. A session's id may have letters, digits, `_` and `-`; others raise
    InvalidRequest. Listings are in the order of the service's own times.
    """

    not_offered = frozenset[SessionCapability](("forks", "past states", "search by text", "several events in one step"))

    def __init__(
        self,
        project: str | None = None,
        location: str | None = None,
        agent_engine_id: str | Callable[[str], str] | None = None,
        *,
        express_mode_api_key: str | None = None,
        credentials: Any = None,
        base_url: str | None = None,
        cache_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        """Connects to Vertex AI.

        agent_engine_id: id or resource name of the reasoning engine for all apps, which then share their sessions, or a
        function of an app's name. None: an app's name is its engine's. cache_bytes: for sessions in use. Others: see
        `VertexClient`.
        """
        client = VertexClient(
            project, location, api_key=express_mode_api_key, credentials=credentials, base_url=base_url
        )
        backend = VertexAiSessionBackend(client, agent_engine_id)
        self._engine_of = backend.engine
        super().__init__(backend, cache=backend.cache, cache_bytes=cache_bytes, close=backend.close)

    def engine(self, app_name: str) -> str:
        """The resource name of the reasoning engine that has an app's sessions. Raises InvalidRequest."""
        return self._engine_of(app_name)


class _SessionResource(NamedTuple):
    key: SessionKey
    number: int
    state: ScopedDelta
    update_time: float

    @classmethod
    def of(cls, app_name: str, fields: JsonObject) -> _SessionResource:
        key = SessionKey(app_name, fields.get("userId", ""), fields["name"].rpartition("/")[2])
        given: JsonObject = fields.get("sessionState") or {}
        state = {name: value for name, value in given.items() if value is not None}
        number = int(from_iso(fields["createTime"]) * 1e6)
        return cls(key, number, split_by_scope(to_frozen(state)), from_iso(fields["updateTime"]))

    def session(self, events: Sequence[Event] = (), version: int = 0) -> CachedSession:
        return CachedSession(
            self.key,
            app=ScopeState(self.state.app, version),
            user=ScopeState(self.state.user, version),
            state=self.state.session,
            events=events,
            update_time=events[-1].timestamp if events else self.update_time,
            number=self.number,
        )


class VertexAiSessionBackend(SessionBackend):
    def __init__(self, client: VertexClient, engine_id: str | Callable[[str], str] | None) -> None:
        self.cache = SessionCache(self)
        """Has the log that says which number an appended event gets: the service has no sequence numbers."""

        self._client = client
        self._engine_id = engine_id
        self._writes = RemoteWrites()
        self._unclear: set[SessionKey] = set()
        """Sessions with an append that failed, and may be stored nevertheless."""

        self._reads = 0

    async def close(self) -> None:
        await self._writes.finish()
        await self._client.close()

    def create(
        self,
        key: SessionKey,
        now: float,
        delta: ScopedDelta,
        prepared: Sequence[PreparedEvent],
        after_commit: Callable[[Created], None],
    ) -> Awaitable[Created]:
        """Raises NotOffered for a session with events."""
        return self._writes.start(lambda: self._create(key, delta, prepared), after_commit)

    async def _create(self, key: SessionKey, delta: ScopedDelta, prepared: Sequence[PreparedEvent]) -> Created:
        checked_at = time.monotonic()
        if prepared:
            raise NotOffered("Vertex AI can't create a session together with its events")
        if _SESSION_ID.fullmatch(key.session_id) is None:
            raise InvalidRequest("A session's id on Vertex AI has 1 to 200 letters, digits, underscores and hyphens")

        state: JsonObject = {}
        apply_delta(state, merge_scopes(**delta._asdict()))
        body = {"userId": key.user_id, "sessionState": from_frozen(state)}
        sessions = f"{self.engine(key.app_name)}/sessions"
        try:
            await self._client.finish(await self._client.call("POST", sessions, body, sessionId=key.session_id))
        except Conflict:
            raise SessionExists(*key) from None

        existing = await self._find(key)
        if existing is None:
            raise SessionNotFound(*key)
        session = existing.session(version=self._next_version())
        session.checked_at = checked_at
        return Created(session, [])

    async def fork(self, key: SessionKey, new_key: SessionKey, seq: int | None, now: float) -> CachedSession:
        raise NotOffered("Sessions on Vertex AI can't be forked")

    def append(
        self, key: SessionKey, prepared: Sequence[PreparedEvent], after_commit: Callable[[Stored], None]
    ) -> Awaitable[Stored]:
        """Raises NotOffered for several events."""
        return self._writes.start(lambda: self._append(key, prepared), after_commit, in_order_of=key)

    async def _append(self, key: SessionKey, prepared: Sequence[PreparedEvent]) -> Stored:
        if len(prepared) > 1:
            raise NotOffered("Vertex AI can't store several events in one step")

        stored: Stored = []
        for prepared_event in prepared:
            log = self.cache.peek(key)
            if log is None or key in self._unclear:
                log = await self.cache.fetch(key, whole=True)
                self._unclear.discard(key)
            if log is None:
                raise SessionNotFound(*key)
            seq = _seq_of(log.events, prepared_event.event.id)
            if seq is not None:
                stored.append((seq, False))
                continue
            try:
                await self._client.call("POST", f"{self._path(key)}:appendEvent", _to_api(prepared_event))
            except NotFound:
                raise SessionNotFound(*key) from None
            except StorageError:
                self._unclear.add(key)
                raise
            stored.append((len(log.events) + 1, True))
        return stored

    def delete(self, key: SessionKey, after_commit: Callable[[], None]) -> Awaitable[None]:
        return self._writes.start(lambda: self._delete(key), lambda _: after_commit())

    async def _delete(self, key: SessionKey) -> None:
        with suppress(NotFound):
            if await self._find(key) is not None:
                await self._client.finish(await self._client.call("DELETE", self._path(key)))

    async def delete_user(
        self, app_name: str, user_id: str, after_commit: Callable[[Sequence[SessionKey]], None]
    ) -> None:
        await self._writes.start(lambda: self._delete_user(app_name, user_id), after_commit)

    async def _delete_user(self, app_name: str, user_id: str) -> list[SessionKey]:
        """The keys of the deleted sessions. The user's state is removed by an event of one of them."""
        sessions = (await self.list_sessions(app_name, user_id, SessionFilter(), None, None)).sessions
        if not sessions:
            return []
        newest = sessions[-1]
        removed = [USER_PREFIX + name for name in newest.user.values]
        if removed:
            event = Event(author="user")
            event.actions.state_delta = dict.fromkeys(removed, REMOVED)
            body = _to_api(PreparedEvent(event))
            await self._client.call("POST", f"{self._path(newest.key)}:appendEvent", body)
        for session in sessions:
            await self._delete(session.key)
        return [session.key for session in sessions]

    async def read(
        self, key: SessionKey, *, known_number: int = 0, known_events: int = 0, from_compaction: bool = False
    ) -> CachedSession | None:
        version = self._next_version()
        resource = await self._find(key)
        if resource is None:
            return None
        cached = self.cache.peek(key) if known_events else None
        if cached is None or not resource.number == cached.number == known_number:
            return resource.session(await self._events(key), version)

        listed = await self._events(key, since=cached.events[-1].timestamp - _CLOCK_SKEW_SECONDS)
        if self.cache.peek(key) is not cached:
            return await self.read(key)
        ids = {event.id for event in cached.events}
        new = [event for event in listed if event.id not in ids]
        return resource.session([*cached.events[known_events:], *new], version)

    async def read_part(self, key: SessionKey, config: GetSessionConfig) -> CachedSession | None:
        if config.until_seq is not None:
            raise NotOffered("Vertex AI doesn't keep past states of sessions")
        session = await self.read(key)
        if session is not None:
            session.events = filter_events(session.events, config)
        return session

    async def read_events(self, key: SessionKey, after: int, limit: int | None) -> LogPage | None:
        session = await self.read(key)
        if session is None:
            return None
        first = max(after, 0)
        end = None if limit is None else first + limit
        return LogPage(session.events[first:end], len(session.events))

    async def read_later(self, key: SessionKey, last_id: str | None, known: int) -> list[Event] | None:
        session = await self.read(key)
        if session is None or (known and (len(session.events) < known or session.events[known - 1].id != last_id)):
            return None
        return session.events[known:]

    async def find_event(self, key: SessionKey, event_id: str) -> int | None:
        session = await self.read(key)
        if session is None:
            raise SessionNotFound(*key)
        return _seq_of(session.events, event_id)

    async def list_sessions(
        self, app_name: str, user_id: str | None, where: SessionFilter, limit: int | None, page_token: str | None
    ) -> SessionPage:
        """The order, and the token of a page, are the service's own."""
        if where.text is not None:
            raise NotOffered("Sessions on Vertex AI can't be searched by text")

        sessions: list[CachedSession] = []
        while True:
            page = await self._client.call(
                "GET",
                f"{self.engine(app_name)}/sessions",
                filter=None if user_id is None else f"user_id={wire.encode(user_id).decode()}",
                orderBy="update_time desc",
                pageSize=_PAGE if limit is None else min(limit - len(sessions), _PAGE),
                pageToken=page_token or None,
            )
            for fields in page.get("sessions") or ():
                session = _SessionResource.of(app_name, fields).session()
                if session.fits(where):
                    sessions.append(session)
            page_token = page.get("nextPageToken") or None
            if page_token is None or len(sessions) == limit:
                break

        if limit is None:
            sessions.sort(key=lambda session: (session.update_time, session.key))
        return SessionPage(sessions, page_token)

    async def list_apps(self) -> list[str]:
        raise NotOffered("VertexAiSessionService can't list its apps")

    async def is_current(self, cached: CachedSession) -> bool:
        """False after `TRUSTED_SECONDS`: a read lists only events that may be new."""
        return is_trusted(cached, time.monotonic())

    def engine(self, app_name: str) -> str:
        """Raises InvalidRequest."""
        chosen = self._engine_id(app_name) if callable(self._engine_id) else self._engine_id
        return self._client.engine(chosen or app_name)

    def _path(self, key: SessionKey) -> str:
        """Raises NotFound for an id that no session on Vertex AI has."""
        if _SESSION_ID.fullmatch(key.session_id) is None:
            raise NotFound(f"No session on Vertex AI has the id {key.session_id!r}")
        return f"{self.engine(key.app_name)}/sessions/{key.session_id}"

    async def _find(self, key: SessionKey) -> _SessionResource | None:
        try:
            resource = _SessionResource.of(key.app_name, await self._client.call("GET", self._path(key)))
        except NotFound:
            return None
        return resource if resource.key == key else None  # else it is another user's

    async def _events(self, key: SessionKey, since: float | None = None) -> list[Event]:
        wanted = None if since is None else f'timestamp>="{to_iso(since)}"'
        pages = self._client.pages(f"{self._path(key)}/events", "sessionEvents", filter=wanted, pageSize=_PAGE)
        return [_from_api(fields) async for fields in pages]

    def _next_version(self) -> int:
        """Returns the next version of the states of app and user: the read that began last wins."""
        self._reads += 1
        return self._reads


def _seq_of(events: Sequence[Event], event_id: str) -> int | None:
    for seq, event in enumerate(events, start=1):
        if event.id == event_id:
            return seq
    return None


def _to_api(prepared: PreparedEvent) -> JsonObject:
    event: Mapping[str, Any] = wire.to_plain(prepared.event)  # pyright: ignore[reportAssignmentType]
    own_actions = event.get("actions", {})
    actions = {name: own_actions[name] for name in _ACTIONS if name in own_actions}

    if "stateDelta" in actions:  # its null removes a key
        delta: JsonObject = actions["stateDelta"]
        actions["stateDelta"] = {key: None if value == REMOVED else value for key, value in delta.items()}
    if "transferToAgent" in own_actions:
        actions["transferAgent"] = own_actions["transferToAgent"]

    fields = {name: event[name] for name in ("content", "errorCode", "errorMessage") if name in event}
    return {
        "author": prepared.event.author,
        "invocationId": prepared.event.invocation_id or prepared.event.id,
        "timestamp": to_iso(prepared.event.timestamp),
        **fields,
        "actions": actions,
        "eventMetadata": {name: event[name] for name in _METADATA if name in event},
        "rawEvent": event,
    }


def _from_api(fields: JsonObject) -> Event:
    if raw := fields.get("rawEvent"):
        return wire.from_plain(raw, Event)
    actions = dict(fields.get("actions") or {})
    if "transferAgent" in actions:
        actions["transferToAgent"] = actions.pop("transferAgent")
    names = ("author", "invocationId", "content", "errorCode", "errorMessage")
    plain: JsonObject = {name: fields[name] for name in names if name in fields}
    metadata_fields: JsonObject = fields.get("eventMetadata") or {}
    metadata = {name: value for name, value in metadata_fields.items() if name in _METADATA}
    own_fields = {
        "id": fields["name"].rpartition("/")[2],
        "timestamp": from_iso(fields["timestamp"]),
        "actions": actions,
    }
    return wire.from_plain(plain | metadata | own_fields, Event)
