"""Adds the events of ended runs to memory in the background, where an app's policy says so.

The record of a run that ends is saved with a mark, which is removed when memory has its events: after a crash, runs
that have the mark are added again, which stores no event twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from greenroom.errors import GreenroomError, SessionNotFound
from greenroom.records.run import Run
from greenroom.records.session import SessionKey
from greenroom.runner.remember import remember
from greenroom.runner.runner import Runner
from greenroom.runs.store import RunStore

_log = logging.getLogger("greenroom.runs")

_AT_ONCE = 8


@dataclass(eq=False)
class MemoryWriter:
    """Adds ended runs to memory in the background.

    retry_seconds: the pauses after failures; after the last of them, a run is left for the next start.
    """

    run_store: RunStore
    retry_seconds: tuple[float, ...] = (1.0, 5.0, 30.0)

    def __post_init__(self) -> None:
        self._tasks: dict[str, tuple[Run, asyncio.Task[None]]] = {}
        self._newer: dict[str, tuple[Run, Runner]] = {}
        """Runs that have been continued and have ended again while their earlier events are being added."""

        self._slots = asyncio.Semaphore(_AT_ONCE)

    def is_pending(self, run_id: str) -> bool:
        return run_id in self._tasks

    def add(self, run: Run, runner: Runner) -> None:
        """Starts to add the run's events, unless that was started already for this record of it."""
        started = self._tasks.get(run.id)
        if started is None:
            self._tasks[run.id] = run, asyncio.create_task(self._remember(run, runner))
        elif started[0] is not run:
            self._newer[run.id] = run, runner

    def busy_sessions(self) -> set[SessionKey]:
        """The sessions whose runs are being added."""
        return {run.session_key for run, _ in list(self._tasks.values())}

    async def cancel(self, key: SessionKey) -> None:
        """Returns when nothing of the session is being written any more."""
        tasks = [task for run, task in self._tasks.values() if run.session_key == key]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def abandon(self, is_lost: Callable[[SessionKey], bool]) -> None:
        """Leaves the runs of sessions to the server that runs them now."""
        for run, task in self._tasks.values():
            if is_lost(run.session_key):
                task.cancel()

    async def close(self, *, grace_seconds: float) -> None:
        """Runs that take longer are left for the next start."""
        tasks = [task for _, task in self._tasks.values()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace_seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _remember(self, run: Run, runner: Runner) -> None:
        try:
            is_done = await self._add_events(run, runner)
            while (newer := self._newer.pop(run.id, None)) is not None:
                is_done = await self._add_events(*newer)
        finally:
            del self._tasks[run.id]
            self._newer.pop(run.id, None)
        if is_done:
            self.run_store.remembered(run.id)

    async def _add_events(self, run: Run, runner: Runner) -> bool:
        """Returns False if the run is left for the next start."""
        policy = runner.app.memory_policy if runner.app is not None else None
        try:
            for pause in (*self.retry_seconds, None):
                try:
                    async with self._slots:
                        if policy is not None:
                            await remember(policy, runner.services, run.session_key, run.id, after=run.after_seq)
                    break
                except SessionNotFound:
                    break
                except GreenroomError as error:
                    _log.warning("run %s could not be added to memory: %s", run.id, error)
                    if pause is None:
                        return False
                    await asyncio.sleep(pause)
        except Exception:  # the app's policy may raise anything, and would again
            _log.exception("run %s is not added to memory", run.id)
        return True
