"""Base of the session stores on services of others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import cached_property
from typing import Any, ClassVar, TypeVar
from weakref import WeakValueDictionary

from greenroom.errors import NotOffered
from greenroom.records.base import JsonObject
from greenroom.records.session import SessionKey
from greenroom.records.state import ScopedDelta, apply_delta
from greenroom.sessions.cached_session import CachedSession, PreparedEvent, ScopeState
from greenroom.sessions.session_cache import TRUSTED_SECONDS, SessionCache, SessionDatabase
from greenroom.sessions.sql import SqlSessionService
from greenroom.sessions.sql_queries import Stored
from greenroom.sqlite.database import Database
from greenroom.usage.in_memory import InMemoryUsageStore
from greenroom.usage.sqlite import SqliteUsageStore
from greenroom.usage.store import UsageStore

T = TypeVar("T")


class WrittenByOthers(Exception):
    """Carries what `prepare` of the queries needs before the operation is repeated."""


class RemoteSessionService(SqlSessionService):
    """Caches sessions, and brings their holders up to date, as the stores on databases do."""

    is_remote = True

    def __init__(self, queries: Callable[[], Any], *, cache_bytes: int, close: Callable[[], Awaitable[None]]) -> None:
        """queries: makes an object with the methods of `SessionQueries`, for one operation."""
        self._remote = RemoteSessionDatabase(queries)
        self._close_client = close
        self._usage_database: Database | None = None
        super().__init__(self._remote, SessionCache(self._remote), cache_bytes=cache_bytes)  # pyright: ignore[reportArgumentType]

    @cached_property
    def usage(self) -> UsageStore:
        if self.server_database is None:
            return InMemoryUsageStore()
        self._usage_database = Database.open(self.server_database)
        return SqliteUsageStore(self._usage_database)

    async def list_apps(self) -> list[str]:
        raise NotOffered(f"{type(self).__name__} can't list its apps")

    async def close(self) -> None:
        await self._remote.finish()
        if self._usage_database is not None:
            await self._usage_database.close()
            self._usage_database = None
        await self._close_client()


class RemoteQueries:
    """Base of the queries of one operation. A session is created by `append`, which follows `create`."""

    service: ClassVar[str]
    """Preposition and name of the service, for errors."""

    def __init__(self) -> None:
        self._new: CachedSession | None = None
        self._new_delta = ScopedDelta({}, {}, {})

    async def create(self, key: SessionKey, now: float, delta: ScopedDelta) -> CachedSession:
        initial: JsonObject = {}
        apply_delta(initial, delta.session)
        unknown = ScopeState({}, -2)
        self._new_delta = delta
        self._new = CachedSession(
            key, app=unknown, user=unknown, state=initial, update_time=now, number=time.time_ns() // 1000
        )
        return self._new

    async def fork(self, *_: object) -> CachedSession:
        raise NotOffered(f"Sessions {self.service} can't be forked")


class RemoteSessionDatabase(SessionDatabase):
    """Appends of this process to one session are in the order of the calls."""

    def __init__(self, queries: Callable[[], Any]) -> None:
        self._queries = queries
        self._locks: WeakValueDictionary[SessionKey, asyncio.Lock] = WeakValueDictionary()
        self._writes: set[asyncio.Task[Any]] = set()

    def write(
        self, work: Callable[[Any], Coroutine[Any, Any, T]], then: Callable[[T], None] | None = None
    ) -> Awaitable[T]:
        return self._start(asyncio.Lock(), work, then)

    def append(
        self, key: SessionKey, prepared: Sequence[PreparedEvent], then: Callable[[Stored], None]
    ) -> Awaitable[Stored]:
        lock = self._locks.setdefault(key, asyncio.Lock())
        return self._start(lock, lambda queries: queries.append(key, prepared), then)

    append_rows = append

    async def read(self, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        queries = self._queries()
        try:
            return await work(queries)
        except WrittenByOthers as found:
            await queries.prepare(*found.args)
            return await work(queries)

    async def is_current(self, cached: CachedSession) -> bool:
        versions = cached.app.version, cached.user.version
        started = time.monotonic()
        if started - cached.checked_at < TRUSTED_SECONDS and min(versions) >= 0:
            return True
        if not await self.read(lambda queries: queries.is_current(cached)):
            return False
        cached.checked_at = started
        return True

    def _start(
        self, lock: asyncio.Lock, work: Callable[[Any], Coroutine[Any, Any, T]], then: Callable[[T], None] | None
    ) -> Awaitable[T]:
        """The write is completed also when its awaiter is cancelled."""

        async def run() -> T:
            async with lock:
                result = await self.read(work)
                if then is not None:
                    then(result)
                return result

        task = asyncio.get_running_loop().create_task(run())
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return asyncio.shield(task)

    async def finish(self) -> None:
        """Waits for the writes that were started."""
        await asyncio.gather(*self._writes, return_exceptions=True)
