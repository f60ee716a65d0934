"""Runs owned by this process: a task per run, one at a time per session, all resumed from the log after a crash."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence

import msgspec

from greenroom.apps.app import App
from greenroom.apps.loader import AppLoader
from greenroom.artifacts.service import BaseArtifactService
from greenroom.credentials.in_memory import InMemoryCredentialService
from greenroom.credentials.service import BaseCredentialService
from greenroom.errors import (
    DeadlineExceeded,
    GreenroomError,
    IdempotencyConflict,
    RunCancelled,
    RunFailed,
    RunNotFound,
    SessionBusy,
    SessionNotFound,
    StorageError,
    Unavailable,
)
from greenroom.event_streams.in_process import InProcessEventStream
from greenroom.event_streams.stream import Follower, LiveItem, ReadLog, RunEnded, StreamItem, stored_items
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.memory.service import BaseMemoryService
from greenroom.records import wire
from greenroom.records.event import Event
from greenroom.records.run import AgentRunRequest, Run, RunConfig, RunError, RunStatus, StreamingMode
from greenroom.records.session import Session, SessionKey
from greenroom.runner.commit import RunLog
from greenroom.runner.live import live_config
from greenroom.runner.resume import Standing, standing
from greenroom.runner.runner import Intake, Runner
from greenroom.runs.engine import Attachment, RunEngine
from greenroom.runs.live import LiveInput, new_live_run
from greenroom.runs.outcome import RunTally, check_asked, without_answered
from greenroom.runs.store import RunStore
from greenroom.sessions.service import BaseSessionService
from greenroom.telemetry.trace import Trace, TraceListener

_log = logging.getLogger("greenroom.runs")

MAX_ATTEMPTS = 5
"""A run that was cut off so often without getting any further is failed instead of taken up again."""

SAVE_AGAIN_SECONDS = 1.0

LOG_PAGE = 500


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
        trace_listeners: Sequence[TraceListener] = (),
    ) -> None:
        self._apps = apps
        self._store = run_store
        self._sessions = session_service
        self._artifacts = artifact_service
        self._memory = memory_service
        self._credentials = credential_service or InMemoryCredentialService()
        self._auto_create_session = auto_create_session
        self._deadline_seconds = deadline_seconds
        self._trace_listeners = trace_listeners
        self._stream = InProcessEventStream()
        self._runners: dict[str, tuple[App, Runner]] = {}
        self._lanes: dict[SessionKey, deque[_Job]] = {}
        self._jobs: dict[str, _Job] = {}
        self._by_idempotency_key: dict[tuple[str, str, str], _Job] = {}
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
        runner = self._runner(request.app_name)
        digest: str | None = None
        if idempotency_key is not None:
            digest = hashlib.sha256(wire.encode(request)).hexdigest()
            known = await self._started_with(request, idempotency_key, digest)
            if known is not None:
                return known, await self.attach(known.id, with_user_events=False) if attach else None
        session = await self._session(request)
        intake = runner.take_in(session, request.new_message, request.invocation_id)
        before = await self._earlier_stretch(session, intake, request)
        asked = self._still_asked(session, intake, before)
        if intake.answered is not None:
            redeemed = await runner.redeem(session, intake.message)
            if redeemed is not intake.message:  # a provider was asked meanwhile
                intake = intake._replace(message=redeemed)
                request = msgspec.structs.replace(request, new_message=redeemed)
                before = await self._earlier_stretch(session, intake, request)
                asked = self._still_asked(session, intake, before)
        if idempotency_key is not None:
            rival = self._by_idempotency_key.get((request.app_name, request.user_id, idempotency_key))
            if rival is not None:
                if rival.run.request_digest != digest:
                    raise IdempotencyConflict(idempotency_key)
                return rival.run, await self.attach(rival.run.id, with_user_events=False) if attach else None
        lane = self._lanes.get(session.key)
        if lane and request.multitask_strategy == "reject":
            raise SessionBusy(session.id, lane[0].run.id)
        now = time.time()
        run = Run(
            id=intake.invocation_id,
            app_name=request.app_name,
            user_id=request.user_id,
            session_id=session.id,
            status=RunStatus.QUEUED,
            created_at=before.created_at if before is not None else now,
            started_at=before.started_at if before is not None else None,
            usage=before.usage if before is not None else None,
            after_seq=before.after_seq if before is not None else len(session.events),
            message_after_seq=len(session.events),
            asked=asked,
            request=request,
            idempotency_key=idempotency_key,
            request_digest=digest,
            traceparent=traceparent,
        )
        if before is not None and idempotency_key is None:
            # Who repeats the request that began the run is still led to it.
            run.idempotency_key, run.request_digest = before.idempotency_key, before.request_digest
        job = _Job(run, runner, intake, session if not lane else None)
        if idempotency_key is not None:
            self._by_idempotency_key[run.app_name, run.user_id, idempotency_key] = job
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
        runner = self._runner(key.app_name)
        session = await self._session(key)
        here = len(session.events)
        run = new_live_run(key, after_seq=here, traceparent=traceparent)
        lane = self._lanes.get(key) or ()
        for other in lane:
            if other.live is not None:
                other.live.requests.close()
        job = _Job(run, runner, None, session if not lane else None, LiveInput(requests, live_config(run_config)))
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
            return _PastRun(run, self.log_reader(_key(run)), after=after, with_user_events=with_user_events)
        after = job.run.after_seq if after is None else after
        return self._reader(job, after=after, with_user_events=with_user_events)

    def attach_to_session(self, key: SessionKey, *, after: int) -> Attachment:
        return Follower(self._stream.subscribe(key), after=after, read_log=self.log_reader(key))

    async def append(self, session: Session, event: Event) -> None:
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

    async def recover(self) -> int:
        left_behind = await self._store.list_unfinished()
        # A session's running run goes on before those in line, of which one may be older: an answer to its open call.
        for run in sorted(left_behind, key=lambda run: run.status is RunStatus.QUEUED):
            try:
                runner = self._runner(run.app_name)
            except GreenroomError as error:
                await self._give_up(run, error)
                continue
            _log.info("resuming run %s of session %s", run.id, run.session_id)
            self._line_up(_Job(run, runner, None, None))
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
        for app_name, (_, runner) in self._runners.items():
            try:
                await runner.close()
            except Exception:  # toolsets and plugins may raise anything; the others and the store must be closed
                _log.exception("what the app %s holds could not be closed whole", app_name)
        self._runners.clear()
        await self._store.close()

    # how a run is carried out

    def _line_up(self, job: _Job) -> asyncio.Future[None]:
        """Store the record and start the run, or leave it in line. The future says when the record is stored."""
        lane = self._lanes.setdefault(job.key, deque())
        lane.append(job)
        self._jobs[job.run.id] = job
        return self._begin(job) if len(lane) == 1 else self._save(job)

    def _begin(self, job: _Job) -> asyncio.Future[None]:
        run = job.run
        run.started_at = run.started_at or time.time()
        run.status = RunStatus.RUNNING
        run.attempts += 1
        stored = self._save(job)
        job.task = asyncio.create_task(self._execute(job))
        job.task.add_done_callback(lambda _: self._finish(job))
        return stored

    def _save(self, job: _Job) -> asyncio.Future[None]:
        """Store the record; a run that no later process would know of is stopped."""
        saving = self._store.save(job.run)
        saving.add_done_callback(lambda _: self._check_saved(job, saving))
        return saving

    def _check_saved(self, job: _Job, saving: asyncio.Future[None]) -> None:
        error = None if saving.cancelled() else saving.exception()
        if isinstance(error, GreenroomError):
            self._stop(job, error)

    async def _execute(self, job: _Job) -> None:
        try:
            await self._carry_out(job)
        except asyncio.CancelledError:
            if job.stopped_by is None:
                raise  # the process is going away
            await self._record_abort(job, job.stopped_by)
        except Exception as error:  # the outcome of the run, whatever it was; already in its log where it could be
            if not isinstance(error, GreenroomError):
                _log.error("run %s failed", job.run.id, exc_info=error)
            job.error = error
        self._finish(job)

    async def _carry_out(self, job: _Job) -> None:
        run, request = job.run, job.run.request
        if run.is_live:
            await self._talk(job)
            return
        if request is None:
            raise RunFailed("The run's record does not say what was asked for")
        config = _run_config(request)
        session = job.session or await self._session(request)
        job.session = None
        log = job.log = job.runner.open_log(session, run.id, config, traceparent=run.traceparent)
        run.after_seq = min(run.after_seq, len(session.events))
        if run.attempts == 1 and run.message_after_seq < len(session.events):
            run.message_after_seq = len(session.events)  # others wrote while it was in line
            self._save(job)
        run.message_after_seq = min(run.message_after_seq, len(session.events))
        where, job.tally = _so_far(run, session)
        if where.has_begun and where.is_over:
            return
        if run.attempts > 1:
            run.stalled = run.stalled + 1 if len(where.events) <= run.progress else 0
            run.progress = len(where.events)
            self._save(job)
        if run.stalled >= MAX_ATTEMPTS:
            too_often = RunFailed(
                f"The run was cut off {run.stalled} times without getting any further; it is given up"
            )
            await self._record_abort(job, too_often)
            raise too_often
        if where.has_begun:
            events = job.runner.resume(log, where, run_config=config)
        else:
            intake = job.intake or job.runner.take_in(session, request.new_message, run.id)
            if intake.answered is not None:
                job.tally.add(Event(author="user", content=intake.message))
            events = job.runner.run(log, intake, state_delta=request.state_delta, run_config=config)
        seconds = request.deadline_seconds or self._deadline_seconds
        if seconds is None:
            async for event in events:
                job.tally.add(event)
        else:
            await self._within(seconds, job, events)

    async def _talk(self, job: _Job) -> None:
        """A live run, or what a crash left of one."""
        run, live = job.run, job.live
        session = job.session or await self._session(job.key)
        job.session = None
        config = live.run_config if live is not None else RunConfig()
        log = job.log = job.runner.open_log(session, run.id, config, traceparent=run.traceparent)
        if live is None:
            cut_off = RunCancelled(run.id, "the server stopped in the midst of it")
            await self._record_abort(job, cut_off)
            raise cut_off
        async for event in job.runner.live(log, live.requests, run_config=config):
            job.tally.add(event)

    async def _within(self, seconds: float, job: _Job, events: AsyncIterator[Event]) -> None:
        late = DeadlineExceeded(seconds)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                async for event in events:
                    job.tally.add(event)
        except TimeoutError:
            if not limit.expired():
                raise  # another's
            await self._record_abort(job, late)
            raise late from None

    async def _record_abort(self, job: _Job, reason: GreenroomError) -> None:
        run, log = job.run, job.log
        if log is None:
            return
        where = standing(log.session.events[run.after_seq :], run.id, after=run.after_seq, since=0)
        if isinstance(reason, StorageError) and not where.events:
            return  # the store works no more, and has nothing to be closed
        try:
            await job.runner.record_abort(log, reason)
        except Exception:  # the run ends all the same; its history is healed when it is read
            _log.exception("the end of run %s could not be stored", job.run.id)

    def _finish(self, job: _Job) -> None:
        """Write the record, tell the readers, and let the next run of the session begin.

        A run that this process leaves behind keeps its record as it is, so that the next process takes it up.
        """
        if job.done.is_set():
            return
        job.done.set()
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
            self._forget_key(run)  # a message in line goes on with this run, and has its record
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

    def _end_trace(self, job: _Job) -> None:
        run = job.run
        trace = job.log.trace if job.log is not None else None
        if trace is None:
            trace = Trace(job.key, run.id)  # it never got its turn
        trace.end(run.status, self._trace_listeners)

    def _save_end(self, job: _Job) -> None:
        """Until the record is stored the job answers for it: a reader may ask before, and a disk may be full."""
        saving = self._store.save(job.run)
        saving.add_done_callback(lambda _: self._forget(job, saving))

    def _forget(self, job: _Job, saving: asyncio.Future[None]) -> None:
        run = job.run
        is_newest = self._jobs.get(run.id) is job
        if not saving.cancelled() and isinstance(saving.exception(), StorageError) and is_newest:
            if not self._is_closing:
                asyncio.get_running_loop().call_later(SAVE_AGAIN_SECONDS, self._save_end, job)
            return
        if is_newest:
            del self._jobs[run.id]
        self._forget_key(run)

    def _forget_key(self, run: Run) -> None:
        if run.idempotency_key is not None:
            self._by_idempotency_key.pop((run.app_name, run.user_id, run.idempotency_key), None)

    def _stop_all(self, key: SessionKey, run_id: str, reason: GreenroomError) -> _Job:
        """Stop a run; messages in line that would go on with it are dropped."""
        lane = self._lanes[key]
        job, *later = [one for one in lane if one.run.id == run_id]
        for one in later:
            one.done.set()
            lane.remove(one)
            self._forget_key(one.run)
        self._jobs[run_id] = job
        self._stop(job, reason)
        return job

    def _stop(self, job: _Job, reason: GreenroomError) -> None:
        if job.stopped_by is not None or job.done.is_set():
            return
        job.stopped_by = reason
        if job.task is not None:
            job.task.cancel()
        else:
            self._finish(job)

    # looking things up

    def _job_going_on(self, run_id: str) -> _Job | None:
        job = self._jobs.get(run_id)
        return None if job is None or job.done.is_set() else job

    def _runner(self, app_name: str) -> Runner:
        app = self._apps.load(app_name)
        known = self._runners.get(app_name)
        if known is not None and known[0] is app:
            return known[1]
        runner = Runner(
            app=app,
            app_name=app_name,
            session_service=self._sessions,
            artifact_service=self._artifacts,
            memory_service=self._memory,
            credential_service=self._credentials,
            event_stream=self._stream,
            trace_listeners=self._trace_listeners,
        )
        self._runners[app_name] = (app, runner)
        return runner

    async def _session(self, request: AgentRunRequest | SessionKey) -> Session:
        session = await self._sessions.get_session(
            app_name=request.app_name, user_id=request.user_id, session_id=request.session_id
        )
        if session is None:
            if not self._auto_create_session:
                raise SessionNotFound(request.app_name, request.user_id, request.session_id)
            session = await self._sessions.create_session(
                app_name=request.app_name, user_id=request.user_id, session_id=request.session_id
            )
        return session

    async def _started_with(self, request: AgentRunRequest, key: str, digest: str) -> Run | None:
        job = self._by_idempotency_key.get((request.app_name, request.user_id, key))
        run = (
            job.run
            if job is not None
            else await self._store.find_by_idempotency_key(app_name=request.app_name, user_id=request.user_id, key=key)
        )
        if run is not None and run.request_digest != digest:
            raise IdempotencyConflict(key)
        return run

    async def _earlier_stretch(self, session: Session, intake: Intake, request: AgentRunRequest) -> Run | None:
        """The record of the run that this message goes on with; None for a run that only the session's log knows.

        Raises ApprovalRefused, and RunNotFound: an id that is not of this session is answered alike, whether it is of
        another or of none.
        """
        if intake.answered is None and request.invocation_id is None:
            return None
        job = self._jobs.get(intake.invocation_id)
        run = job.run if job is not None else await self._store.get(intake.invocation_id)
        if run is None:
            is_known = any(event.invocation_id == intake.invocation_id for event in session.events)
        else:
            is_known = _key(run) == session.key
        if not is_known:
            check_asked(session.events, intake.message, {})
            raise RunNotFound(intake.invocation_id)
        return run

    def _still_asked(self, session: Session, intake: Intake, before: Run | None) -> dict[str, str]:
        """What the run has asked of people and this message doesn't answer. Raises ApprovalRefused when the message
        answers what no run of this session has asked: a log that a client brought along shows calls, too."""
        job = self._jobs.get(intake.invocation_id)
        if job is not None and _key(job.run) == session.key:
            if job.done.is_set() or (job.log is None and job.intake is not None):
                asked = job.run.asked
            else:  # one that was taken up after a crash may not have looked at its log yet
                asked = job.tally.asked if job.log is not None else _so_far(job.run, session)[1].asked
        else:
            asked = before.asked if before is not None else {}
        check_asked(session.events, intake.message, asked)
        return without_answered(asked, intake.message)

    async def _give_up(self, run: Run, error: GreenroomError) -> None:
        run.status, run.ended_at = RunStatus.FAILED, time.time()
        run.error = RunError(code=error.code, message=error.detail, status=int(error.status))
        await self._store.save(run)

    def _reader(self, job: _Job, *, after: int, with_user_events: bool, catch_up: bool = True) -> Attachment:
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


class _Job:
    """A run on its way. intake None: it is taken up from its record and its log, unless it is live."""

    __slots__ = (
        "done",
        "error",
        "intake",
        "key",
        "live",
        "log",
        "run",
        "runner",
        "session",
        "stopped_by",
        "tally",
        "task",
    )

    def __init__(
        self, run: Run, runner: Runner, intake: Intake | None, session: Session | None, live: LiveInput | None = None
    ) -> None:
        self.run = run
        self.runner = runner
        self.intake = intake
        self.session = session
        self.live = live
        self.key = _key(run)
        self.task: asyncio.Task[None] | None = None
        self.log: RunLog | None = None
        self.tally = RunTally(run.usage)
        self.error: Exception | None = None
        self.stopped_by: GreenroomError | None = None
        self.done = asyncio.Event()


class _PastRun:
    """A run that is over: its log, a page at a time, then its end."""

    def __init__(self, run: Run, read_log: ReadLog, *, after: int, with_user_events: bool) -> None:
        self._run = run
        self._with_user_events = with_user_events
        self._read_log = read_log
        self._after = after

    async def next_batch(self, *, idle_seconds: float | None = None) -> list[LiveItem]:
        while events := await self._read_log(self._after):
            batch = stored_items(
                events, after=self._after, run_id=self._run.id, with_user_events=self._with_user_events
            )
            self._after += len(events)
            if batch:
                return batch
        return [RunEnded(self._run)]

    def close(self) -> None:
        pass


_WHOLE = RunConfig(streaming_mode=StreamingMode.NONE)
_STREAMED = RunConfig(streaming_mode=StreamingMode.SSE)


def _run_config(request: AgentRunRequest) -> RunConfig:
    config = _STREAMED if request.streaming else _WHOLE
    if request.custom_metadata or request.service_tier:
        config = copy.copy(config)
        config.custom_metadata, config.service_tier = request.custom_metadata, request.service_tier
    return config


def _so_far(run: Run, session: Session) -> tuple[Standing, RunTally]:
    """Where a run is that another process began, or this one will: told by its record and its log."""
    where = standing(session.events[run.after_seq :], run.id, after=run.after_seq, since=run.message_after_seq)
    tally = RunTally(asked=run.asked)
    if where.events:
        new = sum(event.invocation_id == run.id for event in session.events[run.message_after_seq :])
        for place, event in enumerate(where.events, new - len(where.events)):
            tally.add(event, is_of_this_stretch=place >= 0)
    return where, tally


def _key(run: Run) -> SessionKey:
    return SessionKey(run.app_name, run.user_id, run.session_id)
