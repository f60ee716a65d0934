"""Resumption of the runs that earlier processes left in the store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from greenroom.errors import GreenroomError
from greenroom.log.state import log_state_of
from greenroom.records.run import Run, RunStatus
from greenroom.records.shard import Shards
from greenroom.runner.runner import Runner
from greenroom.runs.inactive_runs import InactiveRuns
from greenroom.runs.limits import ConcurrencyLimiter
from greenroom.runs.memory_writer import MemoryWriter
from greenroom.runs.queues import SessionQueues
from greenroom.runs.runner_cache import RunnerCache
from greenroom.runs.steering import find_reading
from greenroom.runs.store import RunStore
from greenroom.runs.suspects import SuspectRuns, is_suspect
from greenroom.runs.task import RunTask
from greenroom.runs.traffic import TrafficSplitter
from greenroom.runs.wake_ups import WakeUps
from greenroom.sessions.service import BaseSessionService

_log = logging.getLogger("greenroom.runs")


@dataclass(kw_only=True, eq=False)
class Resumption:
    """Resumes runs in one engine, when it starts and when it takes sessions over."""

    run_store: RunStore
    session_service: BaseSessionService
    runners: RunnerCache
    traffic: TrafficSplitter
    limiter: ConcurrencyLimiter
    queues: SessionQueues
    inactive_runs: InactiveRuns
    wake_ups: WakeUps
    memory_writer: MemoryWriter

    def __post_init__(self) -> None:
        self._resuming_suspects: set[asyncio.Task[None]] = set()

    async def resume(self, shards: Shards | None) -> int:
        """Resumes unfinished runs, and adds ended ones to memory that were to be. Returns the number of the former.

        shards: those that this process has taken; None where it owns all sessions.
        """
        left_behind = await self.run_store.list_unfinished(shards)
        to_remember = await self.run_store.list_to_remember(shards)
        resumed: list[RunTask] = []
        ended: list[asyncio.Future[None]] = []
        for run in [run for run in left_behind if run.waits_to_be_read]:
            reading = await find_reading(self.session_service, run)
            if reading is not None:
                left_behind.remove(run)
                ended.append(self.inactive_runs.end_read(run, *reading))

        # A session's running run continues before the queued ones, one of which may be older: an answer to its call.
        for run in sorted(left_behind, key=lambda run: run.status is RunStatus.QUEUED):
            try:
                runner = await self._acquire_runner(run)
            except GreenroomError as error:
                ended.append(self.inactive_runs.end(run, error))
                continue
            for earlier in await self._queued_before(run):
                self.runners.retain(runner)
                self.limiter.add(run.session_key)
                resumed.append(RunTask(earlier, runner, is_resumed=True, is_stored=True, is_newest=False))
            self.limiter.add(run.session_key)
            resumed.append(RunTask(run, runner, is_resumed=True, is_stored=True, is_held=is_suspect(run)))

        self._enqueue(resumed)
        self.wake_ups.look()  # not earlier: runs that it starts are no longer left behind
        for run in to_remember:
            with contextlib.suppress(GreenroomError):  # the app is gone
                runner = await self.runners.acquire(run.app_name)
                self.memory_writer.add(run, runner)
                self.runners.release(runner)
        if ended:
            await asyncio.wait(ended)  # so that a reader of one sees its end
        return len(left_behind)

    async def _acquire_runner(self, run: Run) -> Runner:
        """Of the run's version if it is published, else of the present code, which `AppVersions` may exchange."""
        if run.app_version is not None and self.traffic.knows(run.app_name, run.app_version):
            with contextlib.suppress(GreenroomError):  # it can't be loaded here
                return await self.runners.acquire_published(run.app_name, run.app_version)
        return await self.runners.acquire(run.app_name)

    async def _queued_before(self, run: Run) -> list[Run]:
        """The run with each of the requests that continue it before the one in its record, and aren't in the log."""
        if not run.queued_before:
            return []
        session = await self.session_service.get_session(**run.session_key._asdict())
        if session is None:
            return []

        left = list(run.queued_before)
        logged = log_state_of(session.events).find_run(run.id)
        for index in logged.messages if logged is not None else ():
            content = session.events[index].content
            for queued in left:
                if index >= queued.message_after_seq and content == queued.request.new_message:
                    left.remove(queued)
                    break
        return [
            msgspec.structs.replace(
                run,
                request=queued.request,
                caller=queued.caller,
                message_after_seq=queued.message_after_seq,
                idempotency_key=None,
                queued_before=[],
            )
            for queued in left
        ]

    def _enqueue(self, tasks: Sequence[RunTask]) -> None:
        suspects = [task for task in tasks if task.is_held]
        if suspects:
            others = [task for task in tasks if not task.is_held and task.run.status is RunStatus.RUNNING]
            trial = SuspectRuns(suspects, others=others, begin=self.queues.begin_held, save=self.queues.save)
            resuming = asyncio.create_task(trial.resume())
            self._resuming_suspects.add(resuming)
            resuming.add_done_callback(self._resuming_suspects.discard)

        for task in tasks:
            _log.info("resuming run %s of session %s", task.run.id, task.run.session_id)
            self.queues.enqueue(task)

    def close(self) -> None:
        """Starts no further suspects."""
        for resuming in self._resuming_suspects:
            resuming.cancel()
