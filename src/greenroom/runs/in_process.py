"""Runs owned by this process: a task per run, one at a time per session, all resumed from the log after a crash."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence

from greenroom.apps.app import App
from greenroom.apps.loader import AppLoader
from greenroom.artifacts.service import BaseArtifactService
from greenroom.credentials.in_memory import InMemoryCredentialService
from greenroom.credentials.service import BaseCredentialService
from greenroom.errors import (
    GreenroomError,
    RunCancelled,
    RunNotFound,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    StorageError,
    Unavailable,
)
from greenroom.event_streams.in_process import InProcessEventStream
from greenroom.event_streams.stream import Follower, ReadLog, RunEnded, StreamItem
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.memory.service import BaseMemoryService
from greenroom.records.event import Event
from greenroom.records.run import AgentRunRequest, Run, RunConfig, RunError, RunStatus
from greenroom.records.session import Session, SessionKey
from greenroom.runner.live import live_config
from greenroom.runner.runner import Runner
from greenroom.runs.arrival import look_at
from greenroom.runs.engine import Attachment, RunEngine, RunLoad
from greenroom.runs.idempotency import StartedRuns, digest_of
from greenroom.runs.job import Job, session_of
from greenroom.runs.live import LiveInput, new_live_run
from greenroom.runs.outcome import without_answered
from greenroom.runs.pace import Pace
from greenroom.runs.past_run import PastRun
from greenroom.runs.places import RunLimits, RunPlaces
from greenroom.runs.runners import Runners
from greenroom.runs.store import RunStore
from greenroom.sessions.service import BaseSessionService
from greenroom.telemetry.trace import Trace, TraceListener

_log = logging.getLogger("greenroom.runs")

SAVE_AGAIN_SECONDS = 1.0

LOG_PAGE = 500


_NO_LIMITS = RunLimits()


class InProcessRunEngine(RunEngine):
    def __init__(
        self,
        *,
        apps: AppLoader,
        run_store: RunStore,
        session_service: BaseSessionService,
        artifact_service: BaseArtifactService | None = None,
        memory_service: BaseMemoryService | None = None,
        credential_service: BaseCredentialService | None = None,
        auto_create_session: bool = False,
        deadline_seconds: float | None = None,
        limits: RunLimits = _NO_LIMITS,
        trace_listeners: Sequence[TraceListener] = (),
    ) -> None:
        self._store = run_store
        self._sessions = session_service
        self._artifacts = artifact_service
        self._memory = memory_service
        self._credentials = credential_service or InMemoryCredentialService()
        self._auto_create_session = auto_create_session
        self.deadline_seconds = deadline_seconds
        self._limits = limits
        self._places = RunPlaces(limits)
        self._trace_listeners = trace_listeners
        self._stream = InProcessEventStream()
        self._runners = Runners(apps, self._make_runner)
        self._lanes: dict[SessionKey, deque[Job]] = {}
        self._jobs: dict[str, Job] = {}
        self._started = StartedRuns(run_store)
        self._pace = Pace()
        self._is_closing = False

    async def start(
        self,
        request: AgentRunRequest,
        *,
        idempotency_key: str | None = None,
        attach: bool = True,
        traceparent: str | None = None,
    ) -> tuple[Run, Attachment | None]:
        if self._is_closing:
            raise Unavailable("The server is shutting down")
        runner = self._runners.take(request.app_name)
        try:
            return await self._start(runner, request, idempotency_key, attach, traceparent)
        finally:
            self._runners.release(runner)

    async def _start(
        self,
        runner: Runner,
        request: AgentRunRequest,
        idempotency_key: str | None,
        attach: bool,
        traceparent: str | None,
    ) -> tuple[Run, Attachment | None]:
        digest: str | None = None
        if idempotency_key is not None:
            digest = digest_of(request)
            known = await self._started.find(request, idempotency_key, digest)
            if known is not None:
                return known, await self.attach(known.id, with_user_events=False) if attach else None
        key = SessionKey(request.app_name, request.user_id, request.session_id)
        self._check_place(key, request)
        session = await self._find_session(key)
        log = session or Session(id=key.session_id, app_name=key.app_name, user_id=key.user_id)
        arrival = await look_at(request, runner, log, jobs=self._jobs, store=self._store)
        if session is None:
            self._check_place(key, request)
            session = await self._make_session(key)
        if idempotency_key is not None and digest is not None:
            rival = self._started.going_on(request, idempotency_key, digest)
            if rival is not None:
                return rival.run, await self.attach(rival.run.id, with_user_events=False) if attach else None
        lane = self._lanes.get(session.key)
        if lane and request.multitask_strategy == "reject":
            raise SessionBusy(session.id, lane[0].run.id)
        if arrival.before is None:
            self._limits.check_session(session)
        if arrival.intake.answered is None:  # what was redeemed can't be given again
            self._check_place(key, request)
        run = arrival.new_run(session, idempotency_key=idempotency_key, digest=digest, traceparent=traceparent)
        job = Job(run, runner, arrival.intake, session if not lane else None)
        if idempotency_key is not None:
            self._started.add(job)
        here = len(session.events)
        reader = self._reader(job, after=here, with_user_events=False, catch_up=False) if attach else None
        if lane and request.multitask_strategy == "interrupt":
            for other_id in dict.fromkeys(other.run.id for other in lane):
                self._stop_all(session.key, other_id, RunCancelled(other_id, f"run {run.id} took its place"))
        try:
            await self._line_up(job)
        except GreenroomError:
            if reader is not None:
                reader.close()
            raise
        return run, reader

    async def start_live(
        self,
        key: SessionKey,
        requests: LiveRequestQueue,
        *,
        run_config: RunConfig,
        after: int | None = None,
        traceparent: str | None = None,
    ) -> tuple[Run, Attachment]:
        if self._is_closing:
            raise Unavailable("The server is shutting down")
        runner = self._runners.take(key.app_name)
        try:
            return await self._start_live(runner, key, requests, run_config, after, traceparent)
        finally:
            self._runners.release(runner)

    async def _start_live(
        self,
        runner: Runner,
        key: SessionKey,
        requests: LiveRequestQueue,
        run_config: RunConfig,
        after: int | None,
        traceparent: str | None,
    ) -> tuple[Run, Attachment]:
        self._places.check(key)
        session = await self._find_session(key)
        self._places.check(key)
        if session is None:
            session = await self._make_session(key)
        self._limits.check_session(session)
        here = len(session.events)
        run = new_live_run(key, after_seq=here, traceparent=traceparent)
        lane = self._lanes.get(key) or ()
        for other in lane:
            if other.live is not None:
                other.live.requests.close()
        job = Job(run, runner, None, session if not lane else None, LiveInput(requests, live_config(run_config)))
        if after is not None:
            reader = self.attach_to_session(key, after=min(after, here))
        else:
            reader = self._reader(job, after=here, with_user_events=True, catch_up=False)
        try:
            await self._line_up(job)
        except GreenroomError:
            reader.close()
            raise
        return run, reader

    async def attach(self, run_id: str, *, after: int | None = None, with_user_events: bool = True) -> Attachment:
        job = self._job_going_on(run_id)
        if job is None:
            run = await self.get(run_id)
            after = run.after_seq if after is None else after
            return PastRun(run, self.log_reader(session_of(run)), after=after, with_user_events=with_user_events)
        after = job.run.after_seq if after is None else after
        return self._reader(job, after=after, with_user_events=with_user_events)

    def attach_to_session(self, key: SessionKey, *, after: int) -> Attachment:
        return Follower(self._stream.subscribe(key), after=after, read_log=self.log_reader(key))

    async def append(self, session: Session, event: Event) -> None:
        self._limits.check_session(session)
        seq = await self._sessions.append(session, event)
        self._stream.publish(session.key, StreamItem(event, run_id=event.invocation_id, seq=seq))

    async def cancel(self, run_id: str, *, reason: str) -> Run:
        job = self._job_going_on(run_id)
        if job is None:
            run = await self.get(run_id)
            if run.status is RunStatus.WAITING:
                run.status, run.ended_at, run.asked = RunStatus.CANCELLED, time.time(), {}
                await self._store.save(run)
            return run
        job = self._stop_all(job.key, run_id, RunCancelled(run_id, reason))
        await job.done.wait()
        return job.run

    async def get(self, run_id: str) -> Run:
        job = self._jobs.get(run_id)
        run = job.run if job is not None else await self._store.get(run_id)
        if run is None:
            raise RunNotFound(run_id)
        return run

    def load(self) -> dict[str, RunLoad]:
        loads: dict[str, RunLoad] = {}
        for key, lane in self._lanes.items():
            running, queued = loads.get(key.app_name, (0, 0))
            begun = sum(job.task is not None for job in lane)
            loads[key.app_name] = RunLoad(running + begun, queued + len(lane) - begun)
        return loads

    async def recover(self) -> int:
        left_behind = await self._store.list_unfinished()
        # A session's running run goes on before those in line, of which one may be older: an answer to its open call.
        for run in sorted(left_behind, key=lambda run: run.status is RunStatus.QUEUED):
            try:
                runner = self._runners.take(run.app_name)
            except GreenroomError as error:
                await self._give_up(run, error)
                continue
            _log.info("resuming run %s of session %s", run.id, run.session_id)
            self._line_up(Job(run, runner, None, None))
            self._runners.release(runner)
        return len(left_behind)

    async def close(self, *, grace_seconds: float = 5.0) -> None:
        self._is_closing = True
        for job in self._jobs.values():
            if job.live is not None:
                job.live.requests.close()
        tasks = [job.task for lane in self._lanes.values() for job in lane if job.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=grace_seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._runners.close()
        await self._store.close()

    # how a run is carried out

    def _line_up(self, job: Job) -> asyncio.Future[None]:
        """Store the record and start the run, or leave it in line. The future says when the record is stored."""
        lane = self._lanes.setdefault(job.key, deque())
        lane.append(job)
        self._jobs[job.run.id] = job
        self._runners.hold(job.runner)
        self._places.take(job.key)
        return self._begin(job) if len(lane) == 1 else self.save(job)

    def _begin(self, job: Job) -> asyncio.Future[None]:
        run = job.run
        run.started_at = run.started_at or time.time()
        run.status = RunStatus.RUNNING
        run.attempts += 1
        stored = self.save(job)
        job.task = asyncio.create_task(self._execute(job, stored))
        job.task.add_done_callback(lambda _: self._finish(job))
        return stored

    def save(self, job: Job) -> asyncio.Future[None]:
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

    async def _execute(self, job: Job, stored: asyncio.Future[None]) -> None:
        if self._pace.is_crowded and not stored.done():
            await asyncio.wait((stored,))  # whoever is in the crowd hears that the run is taken before it begins
        turn = self._pace.turn(job.run.user_id)
        if turn is not None:
            await turn
        await job.execute(self)
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
        if job.task is not None and job.task.cancelled() and job.stopped_by is None:
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
        elif lane[0].task is None and not self._is_closing:
            self._begin(lane[0])

    def _let_go(self, job: Job) -> None:
        self._runners.release(job.runner)
        self._places.give_back(job.key)

    def _check_place(self, key: SessionKey, request: AgentRunRequest) -> None:
        """Before what takes time, and again before the run is stored, since others may have come meanwhile."""
        if request.multitask_strategy != "interrupt" or key not in self._lanes:  # else it takes another's place
            self._places.check(key)

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
            if not self._is_closing:
                asyncio.get_running_loop().call_later(SAVE_AGAIN_SECONDS, self._save_end, job)
            return
        if is_newest:
            del self._jobs[run.id]
        self._started.forget(run)

    def _stop_all(self, key: SessionKey, run_id: str, reason: GreenroomError) -> Job:
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

    def _stop(self, job: Job, reason: GreenroomError) -> None:
        if job.stopped_by is not None or job.done.is_set():
            return
        job.stopped_by = reason
        if job.task is not None:
            job.task.cancel()
        else:
            self._finish(job)

    # looking things up

    def _job_going_on(self, run_id: str) -> Job | None:
        job = self._jobs.get(run_id)
        return None if job is None or job.done.is_set() else job

    def _make_runner(self, app_name: str, app: App) -> Runner:
        return Runner(
            app=app,
            app_name=app_name,
            session_service=self._sessions,
            artifact_service=self._artifacts,
            memory_service=self._memory,
            credential_service=self._credentials,
            event_stream=self._stream,
            trace_listeners=self._trace_listeners,
        )

    async def open_session(self, key: SessionKey) -> Session:
        """As it is stored, or a new one where a run may make it."""
        session = await self._find_session(key)
        return session if session is not None else await self._make_session(key)

    async def _make_session(self, key: SessionKey) -> Session:
        """With a place kept for its run, so that none stays empty."""
        app_name, user_id, session_id = key
        self._places.take(key)
        try:
            return await self._sessions.create_session(app_name=app_name, user_id=user_id, session_id=session_id)
        except SessionExists:  # another run made it
            session = await self._find_session(key)
            if session is None:
                raise
            return session
        finally:
            self._places.give_back(key)

    async def _find_session(self, key: SessionKey) -> Session | None:
        """None where a run may make it. Raises SessionNotFound."""
        app_name, user_id, session_id = key
        session = await self._sessions.get_session(app_name=app_name, user_id=user_id, session_id=session_id)
        if session is None and not self._auto_create_session:
            raise SessionNotFound(app_name, user_id, session_id)
        return session

    async def _give_up(self, run: Run, error: GreenroomError) -> None:
        run.status, run.ended_at = RunStatus.FAILED, time.time()
        run.error = RunError(code=error.code, message=error.detail, status=int(error.status))
        await self._store.save(run)

    def _reader(self, job: Job, *, after: int, with_user_events: bool, catch_up: bool = True) -> Attachment:
        return Follower(
            self._stream.subscribe(job.key, run_id=job.run.id, with_user_events=with_user_events),
            after=after,
            read_log=self.log_reader(job.key),
            run_id=job.run.id,
            with_user_events=with_user_events,
            catch_up=catch_up,
        )

    def log_reader(self, key: SessionKey) -> ReadLog:
        async def read(after: int) -> list[Event]:
            page = await self._sessions.list_events(
                app_name=key.app_name, user_id=key.user_id, session_id=key.session_id, after=after, limit=LOG_PAGE
            )
            return page.events

        return read
