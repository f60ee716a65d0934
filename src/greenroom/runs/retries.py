"""Retries: failed and cancelled runs continue, in their sessions or in forks of them."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from greenroom.errors import (
    GreenroomError,
    IdempotencyConflict,
    NotRetryable,
    RunNotFound,
    SessionBusy,
    SessionNotFound,
)
from greenroom.log.state import log_state_of
from greenroom.records.identifiers import new_invocation_id
from greenroom.records.run import RETRYABLE, AgentRunRequest, Caller, Run, RunStatus
from greenroom.records.session import Session, SessionKey
from greenroom.records.webhook_delivery import add_webhooks
from greenroom.runner.accept import SINCE_COMPACTION
from greenroom.runner.runner import Runner
from greenroom.runs.admission import Admission
from greenroom.runs.engine import ForwardedRequest
from greenroom.runs.queues import SessionQueues
from greenroom.runs.runner_cache import RunnerCache, version_of
from greenroom.runs.store import RunStore
from greenroom.runs.task import RunTask
from greenroom.sessions.service import BaseSessionService


@dataclass(kw_only=True, eq=False)
class Retries:
    """Retries the runs of one engine.

    get: the newest record of a run. acquire_runner: the runner for a session, which is released in `runners`.
    wait_until_ready: returns when this process owns the session. Raises OwnershipLost.
    """

    run_store: RunStore
    session_service: BaseSessionService
    admission: Admission
    queues: SessionQueues
    runners: RunnerCache
    get: Callable[[str], Awaitable[Run]]
    acquire_runner: Callable[[SessionKey], Awaitable[Runner]]
    wait_until_ready: Callable[[SessionKey], Awaitable[None]]

    async def retry(
        self,
        run_id: str,
        *,
        fork: bool,
        idempotency_key: str | None,
        traceparent: str | None,
        caller: Caller | None,
        forwarded: ForwardedRequest | None,
    ) -> Run:
        """See `RunEngine.retry`."""
        run = await self.get(run_id)
        if idempotency_key is None and forwarded is not None:
            idempotency_key = forwarded.run_id  # the request may come again
        if fork:
            return await self._retry_in_fork(
                run, idempotency_key=idempotency_key, traceparent=traceparent, caller=caller
            )

        key = run.session_key
        await self.wait_until_ready(key)
        runner = await self.acquire_runner(key)
        try:
            async with self.admission.lock(key):
                task = await self._admit(run_id, key, runner, idempotency_key=idempotency_key)
                if isinstance(task, Run):
                    await self.queues.wait_until_stored(task.id)
                    return task
                stored = self._enqueue(task, traceparent=traceparent, caller=caller)
        finally:
            self.runners.release(runner)
        await stored
        return task.run

    async def _retry_in_fork(
        self, run: Run, *, idempotency_key: str | None, traceparent: str | None, caller: Caller | None
    ) -> Run:
        if idempotency_key is not None:
            digest = _request_digest(run.id, fork=True)
            started = await self._started_with(run.session_key, idempotency_key, digest)
            if started is not None:
                return started
        check_is_retryable(run)

        runner = await self.acquire_runner(run.session_key)
        try:
            session = await self.session_service.get_session(**run.session_key._asdict())
            if session is None:
                raise SessionNotFound(*run.session_key)
            retried_run, seq = end_of_run(run, session)
            forked = await self.session_service.fork_session(**run.session_key._asdict(), seq=seq)
            try:
                async with self.admission.lock(forked.key):
                    task = await self._admit_fork(run, retried_run, forked.key, runner, idempotency_key=idempotency_key)
                    stored = self._enqueue(task, traceparent=traceparent, caller=caller)
                await stored
            except GreenroomError:
                await self.session_service.delete_session(**forked.key._asdict())
                raise
        finally:
            self.runners.release(runner)
        return task.run

    def _enqueue(self, task: RunTask, *, traceparent: str | None, caller: Caller | None) -> asyncio.Future[None]:
        task.run.traceparent = traceparent
        task.run.caller = caller
        self.admission.audit("run.retried", task, caller)
        self.runners.retain(task.runner)
        return self.queues.enqueue(task)

    async def _admit(
        self, run_id: str, key: SessionKey, runner: Runner, *, idempotency_key: str | None
    ) -> RunTask | Run:
        """A failed or cancelled run to enqueue once more, or the one that the same request started before.

        Raises RunNotFound, NotRetryable, SessionBusy, SessionNotFound, SessionFull, IdempotencyConflict,
        TooManyRuns.
        """
        digest = _request_digest(run_id, fork=False)
        if idempotency_key is not None:
            started = await self._started_with(key, idempotency_key, digest)
            if started is not None:
                return started
        task = self.queues.tasks.get(run_id)
        run = task.run if task is not None else await self.run_store.get(run_id)
        if run is None:
            raise RunNotFound(run_id)
        check_is_retryable(run)
        if queue := self.queues.of_session(key):
            raise SessionBusy(key.session_id, queue[0].run.id)
        session = await self._session_with(run)
        end = session.events.end
        if run.started_at is not None:
            check_is_newest(run, session)
        self.admission.limits.check_session(session)

        await self.admission.limiter.acquire(key)
        retried = msgspec.structs.replace(
            run,
            status=RunStatus.QUEUED,
            ended_at=None,
            error=None,
            stalled=0,
            stalled_alone=0,
            resumed_alone=False,
            progress=-1,
            retries=run.retries + 1,
            steered_into=None,
            start_at=None,
            requested_at=time.time(),
            first_text_at=None,
            after_seq=run.after_seq if run.started_at is not None else end,
            message_after_seq=run.message_after_seq if run.started_at is not None else end,
            idempotency_key=idempotency_key,
            request_digest=digest if idempotency_key is not None else None,
            app_version=version_of(runner),  # the caller asks for the present code, which may have been corrected
        )
        return RunTask(retried, runner, is_resumed=True, session=session)

    async def _admit_fork(
        self, origin: Run, retried_run: str, key: SessionKey, runner: Runner, *, idempotency_key: str | None
    ) -> RunTask:
        """A new run that continues a failed or cancelled one in a fork of its session. Raises SessionFull, TooManyRuns.

        retried_run: the run whose events the fork has, see `end_of_run`. key: of the fork.
        """
        session = await self.session_service.get_session(**key._asdict())
        if session is None:
            raise SessionNotFound(*key)
        self.admission.limits.check_session(session)
        request: AgentRunRequest | None = None
        if origin.request is not None:
            request = msgspec.structs.replace(origin.request, session_id=session.id, invocation_id=None)
        run = self.admission.new_run(new_invocation_id(), session, runner, request)
        run.priority = origin.priority
        run.message_after_seq = origin.message_after_seq
        run.retries = 1
        run.retry_of = retried_run
        run.idempotency_key = idempotency_key
        run.request_digest = _request_digest(origin.id, fork=True) if idempotency_key is not None else None
        if request is not None and request.webhooks:
            add_webhooks(run, request.webhooks)
        await self.admission.limiter.acquire(key)
        return RunTask(run, runner, is_resumed=True, session=session)

    async def _session_with(self, run: Run) -> Session:
        """The session of a run, with all events of the run. Raises SessionNotFound."""
        session = await self.session_service.get_session(**run.session_key._asdict(), config=SINCE_COMPACTION)
        if session is not None and session.events.skipped > min(run.after_seq, run.message_after_seq):
            session = await self.session_service.get_session(**run.session_key._asdict())
        if session is None:
            raise SessionNotFound(*run.session_key)
        return session

    async def _started_with(self, key: SessionKey, idempotency_key: str, digest: str) -> Run | None:
        """The run that the same request started before. Raises IdempotencyConflict."""
        started = await self.admission.started_with(key, idempotency_key, self.queues)
        if started is not None and started.request_digest != digest:
            raise IdempotencyConflict(idempotency_key)
        return started


def check_is_retryable(run: Run) -> None:
    """Raises NotRetryable."""
    if run.status not in RETRYABLE:
        raise NotRetryable(run.id, f"its status is {run.status.value!r}, neither 'failed' nor 'cancelled'")
    if run.request is None:
        raise NotRetryable(run.id, "the input of a live run isn't stored")


def end_of_run(run: Run, session: Session) -> tuple[str, int]:
    """The id with which the run's events are in the log, and the sequence number of the last of them.

    session: with its whole log.
    """
    for run_id in (run.id, run.retry_of):
        for index in range(len(session.events) - 1, -1, -1):
            if run_id is not None and session.events[index].invocation_id == run_id:
                return run_id, index + 1
    return run.id, min(run.message_after_seq, len(session.events))


def check_is_newest(run: Run, session: Session) -> None:
    """Raises NotRetryable if the session went on after the run."""
    events = session.events
    rewound = log_state_of(events).rewound
    is_in_log = False
    for index in range(len(events) - 1, max(run.message_after_seq - events.skipped, 0) - 1, -1):
        event = events[index]
        if event.actions.rewind_before_invocation_id:
            raise NotRetryable(run.id, "its session was rewound since; retry it in a fork")
        if event.invocation_id == run.id:
            is_in_log = True
        elif event.content is not None and index not in rewound and not is_in_log:
            raise NotRetryable(run.id, "its session has later messages; retry it in a fork")


def _request_digest(run_id: str, *, fork: bool) -> str:
    return hashlib.sha256(f"retry {run_id} {fork}".encode()).hexdigest()
