"""Follows the ownership of sessions: resumes the runs of taken sessions, and drops those of lost ones.

The start of a server is the first case: it has taken sessions, and resumes the runs that an earlier server left.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass

from greenroom.errors import OwnershipLost, StorageError
from greenroom.records.session import SessionKey
from greenroom.records.shard import Shards, shard_of
from greenroom.runs.ownership import IsOf, Ownership

_log = logging.getLogger("greenroom.runs")

RETRY_SECONDS = 1.0


@dataclass(eq=False)
class Takeovers:
    """The takeovers of one engine, in its event loop."""

    ownership: Ownership
    resume: Callable[[Shards], Awaitable[int]]
    """Resumes the unfinished runs of shards, and returns their number. Raises StorageError without effects."""

    abandon: Callable[[IsOf], None]
    """Drops the runs of sessions."""

    leave: Callable[[IsOf], Coroutine[None, None, None]]
    """The same for sessions that are given back, which are still owned until it returns. Takes less than the lease."""

    busy_sessions: Callable[[], Iterable[SessionKey]]
    """Returns the sessions with work that giving them back would interrupt."""

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[concurrent.futures.Future[int], Shards] = {}
        self._has_started = False
        self._stop_listening: Callable[[], None] | None = None

    async def start(self) -> int:
        """Resumes the runs of the sessions that are owned already, and returns their number. Raises StorageError."""
        self._stop_listening = self.ownership.add_listener(
            lost=self._lost, taken=self._taken, leaving=self._leaving, busy=self._busy
        )
        count = 0
        for taking in list(self._under_way):
            count += await asyncio.wrap_future(taking)
        self._has_started = True
        return count

    async def wait_until_ready(self, key: SessionKey) -> None:
        """Returns when this process owns the session, and has resumed its runs. Raises OwnershipLost."""
        if not self.ownership.owns(key):
            raise OwnershipLost(*key)
        for taking, shards in list(self._under_way.items()):
            if shards.include(key):
                await asyncio.wait([asyncio.wrap_future(taking)])

    def stop(self) -> None:
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
        for taking in list(self._under_way):
            taking.cancel()

    def _lost(self, shards: Shards) -> None:
        """Called in any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.abandon, shards.include)

    async def _leaving(self, shards: Shards) -> None:
        """Called in any thread."""
        if not self._loop.is_closed():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.leave(shards.include), self._loop))

    def _busy(self) -> Shards:
        """Called in any thread."""
        being_taken = frozenset[int]().union(*self._under_way.copy().values())
        return Shards(being_taken.union(shard_of(key) for key in self.busy_sessions()))

    def _taken(self, shards: Shards) -> None:
        """Called in any thread."""
        if not self._loop.is_closed():
            taking = asyncio.run_coroutine_threadsafe(self._take_over(shards), self._loop)
            self._under_way[taking] = shards
            taking.add_done_callback(self._under_way.pop)

    async def _take_over(self, shards: Shards) -> int:
        while True:
            try:
                count = await self.resume(shards)
            except StorageError as error:
                if not self._has_started:
                    raise
                _log.error("the runs of sessions that were taken can't be read, and are tried again: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                if count and self._has_started:
                    _log.info("resumed %d runs of sessions that were taken", count)
                return count
