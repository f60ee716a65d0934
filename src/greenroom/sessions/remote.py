"""The shared part of the session stores on services of others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import cached_property
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from greenroom.records.session import SessionKey
from greenroom.sessions.cached_service import CachedSessionService
from greenroom.sqlite.database import Database
from greenroom.usage.in_memory import InMemoryUsageStore
from greenroom.usage.sqlite import SqliteUsageStore
from greenroom.usage.store import UsageStore

T = TypeVar("T")


class RemoteSessionService(CachedSessionService):
    """Keeps the usage of models in the server's own database, since the service keeps sessions only."""

    is_remote = True
    _usage_database: Database | None = None

    @cached_property
    def usage(self) -> UsageStore:
        if self.server_database is None:
            return InMemoryUsageStore()
        self._usage_database = Database.open(self.server_database)
        return SqliteUsageStore(self._usage_database)

    async def close(self) -> None:
        if self._usage_database is not None:
            await self._usage_database.close()
            self._usage_database = None
        await super().close()


class RemoteWrites:
    """Runs each write as a task of its own, so that it is completed also when its awaiter is cancelled."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[SessionKey, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        after_commit: Callable[[T], None] | None = None,
        *,
        in_order_of: SessionKey | None = None,
    ) -> Awaitable[T]:
        """Starts a write. Writes to the session `in_order_of` run one after the other, in the order of these calls."""
        lock = None if in_order_of is None else self._locks.setdefault(in_order_of, asyncio.Lock())
        task = asyncio.get_running_loop().create_task(self._run(work, after_commit, lock))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return asyncio.shield(task)

    async def _run(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        after_commit: Callable[[T], None] | None,
        lock: asyncio.Lock | None,
    ) -> T:
        async with lock or asyncio.Lock():
            result = await work()
            if after_commit is not None:
                after_commit(result)
            return result

    async def finish(self) -> None:
        """Waits for the writes that were started."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
