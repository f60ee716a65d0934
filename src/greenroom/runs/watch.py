"""Changes of run records, for readers of a list of runs."""

from __future__ import annotations

import asyncio

import msgspec

from greenroom.records.run import Run, RunFilter

MAX_PENDING = 1000


class RunWatches:
    """The watches of one engine. Its stores are locked, so no other process changes a record."""

    def __init__(self) -> None:
        self._watches: set[RunWatch] = set()

    def open(self, where: RunFilter) -> RunWatch:
        watch = RunWatch(where, self._watches)
        self._watches.add(watch)
        return watch

    def publish(self, run: Run) -> None:
        for watch in self._watches:
            watch.add(run)


class RunWatch:
    """A bounded queue of changed runs; several changes of one run are merged. Changes of all statuses are queued, since
    a run whose status no longer fits the filter must be removed from a list.
    """

    def __init__(self, where: RunFilter, watches: set[RunWatch]) -> None:
        self._where = msgspec.structs.replace(where, statuses=None)
        self._watches = watches
        self._pending: dict[str, Run] = {}
        self._has_overflowed = False
        self._changed = asyncio.Event()

    def add(self, run: Run) -> None:
        if not self._has_overflowed and matches(run, self._where):
            self._pending[run.id] = run
            if len(self._pending) > MAX_PENDING:
                self._pending.clear()
                self._has_overflowed = True
            self._changed.set()

    async def next_batch(self, *, idle_seconds: float) -> list[Run] | None:
        """Changed runs; empty after `idle_seconds` without changes; None if changes were lost, so that the list must be
        read again."""
        try:
            async with asyncio.timeout(idle_seconds):
                await self._changed.wait()
        except TimeoutError:
            return []
        self._changed.clear()
        if self._has_overflowed:
            self._has_overflowed = False
            return None
        batch = list(self._pending.values())
        self._pending.clear()
        return batch

    def close(self) -> None:
        self._watches.discard(self)


def matches(run: Run, where: RunFilter) -> bool:
    return (
        (where.app_names is None or run.app_name in where.app_names)
        and where.user_id in (None, run.user_id)
        and where.session_id in (None, run.session_id)
        and (where.statuses is None or run.status in where.statuses)
        and (where.created_from is None or run.created_at >= where.created_from)
        and (where.created_before is None or run.created_at < where.created_before)
    )
