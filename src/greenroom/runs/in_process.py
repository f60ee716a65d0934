"""Runs owned by this process: a task per run, one at a time per session, all resumed from the log after a crash."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from greenroom.apps.app import App
from greenroom.apps.loader import AppLoader
from greenroom.artifacts.service import USER_NAMESPACE, BaseArtifactService
from greenroom.credentials.in_memory import InMemoryCredentialService
from greenroom.credentials.service import BaseCredentialService
from greenroom.errors import (
    GreenroomError,
    RunCancelled,
    RunNotFound,
    SessionBusy,
    Unavailable,
)
from greenroom.event_streams.in_process import InProcessEventStream
from greenroom.event_streams.stream import Follower, StreamItem
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.memory.service import BaseMemoryService
from greenroom.records.event import Event
from greenroom.records.run import (
    AgentRunRequest,
    Caller,
    ListRunsResponse,
    Run,
    RunConfig,
    RunError,
    RunFilter,
    RunStatus,
)
from greenroom.records.session import Session, SessionKey
from greenroom.runner.intake import live_config
from greenroom.runner.runner import Runner
from greenroom.runs.arrival import look_at
from greenroom.runs.engine import Attachment, RunEngine, RunLoad
from greenroom.runs.idempotency import StartedRuns, digest_of
from greenroom.runs.job import Job, session_of, version_of
from greenroom.runs.lanes import Lanes
from greenroom.runs.live import LiveInput, new_live_run
from greenroom.runs.past_run import PastRun
from greenroom.runs.places import RunLimits, RunPlaces
from greenroom.runs.run_sessions import RunSessions
from greenroom.runs.runners import Runners
from greenroom.runs.store import RunStore
from greenroom.sessions.service import BaseSessionService
from greenroom.telemetry.span import TraceListener

_log = logging.getLogger("greenroom.runs")

_NO_LIMITS = RunLimits()

RUNNER_CLOSE_SECONDS = 3.0
"""How long the toolsets and plugins of all apps may take to close when the server stops."""


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
        max_llm_calls: int | None = None,
        limits: RunLimits = _NO_LIMITS,
        lock_wait_seconds: float = 10.0,
        trace_listeners: Sequence[TraceListener] = (),
    ) -> None:
        """deadline_seconds, max_llm_calls: of runs whose request or app doesn't say. lock_wait_seconds: how long
        `recover` waits for another server on the same store to end, as in a rolling restart.
        """
        self._store = run_store
        self._session_service = session_service
        self._artifacts = artifact_service
        self._memory = memory_service
        self._credentials = credential_service or InMemoryCredentialService()
        self._limits = limits
        self._places = RunPlaces(limits)
        self._sessions = RunSessions(session_service, self._places, may_make=auto_create_session)
        self._lock_wait_seconds = lock_wait_seconds
        self._trace_listeners = trace_listeners
        self._stream = InProcessEventStream()
        self._runners = Runners(apps, self._make_runner)
        self._started = StartedRuns(run_store)
        self._lanes = Lanes(
            run_store=run_store,
            started=self._started,
            sessions=self._sessions,
            runners=self._runners,
            places=self._places,
            stream=self._stream,
            deadline_seconds=deadline_seconds,
            max_llm_calls=max_llm_calls,
            trace_listeners=trace_listeners,
        )

    async def start(
        self,
        request: AgentRunRequest,
        *,
        idempotency_key: str | None = None,
        attach: bool = True,
        traceparent: str | None = None,
        caller: Caller | None = None,
    ) -> tuple[Run, Attachment | None]:
        if self._lanes.is_closing:
            raise Unavailable("The server is shutting down")
        runner = await self._runners.take(request.app_name)
        try:
            return await self._start(runner, request, idempotency_key, attach, traceparent, caller)
        finally:
            self._runners.release(runner)

    async def _start(
        self,
        runner: Runner,
        request: AgentRunRequest,
        idempotency_key: str | None,
        attach: bool,
        traceparent: str | None,
        caller: Caller | None,
    ) -> tuple[Run, Attachment | None]:
        digest: str | None = None
        if idempotency_key is not None:
            digest = digest_of(request)
            known = await self._started.find(request, idempotency_key, digest)
            if known is not None:
                return known, await self.attach(known.id, with_user_events=False) if attach else None
        key = SessionKey(request.app_name, request.user_id, request.session_id)
        self._check_place(key, request)
        session = await self._sessions.find(key)
        log = session or Session(id=key.session_id, app_name=key.app_name, user_id=key.user_id)
        arrival = await look_at(request, runner, log, jobs=self._lanes.jobs, store=self._store)
        if session is None:
            self._check_place(key, request)
            session = await self._sessions.make(key)
        if idempotency_key is not None and digest is not None:
            rival = self._started.going_on(request, idempotency_key, digest)
            if rival is not None:
                return rival.run, await self.attach(rival.run.id, with_user_events=False) if attach else None
        lane = self._lanes.of_session(session.key)
        if lane and request.multitask_strategy == "reject":
            raise SessionBusy(session.id, lane[0].run.id)
        if arrival.before is None:
            self._limits.check_session(session)
        if arrival.intake.answered is None:  # what was redeemed can't be given again
            self._check_place(key, request)
        run = arrival.new_run(
            session,
            idempotency_key=idempotency_key,
            digest=digest,
            traceparent=traceparent,
            caller=caller,
            app_version=version_of(runner),
        )
        job = Job(run, runner, arrival.intake, session if not lane else None)
        if idempotency_key is not None:
            self._started.add(job)
        here = len(session.events)
        reader = self._reader(job, after=here, with_user_events=False, catch_up=False) if attach else None
        if lane and request.multitask_strategy == "interrupt":
            self._lanes.make_way(session.key, run.id)
        try:
            await self._lanes.line_up(job)
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
        caller: Caller | None = None,
    ) -> tuple[Run, Attachment]:
        if self._lanes.is_closing:
            raise Unavailable("The server is shutting down")
        runner = await self._runners.take(key.app_name)
        try:
            return await self._start_live(runner, key, requests, run_config, after, traceparent, caller)
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
        caller: Caller | None,
    ) -> tuple[Run, Attachment]:
        self._places.check(key)
        session = await self._sessions.find(key)
        self._places.check(key)
        if session is None:
            session = await self._sessions.make(key)
        self._limits.check_session(session)
        here = len(session.events)
        run = new_live_run(key, after_seq=here, traceparent=traceparent, caller=caller)
        self._lanes.hang_up(key)
        live = LiveInput(requests, live_config(run_config.over(runner.run_config)))
        job = Job(run, runner, None, session if not self._lanes.of_session(key) else None, live)
        if after is not None:
            reader = self.attach_to_session(key, after=min(after, here))
        else:
            reader = self._reader(job, after=here, with_user_events=True, catch_up=False)
        try:
            await self._lanes.line_up(job)
        except GreenroomError:
            reader.close()
            raise
        return run, reader

    async def attach(self, run_id: str, *, after: int | None = None, with_user_events: bool = True) -> Attachment:
        job = self._lanes.going_on(run_id)
        if job is None:
            run = await self.get(run_id)
            after = run.after_seq if after is None else after
            read_log = self._sessions.log_reader(session_of(run))
            return PastRun(run, read_log, after=after, with_user_events=with_user_events)
        after = job.run.after_seq if after is None else after
        return self._reader(job, after=after, with_user_events=with_user_events)

    def attach_to_session(self, key: SessionKey, *, after: int) -> Attachment:
        return Follower(self._stream.subscribe(key), after=after, read_log=self._sessions.log_reader(key))

    async def append(self, session: Session, event: Event) -> None:
        self._limits.check_session(session)
        [stored] = await self._session_service.append(session, event)
        item = StreamItem(event, run_id=event.invocation_id, seq=stored.seq, json=stored.json)
        self._stream.publish(session.key, item)

    async def cancel(self, run_id: str, *, reason: str) -> Run:
        job = self._lanes.going_on(run_id)
        if job is None:
            run = await self.get(run_id)
            if run.status is RunStatus.WAITING:
                run.status, run.ended_at, run.asked = RunStatus.CANCELLED, time.time(), {}
                await self._store.save(run)
            return run
        job = self._lanes.stop(job.key, run_id, RunCancelled(run_id, reason))
        await job.done.wait()
        return job.run

    async def get(self, run_id: str) -> Run:
        job = self._lanes.jobs.get(run_id)
        run = job.run if job is not None else await self._store.get(run_id)
        if run is None:
            raise RunNotFound(run_id)
        return run

    async def list_runs(
        self, where: RunFilter, *, limit: int | None = 100, page_token: str | None = None
    ) -> ListRunsResponse:
        return await self._store.list_runs(where, limit=limit, page_token=page_token)

    async def delete_session(self, key: SessionKey) -> None:
        for run_id in dict.fromkeys(job.run.id for job in self._lanes.of_session(key)):
            await self.cancel(run_id, reason="its session was deleted")
        app_name, user_id, session_id = key
        if self._artifacts is not None:
            kept = await self._artifacts.list_artifact_keys(app_name=app_name, user_id=user_id, session_id=session_id)
            for name in kept:
                if not name.startswith(USER_NAMESPACE):
                    await self._artifacts.delete_artifact(
                        app_name=app_name, user_id=user_id, session_id=session_id, filename=name
                    )
        await self._credentials.delete_requests(app_name=app_name, user_id=user_id, session_id=session_id)
        await self._session_service.delete_session(app_name=app_name, user_id=user_id, session_id=session_id)
        await self._store.delete_session(app_name=app_name, user_id=user_id, session_id=session_id)

    def load(self) -> dict[str, RunLoad]:
        return self._lanes.load()

    async def recover(self) -> int:
        await self._store.lock(wait_seconds=self._lock_wait_seconds)
        left_behind = await self._store.list_unfinished()
        # A session's running run goes on before those in line, of which one may be older: an answer to its open call.
        for run in sorted(left_behind, key=lambda run: run.status is RunStatus.QUEUED):
            try:
                runner = await self._runners.take(run.app_name)
            except GreenroomError as error:
                await self._give_up(run, error)
                continue
            _log.info("resuming run %s of session %s", run.id, run.session_id)
            self._lanes.line_up(Job(run, runner, None, None, is_stored=True))
            self._runners.release(runner)
        return len(left_behind)

    async def close(self, *, grace_seconds: float = 5.0) -> None:
        await self._lanes.close(grace_seconds=grace_seconds)
        try:
            async with asyncio.timeout(RUNNER_CLOSE_SECONDS):
                await self._runners.close()
        except TimeoutError:
            _log.warning("toolsets and plugins of apps that did not close in time are abandoned")
        await self._store.close()

    def _check_place(self, key: SessionKey, request: AgentRunRequest) -> None:
        """Before what takes time, and again before the run is stored, since others may have come meanwhile."""
        takes_anothers = request.multitask_strategy == "interrupt" and self._lanes.of_session(key)
        if not takes_anothers:
            self._places.check(key)

    def _make_runner(self, app_name: str, app: App) -> Runner:
        return Runner(
            app=app,
            app_name=app_name,
            session_service=self._session_service,
            artifact_service=self._artifacts,
            memory_service=self._memory,
            credential_service=self._credentials,
            event_stream=self._stream,
            trace_listeners=self._trace_listeners,
        )

    async def _give_up(self, run: Run, error: GreenroomError) -> None:
        run.status, run.ended_at = RunStatus.FAILED, time.time()
        run.error = RunError(code=error.code, message=error.detail, status=int(error.status))
        await self._store.save(run)

    def _reader(self, job: Job, *, after: int, with_user_events: bool, catch_up: bool = True) -> Attachment:
        return Follower(
            self._stream.subscribe(job.key, run_id=job.run.id, with_user_events=with_user_events),
            after=after,
            read_log=self._sessions.log_reader(job.key),
            run_id=job.run.id,
            with_user_events=with_user_events,
            catch_up=catch_up,
        )
