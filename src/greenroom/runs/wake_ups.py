"""Continues waiting runs at their times, and starts delayed ones. They are rows in the store; no task or memory is kept
for them.

    12:00:00  a run calls `wait(seconds=3600)`, and ends as waiting; its time is stored, before its record
    12:00:00  the timer knows that the earliest time is 13:00:00, and asks the store nothing until then
    13:00:00  it reads the times that are due, and the runs' records, which say which calls wait, and until when
    13:00:00  the response to the call is admitted as a client's is, if the call is still open: the run continues

The time of a delayed run is stored with its record, which says when the run starts.

A stored time only says when to look at a run: where it is wrong or left behind, nothing happens.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from greenroom.errors import (
    GreenroomError,
    NotWaiting,
    OwnershipLost,
    RunNotFound,
    StorageError,
    TooManyRuns,
    Unavailable,
)
from greenroom.records.run import Run, RunStatus
from greenroom.records.wake_up import SentSignal, WakeUp
from greenroom.runs.signals import stored_signal
from greenroom.runs.store import RunStore
from greenroom.runs.store_timer import LONGEST_SLEEP, StoreTimer

_log = logging.getLogger("greenroom.runs")

_AT_ONCE = 100
_SLOW_SECONDS = 0.5
"""Time after which the next runs are continued, although some of those before them have not been yet."""

_MAX_SLOW = 1000
"""Number of runs that are being continued at a time."""

_RETRY_SECONDS = 60.0
"""Pause after a run that could not be continued, for example since its app is missing."""


@dataclass(eq=False)
class WakeUps:
    """The timer of one engine.

    get: the newest record of a run. wake: continues a run by the response to a call, with a stored signal or at its
    time. Raises NotWaiting when the call is not open any more. start: starts a delayed run if it still waits for its
    time. Raises TooManyRuns, and Unavailable. All raise OwnershipLost.
    """

    run_store: RunStore
    get: Callable[[str], Awaitable[Run]]
    wake: Callable[[Run, str, WakeUp, SentSignal | None], Awaitable[None]]
    start: Callable[[Run], Awaitable[None]]

    def __post_init__(self) -> None:
        self._saving: set[asyncio.Future[None]] = set()
        self._waking: dict[str, asyncio.Task[None]] = {}
        """The runs that are being continued."""

        self._timer = StoreTimer(self._wake_due, "waiting runs could not be continued")

    def add(self, run: Run) -> None:
        """Stores the time of a run that ends as waiting, before its record."""
        now = time.time()
        times = [wake_up.at for wake_up in run.wake_ups.values() if wake_up.at is not None]
        if run.signals and any(stored_signal(run, wake_up) is not None for wake_up in run.wake_ups.values()):
            times.append(now)

        if times:
            at = max(min(times), now)  # differs from the time at which it was continued, whose row may be deleted later
            saving = self.run_store.save_wake_up(run, at)
            self._saving.add(saving)
            saving.add_done_callback(self._saving.discard)
            self._timer.look_at(at)

    def look(self, at: float = 0.0) -> None:
        """Reads the times of the store, which has those of other processes, now or at a time in Unix seconds."""
        self._timer.look_at(at)

    async def close(self) -> None:
        await self._timer.close()
        waking = list(self._waking.values())
        for task in waking:
            task.cancel()
        if waking:
            await asyncio.wait(waking)

    async def _wake_due(self) -> None:
        """Continues the runs that are due, some at a time. One that takes long doesn't keep the next ones waiting."""
        if self._saving:
            await asyncio.wait(self._saving)
        found = await self.run_store.next_wake_ups(_AT_ONCE + len(self._waking))
        now = time.time()
        started: list[asyncio.Task[None]] = []
        for at, run_id in found:
            if at > now or len(self._waking) >= _MAX_SLOW:
                break
            if run_id not in self._waking:
                task = asyncio.create_task(self._wake_run(run_id, at))
                self._waking[run_id] = task
                task.add_done_callback(partial(self._woken, run_id))
                started.append(task)

        if started:
            await asyncio.wait(started, timeout=_SLOW_SECONDS)
            self._timer.look_at(now)  # there may be more, and some may have been moved
        elif found:
            later = (at for at, _ in found if at > now)
            self._timer.look_at(next(later, now + LONGEST_SLEEP))

    def _woken(self, run_id: str, task: asyncio.Task[None]) -> None:
        del self._waking[run_id]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            if not isinstance(error, StorageError):
                _log.error("run %s could not be continued, and is tried again", run_id, exc_info=error)
            self._timer.look_at(time.time() + LONGEST_SLEEP)

    async def _wake_run(self, run_id: str, at: float) -> None:
        """Continues the run if it waits, and moves or deletes its stored time."""
        again: float | None = None
        try:
            run = await self.get(run_id)
            if run.start_at is not None and run.is_delayed:
                again = await self._start(run, run.start_at)
            elif not run.status.is_over:
                again = time.time() + LONGEST_SLEEP  # its end stores its next time
            elif run.status is RunStatus.WAITING:
                again = await self._continue(run)
        except RunNotFound:
            pass
        except OwnershipLost:
            return  # the server that runs the session now has the time, too
        await self.run_store.move_wake_up(run_id, at, to=again)
        if again is not None:
            self._timer.look_at(again)

    async def _start(self, run: Run, start_at: float) -> float | None:
        """Returns the time of the next try if the run can't start now."""
        late_seconds = time.time() - start_at
        if late_seconds < 0:
            return start_at
        try:
            await self.start(run)
        except OwnershipLost:
            raise
        except TooManyRuns:
            return time.time() + min(max(late_seconds / 4, LONGEST_SLEEP), _RETRY_SECONDS)
        except Unavailable:
            return time.time() + LONGEST_SLEEP
        return None

    async def _continue(self, run: Run) -> float | None:
        """Returns the time of the next try if the run can't continue now."""
        for call_id, wake_up in run.wake_ups.items():
            signal = stored_signal(run, wake_up)
            if signal is None and (wake_up.at is None or wake_up.at > time.time()):
                continue
            try:
                await self.wake(run, call_id, wake_up, signal)
                return None
            except NotWaiting:
                continue
            except OwnershipLost:
                raise
            except GreenroomError as error:
                _log.warning("run %s can't continue, and is tried again: %s", run.id, error)
                return time.time() + _RETRY_SECONDS
        return None
