"""Delayed runs: stored until their time, at which they start as by a request that comes then."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from greenroom.errors import GreenroomError, TooManyRuns, Unavailable
from greenroom.records.run import AgentRunRequest, Run
from greenroom.records.session import SessionKey
from greenroom.runner.runner import Runner
from greenroom.runs.admission import Admission
from greenroom.runs.inactive_runs import InactiveRuns
from greenroom.runs.queues import SessionQueues, when_done
from greenroom.runs.runner_cache import RunnerCache
from greenroom.runs.store import RunStore
from greenroom.runs.task import RunTask
from greenroom.runs.wake_ups import WakeUps
from greenroom.runs.watch import RunWatches

_log = logging.getLogger("greenroom.runs")


@dataclass(kw_only=True, eq=False)
class DelayedRuns:
    """The delayed runs of one engine.

    get: the newest record of a run. acquire_runner: the runner for a session, which is released in `runners`. enqueue:
    starts an admitted run, now or after those before it. wait_until_ready: returns when this process owns the session.
    Raises OwnershipLost.
    """

    run_store: RunStore
    admission: Admission
    queues: SessionQueues
    runners: RunnerCache
    inactive_runs: InactiveRuns
    wake_ups: WakeUps
    watches: RunWatches
    get: Callable[[str], Awaitable[Run]]
    acquire_runner: Callable[[SessionKey], Awaitable[Runner]]
    enqueue: Callable[[RunTask, AgentRunRequest], asyncio.Future[None]]
    wait_until_ready: Callable[[SessionKey], Awaitable[None]]

    def save(self, task: RunTask) -> asyncio.Future[None]:
        """Stores a run that starts later. Nothing else is kept of it."""
        run = task.run
        saving = self.run_store.save(run, audit=task.audit)
        when_done(saving, partial(self._saved, run))
        return saving

    def _saved(self, run: Run, saving: asyncio.Future[None]) -> None:
        if saving.cancelled() or saving.exception() is None:
            self.watches.publish(run)
            self.wake_ups.look(run.start_at or 0.0)

    async def start(self, run: Run) -> None:
        """Starts a run at its time, or ends it with the error for which it can't start.

        Raises RunNotFound, and TooManyRuns and Unavailable: then it may be tried again.
        """
        key = run.session_key
        await self.wait_until_ready(key)
        async with self.admission.lock(key):
            run = await self.get(run.id)
            if run.is_delayed and run.request is not None:  # else it was cancelled meanwhile
                await self._enqueue_due(run, run.request)

    async def _enqueue_due(self, run: Run, request: AgentRunRequest) -> None:
        try:
            runner = await self.acquire_runner(run.session_key)
            try:
                stored = self.enqueue(await self.admission.admit_due(run, request, runner, self.queues), request)
            finally:
                self.runners.release(runner)
        except (TooManyRuns, Unavailable):
            raise
        except GreenroomError as error:
            _log.warning("run %s can't start at its time, and has failed: %s", run.id, error)
            stored = self.inactive_runs.end(run, error)
        await stored
