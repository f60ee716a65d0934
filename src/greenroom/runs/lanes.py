"""The runs of each session, one at a time: from a place in line to the record of the end."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence

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
from greenroom.telemetry.trace import Trace, TraceListener

SAVE_AGAIN_SECONDS = 1.0

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
        self._around = Surroundings(deadline_seconds, sessions.open, self._save)
        self._lanes: dict[SessionKey, deque[Job]] = {}
        self._jobs: dict[str, Job] = {}
        self._pace = Pace()

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
        """Store the record; a run that no later process would know of is stopped."""
        saving = self._store.save(job.run)
        if saving.done():
            self._check_saved(job, saving)
        else:
            saving.add_done_callback(lambda _: self._check_saved(job, saving))
        return saving

    def _check_saved(self, job: Job, saving: asyncio.Future[None]) -> None:
        error = None if saving.cancelled() else saving.exception()
        if isinstance(error, GreenroomError):
            self._stop(job, error)

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
        if self._jobs.get(run.id) is job:
            self._save_end(job)
            self._stream.publish(job.key, RunEnded(run, error))
        else:
            self._started.forget(run)  # a message in line goes on with this run, and has its record
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
        """Until the record is stored the job answers for it: a reader may ask before, and a disk may be full."""
        saving = self._store.save(job.run)
        if saving.done():
            self._forget(job, saving)
        else:
            saving.add_done_callback(lambda _: self._forget(job, saving))

    def _forget(self, job: Job, saving: asyncio.Future[None]) -> None:
        run = job.run
        is_newest = self._jobs.get(run.id) is job
        if not saving.cancelled() and isinstance(saving.exception(), StorageError) and is_newest:
            if not self.is_closing:
                asyncio.get_running_loop().call_later(SAVE_AGAIN_SECONDS, self._save_end, job)
            return
        if is_newest:
            del self._jobs[run.id]
        self._started.forget(run)
