"""The cache of a backend's sessions in use, so that a turn reads no events."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from greenroom.records.session import SessionKey
from greenroom.records.state import apply_delta, split_by_scope
from greenroom.sessions.backend import SessionBackend
from greenroom.sessions.cached_session import CachedSession, ScopeState
from greenroom.sessions.frozen import to_frozen
from greenroom.sessions.prepared_event import PreparedEvent

T = TypeVar("T")

_BYTES_PER_EVENT = 1500


class Appended(NamedTuple):
    """An event that was stored."""

    key: SessionKey
    prepared: PreparedEvent
    seq: int


class Deleted(NamedTuple):
    """A session that was deleted."""

    key: SessionKey


Change: TypeAlias = Appended | CachedSession | Deleted
"""A commit of this process: an appended event, a created session, or a deleted one."""


class SessionCache:
    """A cache bounded by an estimate of bytes, and shared by all users of the database in this process.

    The writer reports each commit, in order, to an inbox; the next reader of the cache applies it. So the cache
    is right even when the awaiter of an append was cancelled, or its event loop is gone.
    """

    def __init__(self, backend: SessionBackend) -> None:
        self.backend = backend
        self.max_bytes = 0
        self.events_decoded = 0
        """Events that were read from the backend."""

        self._lock = threading.Lock()
        """Of all below but the inbox, which the writer appends to."""

        self._inbox: deque[Change] = deque()
        """Commits that the cache doesn't have yet, in their order."""

        self._sessions: OrderedDict[SessionKey, CachedSession] = OrderedDict()
        """The most recently used one is the last."""

        self._bytes = 0
        self._scopes: WeakValueDictionary[tuple[str, ...], ScopeState] = WeakValueDictionary()
        """States of apps and of users in them, which all their sessions share."""

        self._reads: dict[int, list[Change]] = {}
        """Of each read that is under way, the commits since it began."""

        self._tasks: dict[tuple[asyncio.AbstractEventLoop, SessionKey, bool], asyncio.Task[CachedSession | None]] = {}

    def report(self, change: Change) -> None:
        """Reports a commit; called by the writer, after it."""
        self._inbox.append(change)

    def peek(self, key: SessionKey) -> CachedSession | None:
        """The session if it is cached, with all that this process committed."""
        if self._inbox:
            self._take_inbox()
        cached = self._sessions.get(key)
        if cached is not None:
            self._sessions.move_to_end(key)
        return cached

    async def get_current(self, key: SessionKey) -> CachedSession | None:
        """Returns the session if it is cached, with the writes of other processes up to 50 ms ago."""
        cached = self.peek(key)
        if cached is None or not await self.backend.is_current(cached):
            return None
        return cached if self.peek(key) is cached else None

    async def fetch(self, key: SessionKey, *, whole: bool = False) -> CachedSession | None:
        """Reads the session, or its new events, from the backend; concurrent calls share one read.

        whole: with the events before the newest compaction.
        """
        reading = asyncio.get_running_loop(), key, whole
        task = self._tasks.get(reading)
        if task is None:
            task = self._tasks[reading] = reading[0].create_task(self._fetch(key, whole))
            task.add_done_callback(partial(self._forget_task, reading))
        return await asyncio.shield(task)

    def _forget_task(
        self, reading: tuple[asyncio.AbstractEventLoop, SessionKey, bool], task: asyncio.Task[CachedSession | None]
    ) -> None:
        self._tasks.pop(reading, None)
        if not task.cancelled():
            task.exception()  # Waiting callers get it; there may be none left.

    async def _fetch(self, key: SessionKey, whole: bool) -> CachedSession | None:
        held = self.peek(key)
        if held is not None and whole and held.events.skipped:
            held = None
        number, events = (held.number, held.events.end) if held else (0, 0)

        started = time.monotonic()
        epoch = self.backend.epoch
        meanwhile: list[Change] = []
        self._reads[id(meanwhile)] = meanwhile
        try:
            stored = await self.backend.read(key, known_number=number, known_events=events, from_compaction=not whole)
            self._take_inbox()
        finally:
            del self._reads[id(meanwhile)]

        with self._lock:
            if stored is None:
                if held is not None and self._sessions.get(key) is held:
                    self._drop(key)
                return self._sessions.get(key)

            self.events_decoded += len(stored.events) + len(stored.events.carried)
            grown = stored.size + len(stored.events) * _BYTES_PER_EVENT
            self._share_scopes(stored)

            if held is not None and held.number == stored.number:
                cached = held
                for event in stored.events[held.events.end - events :]:
                    cached.append(event, to_frozen(split_by_scope(event.actions.state_delta).session))
            else:
                cached = stored
                stored.size = 0

            cached.epoch = epoch
            cached.checked_at = started

            if not any(isinstance(change, Deleted) and change.key == key for change in meanwhile):
                self._hold(cached, grown)

            # The snapshot that was read may be older than these; those that it has are passed over.
            for change in meanwhile:
                self._apply(change)
            return cached

    def _take_inbox(self) -> None:
        with self._lock:
            while self._inbox:
                change = self._inbox.popleft()
                self._apply(change)
                for meanwhile in self._reads.values():
                    meanwhile.append(change)

    def _apply(self, change: Change) -> None:
        key = change.key
        cached = self._sessions.get(key)
        if isinstance(change, Appended):
            prepared = change.prepared
            for owner, values in ((key[:1], prepared.scoped.app), (key[:2], prepared.scoped.user)):
                if values and (scope := self._scopes.get(owner)) is not None:
                    apply_delta(scope.values, values)
                    scope.version = -1

            # After a gap, which another process made, the session is synchronised by the next read.
            if cached is not None and change.seq == cached.events.end + 1:
                cached.append(prepared.event, prepared.scoped.session)
                self._hold(cached, len(prepared.json or b"") + _BYTES_PER_EVENT)
        elif isinstance(change, CachedSession):
            if cached is None or cached.number != change.number:
                self._share_scopes(change)
                self._hold(change, _BYTES_PER_EVENT)
        else:
            self._drop(key)

    def _share_scopes(self, read: CachedSession) -> None:
        """Sets the shared states of app and user to the values just read, which the session then shares."""
        app = self._scopes.setdefault(read.key[:1], read.app)
        user = self._scopes.setdefault(read.key[:2], read.user)
        for shared, state in ((app, read.app), (user, read.user)):
            if state.version >= shared.version:  # else another read was later
                shared.values = state.values
                shared.version = state.version
        read.app = app
        read.user = user

    def _hold(self, cached: CachedSession, grown: int) -> None:
        if self._sessions.get(cached.key) is not cached:
            self._drop(cached.key)
            self._sessions[cached.key] = cached
            self._bytes += cached.size
        self._sessions.move_to_end(cached.key)
        cached.size += grown
        self._bytes += grown

        # Keeps one session of any size, unless the limit is zero.
        while self._bytes > self.max_bytes and len(self._sessions) > (self.max_bytes > 0):
            self._drop(next(iter(self._sessions)))

    def release(self, key: SessionKey) -> None:
        """Removes the session from the cache; the next reader reads it from the database."""
        self._take_inbox()
        with self._lock:
            self._drop(key)

    def release_all(self, of: Callable[[SessionKey], bool]) -> None:
        """Like `release`, for all sessions for which `of` is true."""
        self._take_inbox()
        with self._lock:
            for key in [key for key in self._sessions if of(key)]:
                self._drop(key)

    def _drop(self, key: SessionKey) -> None:
        cached = self._sessions.pop(key, None)
        if cached is not None:
            self._bytes -= cached.size
