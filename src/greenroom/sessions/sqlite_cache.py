"""The sessions of a database file that are in use, kept in memory so that a turn reads nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict, deque
from functools import partial
from typing import NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from greenroom.records.session import SessionKey
from greenroom.records.state import ScopedDelta, apply_delta, split_by_scope
from greenroom.sessions import sqlite_rows
from greenroom.sessions.resident import PreparedEvent, Resident, ScopeState, freeze
from greenroom.sqlite.database import Database

TRUSTED_SECONDS = 0.05
"""How long a session in memory is taken for current without asking whether another process wrote to the file."""

_BYTES_PER_EVENT = 1500
_BYTES_PER_JSON_BYTE = 1


class Appended(NamedTuple):
    key: SessionKey
    prepared: PreparedEvent
    place: int


class Created(NamedTuple):
    key: SessionKey
    number: int
    update_time: float
    delta: ScopedDelta
    scopes: sqlite_rows.Scopes


class Deleted(NamedTuple):
    key: SessionKey


Change: TypeAlias = Appended | Created | Deleted


class HotSessions:
    """A cache bounded by an estimate of bytes, and shared by all that use the file in this process.

    The writer thread reports what it committed, in the order of commits, to an inbox; whoever looks at the cache next
    takes it in. So the cache is right even when the awaiter of an append was cancelled, or its event loop is gone.
    """

    def __init__(self, database: Database) -> None:
        self.max_bytes = 0
        self.events_decoded = 0
        self._database = database
        self._lock = threading.Lock()
        self._inbox: deque[Change] = deque()
        self._residents: OrderedDict[SessionKey, Resident] = OrderedDict()
        self._bytes = 0
        self._scopes: WeakValueDictionary[tuple[str, ...], ScopeState] = WeakValueDictionary()
        self._epoch = 0
        """One more with each foreign write; what was read in an earlier epoch is read on before it is used."""
        self._reads: dict[int, list[Change]] = {}
        self._tasks: dict[tuple[asyncio.AbstractEventLoop, SessionKey], asyncio.Task[Resident | None]] = {}
        database.on_foreign_write(self._start_epoch)

    def _start_epoch(self) -> None:
        self._epoch += 1

    def report(self, change: Change) -> None:
        """Tell of a commit; called in the writer thread, after it."""
        self._inbox.append(change)

    def peek(self, key: SessionKey) -> Resident | None:
        """The session if it is in memory, with all that this process committed."""
        if self._inbox:
            self._take_inbox()
        resident = self._residents.get(key)
        if resident is not None:
            self._residents.move_to_end(key)
        return resident

    async def get_current(self, key: SessionKey) -> Resident | None:
        """The session if it is in memory, and nothing that another process wrote is missing from it for long."""
        resident = self._known(key)
        if resident is not None:
            known_at = max(resident.checked_at, self._database.looked_at)
            if time.monotonic() - known_at >= TRUSTED_SECONDS:
                await self._database.look()
                resident = self._known(key)
        return resident

    def _known(self, key: SessionKey) -> Resident | None:
        resident = self.peek(key)
        return None if resident is None or resident.epoch != self._epoch else resident

    async def fetch(self, key: SessionKey) -> Resident | None:
        """Read the session, or what is new of it, from the file; one reading serves all who ask meanwhile."""
        place = asyncio.get_running_loop(), key
        task = self._tasks.get(place)
        if task is None:
            task = self._tasks[place] = place[0].create_task(self._fetch(key))
            task.add_done_callback(partial(self._forget_task, place))
        return await asyncio.shield(task)

    def _forget_task(
        self, place: tuple[asyncio.AbstractEventLoop, SessionKey], task: asyncio.Task[Resident | None]
    ) -> None:
        self._tasks.pop(place, None)
        if not task.cancelled():
            task.exception()  # Raised to those who wait; nobody may wait any more.

    async def _fetch(self, key: SessionKey) -> Resident | None:
        known = self.peek(key)
        number, events = (known.number, len(known.events)) if known else (0, 0)
        started, epoch = time.monotonic(), self._epoch
        meanwhile: list[Change] = []
        self._reads[id(meanwhile)] = meanwhile
        try:
            stored = await self._database.read(
                lambda cursor: sqlite_rows.read(cursor, key, known_number=number, known_events=events)
            )
            self._take_inbox()
        finally:
            del self._reads[id(meanwhile)]
        with self._lock:
            if stored is None:
                if known is not None and self._residents.get(key) is known:
                    self._drop(key)
                return self._residents.get(key)
            self.events_decoded += len(stored.events)
            if known is not None and known.number == stored.number:
                resident = known
                self._share_scopes(key, stored.scopes)
                for event in stored.events[len(known.events) - events :]:
                    resident.append(event, freeze(split_by_scope(event.actions.state_delta).session))
            else:
                resident = self._make(key, stored.number, stored.update_time, stored.scopes)
                resident.state = stored.state
                resident.events.extend(stored.events)
            resident.epoch, resident.checked_at = epoch, started
            if not any(isinstance(change, Deleted) and change.key == key for change in meanwhile):
                self._hold(resident, stored.size * _BYTES_PER_JSON_BYTE + len(stored.events) * _BYTES_PER_EVENT)
            # The snapshot that was read may be older than these; those that it has are passed over.
            for change in meanwhile:
                self._take(change)
            return resident

    def _take_inbox(self) -> None:
        with self._lock:
            while self._inbox:
                change = self._inbox.popleft()
                self._take(change)
                for meanwhile in self._reads.values():
                    meanwhile.append(change)

    def _take(self, change: Change) -> None:
        key = change.key
        resident = self._residents.get(key)
        if isinstance(change, Appended):
            prepared = change.prepared
            for owner, values in ((key[:1], prepared.scoped.app), (key[:2], prepared.scoped.user)):
                if values and (scope := self._scopes.get(owner)) is not None:
                    apply_delta(scope.values, values)
            # After a gap, which another process made, the session is read on when it is next asked for.
            if resident is not None and change.place == len(resident.events) + 1:
                resident.append(prepared.event, prepared.scoped.session)
                self._hold(resident, len(prepared.json or b"") * _BYTES_PER_JSON_BYTE + _BYTES_PER_EVENT)
        elif isinstance(change, Created):
            if resident is None or resident.number != change.number:
                resident = self._make(key, change.number, change.update_time, change.scopes)
                apply_delta(resident.state, change.delta.session)
                resident.epoch = self._epoch
                self._hold(resident, _BYTES_PER_EVENT)
        else:
            self._drop(key)

    def _make(self, key: SessionKey, number: int, update_time: float, scopes: sqlite_rows.Scopes) -> Resident:
        app, user = self._share_scopes(key, scopes)
        return Resident(key, app=app, user=user, state={}, update_time=update_time, number=number)

    def _share_scopes(self, key: SessionKey, scopes: sqlite_rows.Scopes) -> tuple[ScopeState, ScopeState]:
        """The states of app and user that all sessions in memory share, set to what was just read."""
        app = self._scopes.setdefault(key[:1], ScopeState({}))
        user = self._scopes.setdefault(key[:2], ScopeState({}))
        app.values, user.values = scopes
        return app, user

    def _hold(self, resident: Resident, grown: int) -> None:
        if self._residents.get(resident.key) is not resident:
            self._drop(resident.key)
            self._residents[resident.key] = resident
            self._bytes += resident.size
        self._residents.move_to_end(resident.key)
        resident.size += grown
        self._bytes += grown
        # One is kept however large it is, unless nothing is to be kept at all.
        while self._bytes > self.max_bytes and len(self._residents) > (self.max_bytes > 0):
            self._drop(next(iter(self._residents)))

    def _drop(self, key: SessionKey) -> None:
        resident = self._residents.pop(key, None)
        if resident is not None:
            self._bytes -= resident.size
