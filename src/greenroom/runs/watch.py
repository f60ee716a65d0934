"""Changes of run records, for readers of a list of runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from greenroom.records.run import Run, RunFilter
from greenroom.runs.store import RunStore

MAX_PENDING = 1000


class RunWatches:
    """The watches of one engine."""

    def __init__(self) -> None:
        self._watches: set[RunWatch] = set()
        self._of_all_servers: set[RunWatch] = set()
        self._following = asyncio.Lock()
        self._stop_following: Callable[[], None] | None = None

    def open(self, where: RunFilter) -> RunWatch:
        """A watch of this server's runs."""
        watch = RunWatch(where, self._close)
        self._watches.add(watch)
        return watch

    async def open_for_all(self, where: RunFilter, store: RunStore, *, is_own: Callable[[str], bool]) -> RunWatch:
        """A watch of the runs of all servers on the store.

        is_own: true for the id of a run of which this server publishes all changes itself.
        """

        def changed(runs: Sequence[Run] | None) -> None:
            for watch in self._of_all_servers:
                if runs is None:
                    watch.lose()
                else:
                    for run in runs:
                        if not is_own(run.id):
                            watch.add(run)

        watch = self.open(where)
        self._of_all_servers.add(watch)
        try:
            async with self._following:
                if self._stop_following is None:
                    self._stop_following = await store.follow(changed)
        except BaseException:
            watch.close()
            raise
        return watch

    def publish(self, run: Run) -> None:
        for watch in self._watches:
            watch.add(run)

    def _close(self, watch: RunWatch) -> None:
        self._watches.discard(watch)
        self._of_all_servers.discard(watch)
        if not self._of_all_servers and self._stop_following is not None:
            self._stop_following()
            self._stop_following = None


class RunWatch:
    """A bounded queue of changed runs; several changes of one run are merged. Changes of all statuses are queued, since
    a run whose status no longer fits the filter must be removed from a list.
    """

    def __init__(self, where: RunFilter, close: Callable[[RunWatch], None]) -> None:
        self._where = msgspec.structs.replace(where, statuses=None, error_code=None)
        self._close = close
        self._pending: dict[str, Run] = {}
        self._has_lost = False
        self._changed = asyncio.Event()

    def add(self, run: Run) -> None:
        if not self._has_lost and matches(run, self._where):
            self._pending[run.id] = run
            if len(self._pending) > MAX_PENDING:
                self.lose()
            self._changed.set()

    def lose(self) -> None:
        """Notes that changes were lost."""
        self._pending.clear()
        self._has_lost = True
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
        if self._has_lost:
            self._has_lost = False
            return None
        batch = list(self._pending.values())
        self._pending.clear()
        return batch

    def close(self) -> None:
        self._close(self)


def matches(run: Run, where: RunFilter) -> bool:
    return (
        (where.app_names is None or run.app_name in where.app_names)
        and where.user_id in (None, run.user_id)
        and where.session_id in (None, run.session_id)
        and (where.statuses is None or run.status in where.statuses)
        and (where.error_code is None or (run.error is not None and run.error.code == where.error_code))
        and where.app_version in (None, run.app_version)
        and (where.created_from is None or run.created_at >= where.created_from)
        and (where.created_before is None or run.created_at < where.created_before)
    )
