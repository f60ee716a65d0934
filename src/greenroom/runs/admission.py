"""Admission: decides which run a request starts or continues, and which pending calls it answers."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec

from greenroom.errors import (
    IdempotencyConflict,
    InvalidRequest,
    NotWaiting,
    RunNotFound,
    SessionBusy,
    SessionExists,
    SessionNotFound,
)
from greenroom.log.state import log_state_of
from greenroom.records import wire
from greenroom.records.audit import AuditAction, AuditEntry
from greenroom.records.content import Content
from greenroom.records.human_requests import responses_in
from greenroom.records.identifiers import new_invocation_id
from greenroom.records.run import MAX_DELAY_SECONDS, MAX_START_AT, AgentRunRequest, Caller, Run, RunStatus
from greenroom.records.session import GetSessionConfig, Session, SessionKey
from greenroom.records.webhook_delivery import add_webhooks
from greenroom.runner.accept import SINCE_COMPACTION, Accepted, accept_message, is_to_task, needs_older_events
from greenroom.runner.runner import Runner
from greenroom.runs.answers import Answers, answerer_of, check_asked, count_answers
from greenroom.runs.app_versions import AppVersions
from greenroom.runs.app_webhooks import AppWebhooks
from greenroom.runs.audit import answer_entries, run_entry
from greenroom.runs.engine import ForwardedRequest, OpenCall
from greenroom.runs.limits import ConcurrencyLimiter, RunLimits
from greenroom.runs.queues import SessionQueues, without_answered
from greenroom.runs.runner_cache import version_of
from greenroom.runs.signals import take_signal
from greenroom.runs.store import RunStore
from greenroom.runs.task import LiveInput, RunTask
from greenroom.sessions.service import BaseSessionService

_REPEATED_IDS = 10_000
"""Number of run ids of repeated requests that are kept."""
_CONTINUED = (
    "created_at", "started_at", "usage", "after_seq", "webhooks", "retries", "retry_of", "signals", "signal_ids",
    "counted", "counted_seq",
)  # fmt: skip
"""Fields of a run's record that a message which continues it keeps."""


class KnownRun(NamedTuple):
    """The outcome of a request that starts nothing: the run that it started before, or that still waits."""

    run: Run
    after_seq: int
    """The last sequence number of the session's log before the events that follow the request."""
    has_new_votes: bool = False
    """Whether its answers leave all their requests to people open."""


class Continued(NamedTuple):
    """The run that a request continues."""

    record: Run | None
    """None for a run that is only in the session's log."""
    pending: Mapping[str, str]
    """Its pending requests to people, see `Run.asked`."""
    runner: Runner
    """Of the version of the app with which it continues."""


