"""Reports the states of runs to receivers of push notifications, in the background.

Each state is reported at least once, in order; if several states follow each other while the receiver fails, only the
newest is. Receivers are stored with the runs, so that the next process sends unsent reports.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from greenroom.errors import InvalidRequest, OwnershipLost, RunNotFound
from greenroom.records.run import PushConfig, Run, RunFilter, RunStatus
from greenroom.records.shard import Shards
from greenroom.runs.ownership import require
from greenroom.runs.store import RunStore
from greenroom.runs.watch import RunWatch, RunWatches

_log = logging.getLogger("greenroom.runs")

MAX_PER_RUN = 10
_AT_ONCE = 16
_IDLE_SECONDS = 3600.0

Send: TypeAlias = Callable[[Run, PushConfig], Awaitable[None]]
"""Sends the state of a run. It may raise anything, and is called again then."""

_Key: TypeAlias = tuple[str, str]


@dataclass(eq=False)
class PushNotifications:
    """Sends push notifications.

    retry_seconds: the pauses after failures, shortened by up to a half at random; after the last of them, a state is
    given up, and the next one is tried.
    """

    run_store: RunStore
    watches: RunWatches
    get: Callable[[str], Awaitable[Run]]
    retry_seconds: tuple[float, ...] = (1.0, 5.0, 30.0, 120.0, 600.0)

    def __post_init__(self) -> None:
        self._open: dict[str, dict[str, PushConfig]] = {}
        self._changed: set[_Key] = set()
        self._tasks: dict[_Key, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._send: Send | None = None

    async def save(self, run: Run, config: PushConfig) -> None:
        """Adds or replaces a receiver, which receives the states that differ from its `reported`.

        Raises InvalidRequest if the run has `MAX_PER_RUN` others.
        """
        if self.run_store.ownership is not None:
            require(self.run_store.ownership, run.session_key)
        ids = {one.id for one in await self.run_store.list_push_configs(run.id)}
        if len(ids | {config.id}) > MAX_PER_RUN:
            raise InvalidRequest(f"A run may have {MAX_PER_RUN} webhooks")
        await self._drop(config.run_id, config.id)
        await self.run_store.save_push_config(config)
        if not config.is_over:
            self._open.setdefault(run.id, {})[config.id] = config
            self.watches.publish(run)

    async def list(self, run_id: str) -> list[PushConfig]:
        return await self.run_store.list_push_configs(run_id)

    async def delete(self, run: Run, config_id: str) -> None:
        if self.run_store.ownership is not None:
            require(self.run_store.ownership, run.session_key)
        await self._drop(run.id, config_id)
        await self.run_store.delete_push_config(run.id, config_id)

    @asynccontextmanager
    async def reporting(self, send: Send) -> AsyncGenerator[None]:
        """Reports with `send` inside the context."""
        watch = self.watches.open(RunFilter())
        self._send = send
        ownership = self.run_store.ownership
        await self.resume(None if ownership is None else ownership.owned())
        following = asyncio.create_task(self._follow(watch, send))
        try:
            yield
        finally:
            watch.close()
            self._send = None
            tasks = [following, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def resume(self, shards: Shards | None) -> None:
        """Sends the reports that an earlier process has not sent.

        shards: those that this process has taken; None where it owns all sessions.
        """
        send = self._send
        if send is None:
            return
        for config in await self.run_store.list_open_push_configs(shards):
            if (config.run_id, config.id) not in self._tasks:
                self._open.setdefault(config.run_id, {})[config.id] = config
        self._wake(self._open, send)

    async def _follow(self, watch: RunWatch, send: Send) -> None:
        while True:
            batch = await watch.next_batch(idle_seconds=_IDLE_SECONDS)
            self._wake(self._open if batch is None else (run.id for run in batch), send)

    def _wake(self, run_ids: Iterable[str], send: Send) -> None:
        for run_id in run_ids:
            for config in self._open.get(run_id, {}).values():
                key = run_id, config.id
                self._changed.add(key)
                if key not in self._tasks:
                    self._tasks[key] = asyncio.create_task(self._report(key, config, send))

    async def _drop(self, run_id: str, config_id: str) -> None:
        of_run = self._open.get(run_id, {})
        of_run.pop(config_id, None)
        if not of_run:
            self._open.pop(run_id, None)
        task = self._tasks.get((run_id, config_id))
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])

    async def _report(self, key: _Key, config: PushConfig, send: Send) -> None:
        failures = 0
        try:
            while key in self._changed:
                self._changed.discard(key)
                try:
                    failures = await self._report_state(config, send, is_last_try=failures >= len(self.retry_seconds))
                except (RunNotFound, OwnershipLost):  # else the server that runs the session reports them
                    await self._drop(*key)
                except Exception as error:  # receivers and stores fail in any way
                    pause = self.retry_seconds[min(failures, len(self.retry_seconds) - 1)]
                    failures += 1
                    _log.warning(
                        "push notification %s of run %s failed: %s: %s", key[1], key[0], type(error).__name__, error
                    )
                    await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                    self._changed.add(key)
        finally:
            self._changed.discard(key)
            del self._tasks[key]

    async def _report_state(self, config: PushConfig, send: Send, *, is_last_try: bool) -> int:
        """Sends the state unless it was reported. Returns the number of failures, which is 0. Raises OwnershipLost."""
        run = await self.get(config.run_id)
        if self.run_store.ownership is not None:
            require(self.run_store.ownership, run.session_key)
        state = state_of(run)
        if state == config.reported or run.status is RunStatus.QUEUED:
            return 0
        try:
            async with self._slots:
                await send(run, config)
        except Exception as error:
            if not is_last_try:
                raise
            _log.warning("push notification %s of run %s is not sent %s: %s", config.id, run.id, run.status, error)
        is_over = run.status.is_over and run.status is not RunStatus.WAITING
        await self.run_store.save_push_config(msgspec.structs.replace(config, reported=state, is_over=is_over))
        config.reported = state
        config.is_over = is_over
        if config.is_over:
            await self._drop(config.run_id, config.id)
        return 0


def state_of(run: Run) -> str:
    """A run waits and continues several times, so that a status alone is no state."""
    return f"{run.status} {run.message_after_seq}"
