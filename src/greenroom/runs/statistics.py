"""Keeps the statistics: moves what runs have added into the sums, samples the load, and deletes old sums."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from greenroom.errors import GreenroomError
from greenroom.runs.store import RunLoad
from greenroom.statistics.store import ALL_APPS, LoadSample, Retention, StatisticsStore, minute_of

_log = logging.getLogger("greenroom.statistics")

FOLD_SECONDS = 20.0
"""Between two times at which what runs have added is moved into the sums; answers have it before, too."""
PRUNE_SECONDS = 3600.0


class StatisticsKeeper:
    """A background task of a server."""

    def __init__(
        self,
        store: StatisticsStore,
        retention: Retention,
        sample: Callable[[], Awaitable[Mapping[str, LoadSample]]],
        *,
        fold_seconds: float = FOLD_SECONDS,
    ) -> None:
        """Creates the task's object. sample: the load now, see `StatisticsStore.add_load`."""
        self._store = store
        self._retention = retention
        self._sample = sample
        self._fold_seconds = fold_seconds
        self._sampled_minute = 0
        self._pruned_at = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _keep(self) -> None:
        while True:
            try:
                await self.keep(time.time())
            except GreenroomError as error:  # the store fails; the journal keeps what runs add
                _log.warning("statistics are not updated: %s", error)
            await asyncio.sleep(self._fold_seconds)

    async def keep(self, now: float) -> None:
        """Does what is due. Raises StorageError."""
        await self._store.fold()
        minute = minute_of(now)
        if minute != self._sampled_minute:
            await self._store.add_load(minute, await self._sample())
            self._sampled_minute = minute
        if now - self._pruned_at >= PRUNE_SECONDS:
            await self._store.prune(now, self._retention)
            self._pruned_at = now


def load_of(loads: Mapping[str, RunLoad], requests: Mapping[str, int], *, replicas: int) -> dict[str, LoadSample]:
    """A sample of the load. loads, requests: the unfinished runs, and the open requests to people, by app."""
    by_app: dict[str, LoadSample] = {}
    for app_name in {*loads, *requests}:
        load = loads.get(app_name, RunLoad(0, 0))
        by_app[app_name] = LoadSample(load.running, load.queued, requests.get(app_name, 0))
    running, queued, open_requests = (sum(sample[position] for sample in by_app.values()) for position in range(3))
    return {ALL_APPS: LoadSample(running, queued, open_requests, replicas), **by_app}