@dataclass(kw_only=True, eq=False)
class Admission:
    """Call `admit` and `admit_live`, and enqueue the returned run, under the session's lock.

    Each of them counts the run in `limiter`, which is released when the run ends.
    """

    session_service: BaseSessionService
    run_store: RunStore
    limits: RunLimits
    limiter: ConcurrencyLimiter
    versions: AppVersions
    app_webhooks: AppWebhooks
    auto_create_session: bool
    is_audited: bool

    def __post_init__(self) -> None:
        self._locks = WeakValueDictionary[SessionKey, asyncio.Lock]()
        self._repeated: dict[str, None] = {}
        """Run ids of the newest forwarded requests that were sent again."""

    def lock(self, key: SessionKey) -> asyncio.Lock:
        """The session's lock, kept while it is held or waited for."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock

    async def admit(
        self,
        request: AgentRunRequest,
        key: SessionKey,
        runner: Runner,
        queues: SessionQueues,
        *,
        idempotency_key: str | None,
        caller: Caller | None = None,
        forwarded: ForwardedRequest | None = None,
        open_call: OpenCall | None = None,
    ) -> RunTask | KnownRun:
        """The run to enqueue, or to store if it is delayed, or the one that the same request started before. Its runner
        may be that of an earlier version of the app. Of answers that leave their requests to people open, only the
        votes are stored.

        open_call: see `RunEngine.start`.

        Raises SessionNotFound, InvalidRequest, ApprovalRefused, RequestClosed, NotApprover, AppVersionChanged,
        SessionBusy, SessionFull, IdempotencyConflict, TooManyRuns, and RunNotFound: for an id of another session as
        for an unknown one.
        """
        digest: str | None = None
        if idempotency_key is not None:
            digest = hashlib.sha256(wire.encode(request)).hexdigest()
            started = await self.started_with(key, idempotency_key, queues)
            if started is not None:
                if started.request_digest != digest:
                    raise IdempotencyConflict(idempotency_key)
                return KnownRun(started, started.after_seq)
        elif forwarded is not None:
            started = await self._started_by(key, forwarded, queues)
            if started is not None:
                has_continued = started.id != forwarded.run_id
                return KnownRun(started, started.message_after_seq if has_continued else started.after_seq)

        new_run_id = forwarded.run_id if forwarded is not None else None
        start_at: float | None = None
        if request.start_at is not None or request.delay_seconds is not None:
            start_at = start_time(request)
        if start_at is not None:
            new_run_id = new_run_id or new_invocation_id()
            task = await self._admit_delayed(request, start_at, key, runner, run_id=new_run_id)
            task.run.caller = caller
            self.audit("run.started", task, caller)
        else:
            replaces = request.multitask_strategy == "interrupt" and bool(queues.of_session(key))
            await self.limiter.acquire(key, may_exceed=replaces)
            try:
                task = await self._admit(
                    request, key, runner, queues, new_run_id=new_run_id, open_call=open_call, caller=caller
                )
            except BaseException:
                self.limiter.release(key)
                raise

        if isinstance(task, KnownRun):
            self.limiter.release(key)
            return task
        if idempotency_key is None and forwarded is not None and task.run.id != forwarded.run_id:
            idempotency_key = forwarded.run_id  # the request continues an earlier run
        task.run.idempotency_key = idempotency_key
        task.run.request_digest = digest
        return task

    async def _admit(
        self,
        request: AgentRunRequest,
        key: SessionKey,
        runner: Runner,
        queues: SessionQueues,
        *,
        new_run_id: str | None,
        open_call: OpenCall | None,
        caller: Caller | None,
    ) -> RunTask | KnownRun:
        """new_run_id: of a run that isn't an earlier one's continuation; by default a random one."""
        stored = await self._find(key)
        if stored and needs_older_events(stored.events, request.new_message, request.invocation_id):
            stored = await self._find(key, None)
        session = stored or Session(id=key.session_id, app_name=key.app_name, user_id=key.user_id)
        if open_call is not None and not log_state_of(session.events).is_open(open_call.id):
            raise NotWaiting(request.invocation_id or "", f"the response to call {open_call.id!r}")
        queue = queues.of_session(key)
        is_idle = not queue
        accepted = accept_message(session.events, request.new_message, request.invocation_id)
        message = accepted.message
        answered = accepted.answered
        run_id = accepted.run_id
        continued: Continued | None = None
        is_steering = request.multitask_strategy == "steer" and message is not None and answered is None
        if is_steering and queue and run_id == queue[0].run.id:
            run_id = None
            request = msgspec.structs.replace(request, invocation_id=None)
        if run_id is not None:
            continued = await self._run_to_continue(run_id, accepted, session, queues.tasks.get(run_id), runner)
            queue = queues.of_session(key)
        if continued is not None:
            runner = continued.runner

        if queue and request.multitask_strategy == "reject":
            raise SessionBusy(session.id, queue[0].run.id)
        earlier = continued.record if continued is not None else None
        if open_call is not None and (earlier is None or earlier.status is not RunStatus.WAITING):
            raise NotWaiting(run_id or "", f"the response to call {open_call.id!r}")
        if earlier is None:
            self.limits.check_session(session)

        answers: Answers | None = None
        audit: Sequence[AuditEntry] = ()
        if earlier is not None and continued is not None and answered is not None and responses_in(message):
            answerer = answerer_of(open_call, caller, key)
            answers = await count_answers(self.run_store, earlier, session, message, answerer)
            if self.is_audited:
                who = caller if open_call is None else None
                audit = answer_entries(
                    [*answers.decided, *answers.undecided],
                    message,
                    continued.runner,
                    session=session,
                    caller=who,
                    answerer=answerer,
                )
            if answers.message is None:
                for number, request_to_people in enumerate(answers.undecided):
                    await self.run_store.save_request(request_to_people, audit=audit[number : number + 1])
                return KnownRun(earlier, session.events.end, has_new_votes=True)
            message = answers.message

        if run_id is None or continued is None:
            run_id = new_run_id or new_invocation_id()
            answered = None
        if answered is not None:
            message = await runner.exchange_credentials(session, message)
        if message is not request.new_message:
            request = msgspec.structs.replace(request, new_message=message)

        if stored is None:
            session = await self._create(key)
        run = self.new_run(run_id, session, runner, request)
        run.caller = caller
        if continued is not None:
            run.asked = without_answered(continued.pending, message)
        if earlier is not None and earlier.requests:
            run.requests = without_answered(earlier.requests, message)
        if earlier is not None:
            run.requested_at = run.created_at
            for name in _CONTINUED:
                setattr(run, name, getattr(earlier, name))
            if open_call is not None and open_call.signal is not None:
                take_signal(run, open_call.signal)
        if request.webhooks:
            add_webhooks(run, request.webhooks)
        if is_steering and continued is None:
            queue = queues.of_session(key)
            if queue and queue[0].run.may_read(run):
                run.steered_into = queue[0].run.id

        task = RunTask(
            run,
            runner,
            answered=answered,
            session=session if is_idle else None,
            requests=answers.changes if answers is not None else None,
            audit=audit,
        )
        self.audit("run.started" if continued is None else "run.continued", task, caller if open_call is None else None)
        return task

    async def _admit_delayed(
        self, request: AgentRunRequest, start_at: float, key: SessionKey, runner: Runner, *, run_id: str
    ) -> RunTask:
        """A run that starts later. It isn't counted until then."""
        session, message = await self._accept_new(request, key, run_id)
        stored = msgspec.structs.replace(request, new_message=message, start_at=None, delay_seconds=None)
        run = self.new_run(run_id, session, runner, stored)
        run.start_at = start_at
        if request.webhooks:
            add_webhooks(run, request.webhooks)
        return RunTask(run, runner)

    async def admit_due(self, run: Run, request: AgentRunRequest, runner: Runner, queues: SessionQueues) -> RunTask:
        """A delayed run to enqueue, since its time has come. It is checked again, as a request that comes now.

        Raises SessionNotFound, InvalidRequest, SessionBusy, SessionFull, TooManyRuns.
        """
        key = run.session_key
        replaces = request.multitask_strategy == "interrupt" and bool(queues.of_session(key))
        await self.limiter.acquire(key, may_exceed=replaces)
        try:
            session, message = await self._accept_new(request, key, run.id)
            queue = queues.of_session(key)
            if queue and request.multitask_strategy == "reject":
                raise SessionBusy(session.id, queue[0].run.id)
        except BaseException:
            self.limiter.release(key)
            raise

        run.requested_at = run.start_at
        run.start_at = None
        run.after_seq = run.message_after_seq = session.events.end
        run.app_version = version_of(runner)
        run.request = msgspec.structs.replace(request, new_message=message)
        if queue and request.multitask_strategy == "steer" and message is not None and queue[0].run.may_read(run):
            run.steered_into = queue[0].run.id
        return RunTask(run, runner, session=session if not queue else None)

    async def _accept_new(
        self, request: AgentRunRequest, key: SessionKey, run_id: str
    ) -> tuple[Session, Content | None]:
        """The session and the accepted message of a run that continues no other."""
        stored = await self._find(key)
        session = stored or Session(id=key.session_id, app_name=key.app_name, user_id=key.user_id)
        message = accept_message(session.events, request.new_message, run_id).message
        self.limits.check_session(session)
        return stored or await self._create(key), message

    async def admit_live(self, key: SessionKey, runner: Runner, queues: SessionQueues, live: LiveInput) -> RunTask:
        """A live run to enqueue. Raises SessionNotFound, SessionFull, TooManyRuns."""
        await self.limiter.acquire(key)
        try:
            is_idle = not queues.of_session(key)
            session = await self.open_session(key)
            self.limits.check_session(session)
        except BaseException:
            self.limiter.release(key)
            raise
        run = self.new_run(new_invocation_id(), session, runner)
        run.is_live = True
        return RunTask(run, runner, session=session if is_idle else None, live=live)

    def new_run(self, run_id: str, session: Session, runner: Runner, request: AgentRunRequest | None = None) -> Run:
        """The record of a queued run whose session has no event of it yet. It has the webhooks of its app only."""
        end = session.events.end
        run = Run(
            id=run_id,
            app_name=session.app_name,
            user_id=session.user_id,
            session_id=session.id,
            status=RunStatus.QUEUED,
            created_at=time.time(),
            after_seq=end,
            message_after_seq=end,
            request=request,
        )
        app = runner.app
        if app is not None:
            run.app_version = app.version or None
            run.priority = app.priority
        webhooks = self.app_webhooks.of(run.app_name, app.webhooks if app is not None else ())
        if webhooks:
            add_webhooks(run, webhooks, is_of_app=True)
        if request is not None and request.priority is not None:
            run.priority = request.priority
        return run

    def audit(self, action: AuditAction, task: RunTask, caller: Caller | None) -> None:
        """Adds an entry of the audit trail, which is stored with the run's record. caller: None if nobody asked."""
        if self.is_audited:
            task.audit = [*task.audit, run_entry(action, task.run, task.runner, caller)]

    async def open_session(self, key: SessionKey) -> Session:
        """The stored session, or a new one where runs may create it. Raises SessionNotFound."""
        return await self._find(key) or await self._create(key)

    async def _find(self, key: SessionKey, config: GetSessionConfig | None = SINCE_COMPACTION) -> Session | None:
        """None where a run may create the session. Raises SessionNotFound."""
        session = await self.session_service.get_session(
            app_name=key.app_name, user_id=key.user_id, session_id=key.session_id, config=config
        )
        if session is None and not self.auto_create_session:
            raise SessionNotFound(*key)
        return session

    async def _create(self, key: SessionKey) -> Session:
        try:
            return await self.session_service.create_session(**key._asdict())
        except SessionExists:  # another process was faster
            return await self._find(key) or await self._create(key)

    async def started_with(self, key: SessionKey, idempotency_key: str, queues: SessionQueues) -> Run | None:
        """The run that a request with the same idempotency key has started."""
        task = queues.with_idempotency_key(key.app_name, key.user_id, idempotency_key)
        if task is not None:
            return task.run
        return await self.run_store.find_by_idempotency_key(
            app_name=key.app_name, user_id=key.user_id, key=idempotency_key
        )

    async def _started_by(self, key: SessionKey, forwarded: ForwardedRequest, queues: SessionQueues) -> Run | None:
        """The run that another copy of the request has started or continued.

        The first copy may still be under way when the second one arrives, and be admitted after it.
        """
        run_id = forwarded.run_id
        if forwarded.is_repeated:
            self._repeated[run_id] = None
            if len(self._repeated) > _REPEATED_IDS:
                del self._repeated[next(iter(self._repeated))]
        task = queues.tasks.get(run_id)
        if task is not None:
            return task.run
        if run_id not in self._repeated:
            return None
        return await self.run_store.get(run_id) or await self.started_with(key, run_id, queues)

    async def _run_to_continue(
        self, run_id: str, accepted: Accepted, session: Session, task: RunTask | None, runner: Runner
    ) -> Continued | None:
        """The run that a message continues; None if that is a new one, since the task that it is for was cancelled.

        Raises RunNotFound, InvalidRequest, AppVersionChanged, ApprovalRefused.
        """
        run = task.run if task is not None else await self.run_store.get(run_id)
        if run is None:
            is_known = log_state_of(session.events).has_run(run_id)
        else:
            is_known = run.session_key == session.key
        if run is None or not is_known:
            check_asked(session, accepted.message, {})
            if not is_known:
                raise RunNotFound(run_id)
            return Continued(None, {}, runner)

        if run.is_delayed:
            raise InvalidRequest("The run has not started, and can't be continued", location=("body", "invocationId"))
        if run.status is RunStatus.CANCELLED and is_to_task(accepted.message, accepted.answered):
            return None
        runner = await self.versions.runner_for(run, runner, session)
        pending = task.pending_requests(session) if task is not None else run.asked
        check_asked(session, accepted.message, pending)
        return Continued(run, pending, runner)


def start_time(request: AgentRunRequest) -> float | None:
    """The time (Unix seconds) at which the run of a request with `startAt` or `delaySeconds` starts; None if it has
    passed. Raises InvalidRequest.
    """
    if request.start_at is not None and request.delay_seconds is not None:
        raise InvalidRequest("Give either startAt or delaySeconds", location=("body", "delaySeconds"))

    now = time.time()
    if request.start_at is not None:
        name = "startAt"
        start_at = request.start_at
        if not 0 <= start_at < MAX_START_AT:
            raise InvalidRequest("startAt must be Unix seconds before the year 10000", location=("body", name))
    else:
        name = "delaySeconds"
        start_at = now + (request.delay_seconds or 0.0)
        if not now <= start_at < now + MAX_DELAY_SECONDS:
            raise InvalidRequest("delaySeconds must be 0 or more", location=("body", name))
    if request.invocation_id is not None or responses_in(request.new_message):
        raise InvalidRequest("Only a new run can start later, not the continuation of one", location=("body", name))
    return start_at if start_at > now else None
