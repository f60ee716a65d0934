"""The runs of each session, one at a time: from a place in line to the record of the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from greenroom.errors import GreenroomError, RunCancelled, StorageError
from greenroom.event_streams.in_process import InProcessEventStream
from greenroom.event_streams.stream import RunEnded
from greenroom.records.run import RunStatus
from greenroom.records.session import SessionKey
from greenroom.runs.engine import RunLoad
from greenroom.runs.idempotency import StartedRuns
from greenroom.runs.job import Job, Surroundings
from greenroom.runs.outcome import without_answered
from greenroom.runs.pace import Pace
from greenroom.runs.places import RunPlaces
from greenroom.runs.run_sessions import RunSessions
from greenroom.runs.runners import Runners
from greenroom.runs.store import RunStore
from greenroom.telemetry.span import Trace, TraceListener

_log = logging.getLogger("greenroom.runs")

SAVE_AGAIN_SECONDS = 1.0, 30.0
"""The first and the longest pause between two tries to store the ends of runs, while the store refuses them."""

CANCEL_SECONDS = 1.0
"""How long cancelled runs may take to clean up when the server stops; tools may ignore a cancellation."""


class Lanes:
    """A lane is a session's runs that are not over: the first goes on, as a task, and the others wait behind it."""

    def __init__(
        self,
        *,
        run_store: RunStore,
        started: StartedRuns,
        sessions: RunSessions,
        runners: Runners,
        places: RunPlaces,
        stream: InProcessEventStream,
        deadline_seconds: float | None,
        max_llm_calls: int | None,
        save_again_seconds: tuple[float, float] = SAVE_AGAIN_SECONDS,
        trace_listeners: Sequence[TraceListener],
    ) -> None:
        """deadline_seconds: of runs that don't name their own."""
        self.is_closing = False
        self._store = run_store
        self._started = started
        self._runners = runners
        self._places = places
        self._stream = stream
        self._trace_listeners = trace_listeners
        self._around = Surroundings(deadline_seconds, max_llm_calls, sessions.open, self._save)
        self._lanes: dict[SessionKey, deque[Job]] = {}
        self._jobs: dict[str, Job] = {}
        self._pace = Pace()
        self._unsaved: dict[str, Job] = {}
        self._save_again_seconds = save_again_seconds
        self._retrying: asyncio.Task[None] | None = None
        self._is_refusing = False

    @property
    def jobs(self) -> Mapping[str, Job]:
        """By run, the newest of each: those that are not over, and those whose end isn't stored yet."""
        return self._jobs

    def of_session(self, key: SessionKey) -> Sequence[Job]:
        return self._lanes.get(key) or ()

    def going_on(self, run_id: str) -> Job | None:
        job = self._jobs.get(run_id)
        return None if job is None or job.done.is_set() else job

    def load(self) -> dict[str, RunLoad]:
        loads: dict[str, RunLoad] = {}
        for key, lane in self._lanes.items():
            running, queued = loads.get(key.app_name, (0, 0))
            begun = sum(job.has_begun for job in lane)
            loads[key.app_name] = RunLoad(running + begun, queued + len(lane) - begun)
        return loads

    def line_up(self, job: Job) -> asyncio.Future[None]:
        """Store the record and start the run, or leave it in line. The future says when the record is stored."""
        lane = self._lanes.setdefault(job.key, deque())
        lane.append(job)
        self._jobs[job.run.id] = job
        self._runners.hold(job.runner)
        self._places.take(job.key)
        return self._begin(job) if len(lane) == 1 else self._save(job)

    def stop(self, key: SessionKey, run_id: str, reason: GreenroomError) -> Job:
        """Stop a run; messages in line that would go on with it are dropped."""
        lane = self._lanes[key]
        job, *later = [one for one in lane if one.run.id == run_id]
        for one in later:
            one.done.set()
            self._let_go(one)
            lane.remove(one)
            self._started.forget(one.run)
        self._jobs[run_id] = job
        self._stop(job, reason)
        return job

    def make_way(self, key: SessionKey, run_id: str) -> None:
        """Stop all of a session for a run that takes their place."""
        for other_id in dict.fromkeys(other.run.id for other in self.of_session(key)):
            self.stop(key, other_id, RunCancelled(other_id, f"run {run_id} took its place"))

    def hang_up(self, key: SessionKey) -> None:
        """End what is said to a session's live runs."""
        for job in self.of_session(key):
            if job.live is not None:
                job.live.requests.close()

    async def close(self, *, grace_seconds: float) -> None:
        """Let runs end for a while; what is then still going on is left for the next process to take up."""
        self.is_closing = True
        if self._retrying is not None:
            self._retrying.cancel()
        for key in self._lanes:
            self.hang_up(key)
        tasks = {job.task: job for lane in self._lanes.values() for job in lane if job.task is not None}
        if not tasks:
            return
        _, running = await asyncio.wait(tasks, timeout=grace_seconds)
        for task in running:
            tasks[task].is_abandoned = True
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=CANCEL_SECONDS)

    def _begin(self, job: Job) -> asyncio.Future[None]:
        run = job.run
        run.started_at = run.started_at or time.time()
        run.status = RunStatus.RUNNING
        run.attempts += 1
        job.has_begun = True
        stored = self._save(job)
        if self._pace.is_crowded and not stored.done():
            # Whoever is in the crowd hears that the run is taken before it begins.
            stored.add_done_callback(lambda _: self._pace.start(run.user_id, lambda: self._execute(job)))
        else:
            self._pace.start(run.user_id, lambda: self._execute(job))
        return stored

    def _execute(self, job: Job) -> None:
        if job.done.is_set() or self.is_closing:
            return  # stopped, or left for the next process, while it waited for its turn
        job.task = asyncio.create_task(self._carry_out(job))
        job.task.add_done_callback(lambda _: self._finish(job))

    async def _carry_out(self, job: Job) -> None:
        await job.execute(self._around)
        self._finish(job)

    def _save(self, job: Job) -> asyncio.Future[None]:
        """Stores the record; a run that no later process would know of is stopped."""
        saving = self._store.save_progress(job.run) if job.is_stored else self._store.save(job.run)
        if saving.done():
            self._check_saved(job, saving)
        else:
            saving.add_done_callback(lambda _: self._check_saved(job, saving))
        return saving

    def _check_saved(self, job: Job, saving: asyncio.Future[None]) -> None:
        error = None if saving.cancelled() else saving.exception()
        if isinstance(error, GreenroomError):
            if isinstance(error, StorageError) and not self._is_refusing:
                self._is_refusing = True
                _log.error("runs are refused, because their records can't be stored: %s", error)
            self._stop(job, error)
        else:
            job.is_stored = True
            self._is_refusing = False

    def _stop(self, job: Job, reason: GreenroomError) -> None:
        if job.stopped_by is not None or job.done.is_set():
            return
        job.stopped_by = reason
        if job.task is not None:
            job.task.cancel()
        else:
            self._finish(job)

    def _finish(self, job: Job) -> None:
        """Write the record, tell the readers, and let the next run of the session begin.

        A run that this process leaves behind keeps its record as it is, so that the next process takes it up.
        """
        if job.done.is_set():
            return
        job.done.set()
        self._let_go(job)
        run = job.run
        if job.is_abandoned and job.task is not None and job.task.cancelled():
            return
        error = job.error or job.stopped_by
        run.status = job.tally.status(error)
        run.error = job.tally.error(error)
        run.usage = job.tally.usage
        run.asked = {} if run.status is RunStatus.CANCELLED else job.tally.asked
        run.ended_at = time.time()
        if run.request is not None:  # the log has the message, or nobody wants it any more
            run.request = msgspec.structs.replace(run.request, new_message=None, state_delta=None)
        if self._jobs.get(run.id) is not job:
            self._started.forget(run)  # a message in line goes on with this run, and has its record
        else:
            if job.is_stored or job.has_events:
                self._save_end(job)
            else:  # it was refused, and nothing of it is kept
                self._forget(job)
            self._stream.publish(job.key, RunEnded(run, error))
        if self._trace_listeners:
            self._end_trace(job)
        lane = self._lanes[job.key]
        lane.remove(job)
        asked = run.asked
        for later in lane:
            if later.run.id == run.id and later.intake is not None:
                asked = without_answered(asked, later.intake.message)
                later.run.asked = asked
        if not lane:
            del self._lanes[job.key]
        elif not lane[0].has_begun and not self.is_closing:
            self._begin(lane[0])

    def _let_go(self, job: Job) -> None:
        self._runners.release(job.runner)
        self._places.give_back(job.key)

    def _end_trace(self, job: Job) -> None:
        run = job.run
        trace = job.log.trace if job.log is not None else None
        if trace is None:
            trace = Trace(job.key, run.id)  # it never got its turn
        trace.end(run.status, self._trace_listeners)

    def _save_end(self, job: Job) -> None:
        """Stores the record of the end; until it is stored the job answers for it."""
        saving = self._store.save(job.run)
        if saving.done():
            self._end_saved(job, saving)
        else:
            saving.add_done_callback(lambda _: self._end_saved(job, saving))

    def _end_saved(self, job: Job, saving: asyncio.Future[None]) -> None:
        error = None if saving.cancelled() else saving.exception()
        if not isinstance(error, StorageError):
            self._forget(job)
        elif self._jobs.get(job.run.id) is job:
            self._unsaved[job.run.id] = job
            if self._retrying is None and not self.is_closing:
                _log.error("the ends of runs can't be stored, and are tried again: %s", error)
                self._retrying = asyncio.create_task(self._save_unsaved())

    async def _save_unsaved(self) -> None:
        """Retries to store the ends of runs, the first of them with growing pauses, and then all others."""
        pause, longest = self._save_again_seconds
        while self._unsaved:
            await asyncio.sleep(pause)
            pause = min(pause * 2, longest)
            with contextlib.suppress(StorageError):
                for run_id, job in list(self._unsaved.items()):
                    if self._jobs.get(run_id) is job:
                        await self._store.save(job.run)
                    del self._unsaved[run_id]
                    self._forget(job)
        self._retrying = None
        _log.warning("the ends of all runs are stored again")

    def _forget(self, job: Job) -> None:
        if self._jobs.get(job.run.id) is job:
            del self._jobs[job.run.id]
        self._started.forget(job.run)
