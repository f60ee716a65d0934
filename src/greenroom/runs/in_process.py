"""Runs owned by this process: an asyncio task each, one at a time per session, resumed from the log after a crash."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from greenroom.apps.app import App
from greenroom.apps.loader import AppLoader
from greenroom.apps.published import PublishedApps
from greenroom.artifacts.service import BaseArtifactService
from greenroom.credentials.in_memory import InMemoryCredentialService
from greenroom.credentials.service import BaseCredentialService
from greenroom.errors import (
    AppNotFound,
    GreenroomError,
    OwnershipLost,
    RunCancelled,
    RunNotFound,
    SessionBusy,
    SessionNotFound,
    Unavailable,
)
from greenroom.event_streams.in_process import InProcessEventStream
from greenroom.event_streams.stream import StreamItem
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.invocation.sleep import SignalUrlMaker
from greenroom.log.state import log_state_of
from greenroom.memory.service import BaseMemoryService
from greenroom.records.event import Event
from greenroom.records.identifiers import uuid4
from greenroom.records.inbox import (
    Answerer,
    HumanRequest,
    ListRequestsResponse,
    RequestAnswer,
    RequestFilter,
)
from greenroom.records.replica import ReplicaStatus
from greenroom.records.retention import RetentionPreview
from greenroom.records.run import (
    AgentRunRequest,
    Caller,
    ListRunsResponse,
    Run,
    RunConfig,
    RunFilter,
    RunStatus,
    RunWebhook,
    Webhook,
    default_max_llm_calls,
)
from greenroom.records.session import Session, SessionKey
from greenroom.records.shard import SHARDS, Shards
from greenroom.records.wake_up import SentSignal
from greenroom.records.webhook_delivery import add_webhooks
from greenroom.redaction.rules import Redaction
from greenroom.runner.rewind import rewind_event
from greenroom.runner.runner import Runner, live_config
from greenroom.runs.admission import Admission, KnownRun
from greenroom.runs.app_budgets import AppBudgets
from greenroom.runs.app_versions import AppVersions
from greenroom.runs.app_webhooks import AppWebhooks
from greenroom.runs.declared_schedules import DeclaredSchedules
from greenroom.runs.delayed_runs import DelayedRuns
from greenroom.runs.deletion import Deletion
from greenroom.runs.engine import Attachment, ForwardedRequest, OpenCall, RunEngine
from greenroom.runs.expiry import Expiry
from greenroom.runs.feedback import SessionFeedback
from greenroom.runs.inactive_runs import InactiveRuns
from greenroom.runs.inbox import Inbox
from greenroom.runs.judging import JudgeRun, RunJudging
from greenroom.runs.limits import ConcurrencyLimiter, RunLimits
from greenroom.runs.memory_writer import MemoryWriter
from greenroom.runs.open_calls import OpenCalls
from greenroom.runs.ownership import IsOf, Replicas, require
from greenroom.runs.push_notifications import PushNotifications
from greenroom.runs.queues import SessionQueues
from greenroom.runs.readers import Readers
from greenroom.runs.resumption import Resumption
from greenroom.runs.retries import Retries
from greenroom.runs.run_config import RunDefaults
from greenroom.runs.runner_cache import RunnerCache
from greenroom.runs.schedules import Schedules
from greenroom.runs.statistics import StatisticsKeeper, load_of
from greenroom.runs.steering import QueuedMessages, find_reading
from greenroom.runs.store import RunLoad, RunStore, StoreLoad
from greenroom.runs.takeover import Takeovers
from greenroom.runs.task import LiveInput, RunTask
from greenroom.runs.traffic import TrafficSplitter
from greenroom.runs.turns import Turns
from greenroom.runs.versions import Versions
from greenroom.runs.wake_ups import WakeUps
from greenroom.runs.watch import RunWatch, RunWatches
from greenroom.runs.webhooks import SendWebhook, Webhooks
from greenroom.schedules.store import ScheduleLimits
from greenroom.sessions.service import BaseSessionService
from greenroom.statistics.store import LoadSample, Retention
from greenroom.telemetry.span import TraceListener
from greenroom.version import __version__

AttachmentOrNone = TypeVar("AttachmentOrNone", Attachment, Attachment | None)

_log = logging.getLogger("greenroom.runs")

_NO_LIMITS = RunLimits()
_SCHEDULE_LIMITS = ScheduleLimits()

RUNNER_CLOSE_SECONDS = 3.0
"""Time limit for closing the toolsets and plugins of all apps when the server stops."""


@dataclass(kw_only=True, eq=False)
class InProcessRunEngine(RunEngine):
    apps: AppLoader
    run_store: RunStore
    session_service: BaseSessionService
    artifact_service: BaseArtifactService | None = None
    memory_service: BaseMemoryService | None = None
    credential_service: BaseCredentialService = field(default_factory=InMemoryCredentialService)
    auto_create_session: bool = False
    deadline_seconds: float | None = None
    """Of runs whose request and app set none."""
    max_llm_calls: int | None = None
    """Of runs whose app sets none; None: as `RunConfig()` has it."""
    session_ttl_seconds: float | None = None
    """Of apps that set none; None: their sessions are kept for ever."""
    limits: RunLimits = _NO_LIMITS
    schedule_limits: ScheduleLimits = _SCHEDULE_LIMITS
    is_valid_caller: Callable[[Caller], Awaitable[bool]] | None = None
    """False for a caller whose API key was revoked or has expired: no schedule of its starts runs."""
    lock_wait_seconds: float = 10.0
    """Time for which `recover` waits for another server on the same store to end, as in a rolling restart."""
    trace_listeners: Sequence[TraceListener] = ()
    send_webhook: SendWebhook | None = None
    """Sends a message to a webhook; None: messages stay in the store."""
    signal_urls: SignalUrlMaker | None = None
    """Makes the URLs of `signal_url`; None: there are none."""
    is_audited: bool = False
    """Whether entries of the audit trail are stored with the records of runs."""
    judge_run: JudgeRun | None = None
    """Scores a run for a judge of its app; None: no run is judged."""
    statistics_retention: Retention | None = None
    """The time for which statistics of runs are kept; None: runs aren't counted."""

    def __post_init__(self) -> None:
        self._id = uuid4()
        self._started_at = time.time()
        self._stream = InProcessEventStream()
        self._readers = Readers(session_service=self.session_service, stream=self._stream, attach=self.attach)
        self._watches = RunWatches()
        self.webhooks = Webhooks(self.run_store, self.send_webhook)
        self.push_notifications = PushNotifications(self.run_store, self._watches, self.get)
        published = PublishedApps(self.apps, self.run_store.versions)
        self._runners = RunnerCache(self.apps, published, self._make_runner)
        self._traffic = TrafficSplitter(self.run_store)
        self._versions = AppVersions(self._runners, self._traffic, self._open_whole)
        self.versions = Versions(
            apps=self.apps, store=self.run_store.versions, published=published, traffic=self._traffic
        )
        self._limiter = ConcurrencyLimiter(self.limits)
        self.app_webhooks = AppWebhooks(self.run_store)
        self.budgets = AppBudgets(self.run_store, self.session_service, lambda: self._runners)
        self._admission = Admission(
            session_service=self.session_service,
            run_store=self.run_store,
            limits=self.limits,
            limiter=self._limiter,
            versions=self._versions,
            app_webhooks=self.app_webhooks,
            auto_create_session=self.auto_create_session,
            is_audited=self.is_audited,
        )
        self._memory_writer = MemoryWriter(self.run_store)
        self._inactive_runs = InactiveRuns(
            run_store=self.run_store,
            watches=self._watches,
            stream=self._stream,
            trace_listeners=self.trace_listeners,
            has_statistics=self.statistics_retention is not None,
        )
        self._wake_ups = WakeUps(
            self.run_store,
            self.get,
            # Lambdas, since these two need the queues, which need this timer.
            wake=lambda run, call_id, wake_up, signal: self._open_calls.wake(run, call_id, wake_up, signal),
            start=lambda run: self._delayed_runs.start(run),
        )
        self.schedules = Schedules(
            run_store=self.run_store,
            session_service=self.session_service,
            start=self.start,
            get_run=self.get,
            cancel_run=self.cancel,
            redaction_of=self.redaction_of,
            limits=self.schedule_limits,
            is_valid=self.is_valid_caller,
        )
        self._declared_schedules = DeclaredSchedules(apps=self.apps, run_store=self.run_store, schedules=self.schedules)
        self.statistics = self.run_store.statistics if self.statistics_retention is not None else None
        self.feedback = SessionFeedback(
            store=self.run_store.feedback,
            redaction_of=self.redaction_of,
            session_service=self.session_service,
            lock=self._admission.lock,
            wait_until_ready=self._wait_until_ready,
        )
        self._judging = RunJudging(self.judge_run, self.feedback) if self.judge_run is not None else None
        self._statistics_keeper: StatisticsKeeper | None = None
        self._takeovers: Takeovers | None = None
        """None where this process owns all sessions."""

        self._queues = SessionQueues(
            run_store=self.run_store,
            usage_store=lambda: self.session_service.usage,
            stream=self._stream,
            watches=self._watches,
            open_session=self._admission.open_session,
            find_reading=partial(find_reading, self.session_service),
            release=self._release,
            defaults=RunDefaults(
                deadline_seconds=self.deadline_seconds,
                max_llm_calls=default_max_llm_calls() if self.max_llm_calls is None else self.max_llm_calls,
            ),
            versions=self._versions,
            trace_listeners=self.trace_listeners,
            memory_writer=self._memory_writer,
            judging=self._judging,
            wake_ups=self._wake_ups,
            has_statistics=self.statistics_retention is not None,
            turns=None if self.limits.running is None else Turns(self.limits.running, self.limits.weights),
        )
        self._queued_messages = QueuedMessages(self._queues)
        self._delayed_runs = DelayedRuns(
            run_store=self.run_store,
            admission=self._admission,
            queues=self._queues,
            runners=self._runners,
            inactive_runs=self._inactive_runs,
            wake_ups=self._wake_ups,
            watches=self._watches,
            get=self.get,
            acquire_runner=self._runner_for,
            enqueue=self._enqueue,
            wait_until_ready=self._wait_until_ready,
        )
        self._open_calls = OpenCalls(
            run_store=self.run_store,
            queues=self._queues,
            memory_writer=self._memory_writer,
            inactive_runs=self._inactive_runs,
            get=self.get,
            start=self.start,
            redaction_of=self.redaction_of,
            lock=self._admission.lock,
            wait_until_ready=self._wait_until_ready,
        )
        self._inbox = Inbox(
            run_store=self.run_store,
            watches=self._watches,
            open_calls=self._open_calls,
            get_run=self.get,
            redaction_of=self.redaction_of,
            lock=self._admission.lock,
            wait_until_ready=self._wait_until_ready,
            wait_until_stored=self._queues.wait_until_stored,
            is_audited=self.is_audited,
        )
        self._resumption = Resumption(
            run_store=self.run_store,
            session_service=self.session_service,
            runners=self._runners,
            traffic=self._traffic,
            limiter=self._limiter,
            queues=self._queues,
            inactive_runs=self._inactive_runs,
            wake_ups=self._wake_ups,
            memory_writer=self._memory_writer,
        )
        self._retries = Retries(
            run_store=self.run_store,
            session_service=self.session_service,
            admission=self._admission,
            queues=self._queues,
            runners=self._runners,
            get=self.get,
            acquire_runner=self._runner_for,
            wait_until_ready=self._wait_until_ready,
        )
        self._deletion = Deletion(
            run_store=self.run_store,
            session_service=self.session_service,
            artifact_service=self.artifact_service,
            memory_service=self.memory_service,
            credential_service=self.credential_service,
            schedules=self.schedules,
            memory_writer=self._memory_writer,
            queues=self._queues,
            stream=self._stream,
            lock=self._admission.lock,
            wait_until_ready=self._wait_until_ready,
            cancel=self.cancel,
        )
        self._expiry = Expiry(
            apps=self.apps,
            run_store=self.run_store,
            session_service=self.session_service,
            deletion=self._deletion,
            default_ttl_seconds=self.session_ttl_seconds,
            is_audited=self.is_audited,
        )

    async def start(
        self,
        request: AgentRunRequest,
        *,
        idempotency_key: str | None = None,
        attach: bool = True,
        traceparent: str | None = None,
        caller: Caller | None = None,
        forwarded: ForwardedRequest | None = None,
        open_call: OpenCall | None = None,
    ) -> tuple[Run, Attachment | None]:
        key = SessionKey(request.app_name, request.user_id, request.session_id)
        await self._wait_until_ready(key)
        runner = await self._runner_for(key)
        try:
            if runner.redaction is not None:
                request = await runner.redaction.redact_request(request)
            async with self._admission.lock(key):
                task = await self._admission.admit(
                    request,
                    key,
                    runner,
                    self._queues,
                    idempotency_key=idempotency_key,
                    caller=caller,
                    forwarded=forwarded,
                    open_call=open_call,
                )
                if isinstance(task, KnownRun):
                    run, after, has_votes = task
                    if has_votes:
                        self._watches.publish(run)
                    await self._queues.wait_until_stored(run.id)
                    return run, await self.attach(run.id, after=after, with_user_events=False) if attach else None

                run = task.run
                run.traceparent = traceparent
                reader: Attachment | None = None
                if attach and run.steered_into is not None:
                    reader = self._readers.of_steering_run(run, task, after=None, with_user_events=False)
                elif attach:
                    after = run.message_after_seq
                    reader = self._readers.of_run(key, run.id, after=after, with_user_events=False, catch_up=False)
                if run.start_at is not None:
                    # Stored under the lock, so that the same request finds it.
                    return run, await _when_stored(self._delayed_runs.save(task), reader)
                stored = self._enqueue(task, request)
        finally:
            self._runners.release(runner)

        return run, await _when_stored(stored, reader)

    def _enqueue(self, task: RunTask, request: AgentRunRequest) -> asyncio.Future[None]:
        """Starts a run, now or after those before it. Returns the future of its record."""
        if request.multitask_strategy == "interrupt":
            self._queues.preempt(task.key, task.run.id)
        self._runners.retain(task.runner)
        return self._queues.enqueue(task)

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
        await self._wait_until_ready(key)
        runner = await self._runner_for(key)
        try:
            async with self._admission.lock(key):
                live = LiveInput(requests, live_config(run_config.over(runner.run_config)))
                task = await self._admission.admit_live(key, runner, self._queues, live)
                task.run.traceparent = traceparent
                task.run.caller = caller
                self._admission.audit("run.started", task, caller)
                after_seq = task.run.after_seq
                self._queues.close_live_input(key)
                if after is not None:
                    reader = self.attach_to_session(key, after=min(after, after_seq))
                else:
                    reader = self._readers.of_run(
                        key, task.run.id, after=after_seq, with_user_events=True, catch_up=False
                    )
                self._runners.retain(runner)
                stored = self._queues.enqueue(task)
        finally:
            self._runners.release(runner)

        return task.run, await _when_stored(stored, reader)

    async def redaction_of(self, app_name: str) -> Redaction | None:
        try:
            return (await self.apps.load_async(app_name)).redaction
        except AppNotFound:
            return None

    async def attach(self, run_id: str, *, after: int | None = None, with_user_events: bool = True) -> Attachment:
        task = self._queues.active(run_id)
        if task is None and self._takeovers is not None:
            run = await self.get(run_id)
            if not run.status.is_over:
                await self._takeovers.wait_until_ready(run.session_key)
                task = self._queues.active(run_id)
        if task is not None and task.run.waits_to_be_read:
            return self._readers.of_steering_run(task.run, task, after=after, with_user_events=with_user_events)
        if task is None:
            run = await self.get(run_id)
            if self._takeovers is not None and not run.status.is_over and not run.is_delayed:
                raise OwnershipLost(*run.session_key)
            if run.read_at_seq is not None:
                return self._readers.of_steering_run(run, None, after=after, with_user_events=with_user_events)
            after = run.after_seq if after is None else after
            if not run.status.is_over:  # it is delayed, or was until a moment ago
                reader = self._readers.of_run(run.session_key, run_id, after=after, with_user_events=with_user_events)
                run = await self.get(run_id)
                if not run.status.is_over:
                    return reader
                reader.close()
            return self._readers.of_ended_run(run, after=after, with_user_events=with_user_events)
        after = task.run.after_seq if after is None else after
        return self._readers.of_run(task.key, run_id, after=after, with_user_events=with_user_events)

    def attach_to_session(self, key: SessionKey, *, after: int) -> Attachment:
        if self._takeovers is not None:
            require(self._takeovers.ownership, key)
        return self._readers.of_session(key, after=after)

    async def append(self, session: Session, event: Event) -> None:
        await self._wait_until_ready(session.key)
        redaction = await self.redaction_of(session.app_name)
        if redaction is not None:
            await redaction.redact_event(event)
        self.limits.check_session(session)
        [stored] = await self.session_service.append(session, event)
        item = StreamItem(event, run_id=event.invocation_id, seq=stored.seq, json=stored.json)
        self._stream.publish(session.key, item)

    async def cancel(self, run_id: str, *, reason: str) -> Run:
        run = await self.get(run_id)
        await self._wait_until_ready(run.session_key)
        async with self._admission.lock(run.session_key):
            task = self._queues.active(run_id)
            if task is None:
                run = await self.get(run_id)
                if run.status is RunStatus.WAITING:
                    await self._inactive_runs.cancel_waiting(run)
                elif run.is_delayed:
                    await self._inactive_runs.end(run, RunCancelled(run_id, reason))
                    await self.run_store.delete_wake_up(run_id)
                elif not run.status.is_over and self._takeovers is not None:
                    # Another server has taken the session over and started the run: this one doesn't know it yet.
                    raise OwnershipLost(*run.session_key)
                return run
            task = self._queues.stop(task, RunCancelled(run_id, reason))
        await task.wait_for_end()
        if task.lost is not None:
            raise task.lost
        if task.end_stored is not None:
            await asyncio.shield(task.end_stored)
        return task.run

    async def add_webhook(self, run_id: str, webhook: Webhook) -> RunWebhook:
        run = await self.get(run_id)
        await self._wait_until_ready(run.session_key)
        async with self._admission.lock(run.session_key):
            run = await self.get(run_id)
            [added] = add_webhooks(run, [webhook])
            await self._save_webhooks(run)
        return added

    async def delete_webhook(self, run_id: str, webhook_id: str) -> None:
        run = await self.get(run_id)
        await self._wait_until_ready(run.session_key)
        async with self._admission.lock(run.session_key):
            run = await self.get(run_id)
            run.webhooks[:] = [webhook for webhook in run.webhooks if webhook.id != webhook_id]
            await self._save_webhooks(run)
            self.webhooks.drop(run_id, webhook_id)
            await self.run_store.delete_deliveries(run_id=run_id, webhook_id=webhook_id)

    async def _save_webhooks(self, run: Run) -> None:
        """Stores a run's record, and nothing but its webhooks is different."""
        await self.run_store.save(run, is_to_remember=self._memory_writer.is_pending(run.id))

    async def signal(self, run_id: str, signal: SentSignal, *, while_waiting: bool = True) -> Run:
        return await self._open_calls.signal(run_id, signal, while_waiting=while_waiting)

    async def retry(
        self,
        run_id: str,
        *,
        fork: bool = False,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        caller: Caller | None = None,
        forwarded: ForwardedRequest | None = None,
    ) -> Run:
        return await self._retries.retry(
            run_id,
            fork=fork,
            idempotency_key=idempotency_key,
            traceparent=traceparent,
            caller=caller,
            forwarded=forwarded,
        )

    async def rewind(self, key: SessionKey, before_run: str) -> StreamItem:
        await self._wait_until_ready(key)
        async with self._admission.lock(key):
            if queue := self._queues.of_session(key):
                raise SessionBusy(key.session_id, queue[0].run.id)
            session = await self.session_service.get_session(**key._asdict())
            if session is None:
                raise SessionNotFound(*key)
            self.limits.check_session(session)
            event = await rewind_event(session, before_run, self.artifact_service)
            [stored] = await self.session_service.append(session, event)
            item = StreamItem(event, run_id=event.invocation_id, seq=stored.seq, json=stored.json)
            self._stream.publish(key, item)

            logged = log_state_of(session.events)
            of_session = RunFilter(
                app_names=[key.app_name],
                user_id=key.user_id,
                session_id=key.session_id,
                statuses=[RunStatus.WAITING],
            )
            waiting = await self.run_store.list_runs(of_session, limit=None)
            for run in waiting.runs:
                if not logged.has_run(run.id):
                    await self._inactive_runs.cancel_waiting(run)
        return item

    async def get_request(self, request_id: str) -> HumanRequest:
        return await self._inbox.get(request_id)

    async def list_requests(
        self, where: RequestFilter, *, limit: int = 100, page_token: str | None = None
    ) -> ListRequestsResponse:
        return await self._inbox.list(where, limit=limit, page_token=page_token)

    async def answer_request(
        self, request_id: str, answer: RequestAnswer, *, answerer: Answerer
    ) -> tuple[HumanRequest, Run]:
        return await self._inbox.answer(request_id, answer, answerer=answerer)

    async def delegate_request(self, request_id: str, to_user_id: str, *, answerer: Answerer) -> HumanRequest:
        return await self._inbox.delegate(request_id, to_user_id, answerer=answerer)

    async def get(self, run_id: str) -> Run:
        task = self._queues.tasks.get(run_id)
        if task is not None and task.requests is not None and task.end_stored is not None:
            # The record names requests to people, which other servers read from the store.
            await asyncio.wait([task.end_stored])
        run = task.run if task is not None else await self.run_store.get(run_id)
        if run is None:
            raise RunNotFound(run_id)
        if task is None and self._takeovers is not None and not run.status.is_over:
            require(self._takeovers.ownership, run.session_key)  # the server that runs it has the newest record
        return run

    async def list_runs(
        self, where: RunFilter, *, limit: int | None = 100, page_token: str | None = None
    ) -> ListRunsResponse:
        return await self.run_store.list_runs(where, limit=limit, page_token=page_token)

    async def watch_runs(self, where: RunFilter) -> RunWatch:
        return await self._watches.open_for_all(where, self.run_store, is_own=self._queues.tasks.__contains__)

    async def delete_session(self, key: SessionKey) -> None:
        await self._deletion.delete_session(key)

    def delete_user(self, *, app_name: str, user_id: str) -> AsyncGenerator[SessionKey]:
        return self._deletion.delete_user(app_name=app_name, user_id=user_id)

    def delete_expired_sessions(self) -> AsyncGenerator[SessionKey]:
        return self._expiry.delete_expired()

    async def preview_expiry(self, app_name: str) -> RetentionPreview:
        return await self._expiry.preview(app_name)

    @property
    def replicas(self) -> Replicas | None:
        return self.run_store.replicas

    def load(self) -> dict[str, RunLoad]:
        return self._queues.load()

    async def store_load(self) -> StoreLoad | None:
        return await self.run_store.load()

    async def _load_sample(self) -> dict[str, LoadSample]:
        """The load of all servers by app, and of all apps. Raises StorageError."""
        store_load = await self.run_store.load()
        loads = self.load() if store_load is None else store_load.runs
        requests = await self.count_requests()
        replicas = await self.run_store.list_replicas(None)
        return load_of(loads, requests, replicas=1 if replicas is None else len(replicas))

    async def count_requests(self) -> Mapping[str, int]:
        return await self.run_store.count_requests(open_at=time.time())

    async def list_replicas(self, app_names: Collection[str] | None) -> list[ReplicaStatus]:
        listed = await self.run_store.list_replicas(app_names)
        if listed is not None:
            return listed
        tasks = [task for task in self._queues.unfinished() if app_names is None or task.key.app_name in app_names]
        running = sum(task.has_begun for task in tasks)
        only = ReplicaStatus(
            id=self._id,
            version=__version__,
            started_at=self._started_at,
            heartbeat_age_seconds=0.0,
            is_draining=self._queues.is_closing,
            shards=SHARDS,
            running=running,
            queued=len(tasks) - running,
            oldest_run_age_seconds=max((time.time() - task.run.created_at for task in tasks), default=None),
        )
        return [only]

    async def recover(self) -> int:
        await self.run_store.lock(wait_seconds=self.lock_wait_seconds)
        await self.app_webhooks.start()
        await self._traffic.start()
        await self.budgets.start()
        self._declared_schedules.follow_reloads()
        if self.statistics_retention is not None:
            self._statistics_keeper = StatisticsKeeper(
                self.run_store.statistics, self.statistics_retention, self._load_sample
            )
            self._statistics_keeper.start()
        if self.run_store.counts is not None:
            self._limiter.share(self.run_store.counts)
        ownership = self.run_store.ownership
        if ownership is None:
            return await self._take_over()
        self._takeovers = Takeovers(
            ownership,
            resume=self._take_over,
            abandon=self._abandon,
            leave=self._queues.leave,
            busy_sessions=lambda: self._queues.busy_sessions() | self._memory_writer.busy_sessions(),
        )
        return await self._takeovers.start()

    async def _take_over(self, shards: Shards | None = None) -> int:
        """Continues what earlier processes left. Returns the number of resumed runs.

        shards: those that this process has taken; None where it owns all sessions.
        """
        await self.push_notifications.resume(shards)
        await self.webhooks.resume(shards)
        count = await self._resumption.resume(shards)
        await self._declared_schedules.declare(shards)
        return count

    def _abandon(self, is_lost: IsOf) -> None:
        """Drops its state of sessions that another server runs now."""
        self._queues.abandon(is_lost)
        self._memory_writer.abandon(is_lost)
        self._stream.end_lost(is_lost)
        self.webhooks.abandon(is_lost)

    async def drain(self) -> bool:
        return await self.run_store.drain()

    async def close(self, *, grace_seconds: float = 5.0) -> None:
        self._queues.is_closing = True  # a run that is accepted now would not start, and its client would wait
        if self._statistics_keeper is not None:
            await self._statistics_keeper.close()
        self.app_webhooks.close()
        self._traffic.close()
        self.budgets.close()
        self._declared_schedules.close()
        await self._wake_ups.close()
        await self.schedules.close()
        draining = asyncio.create_task(self.run_store.drain())
        self._resumption.close()
        until = time.monotonic() + grace_seconds
        await self._queues.close(grace_seconds=grace_seconds)
        await self._memory_writer.close(grace_seconds=max(until - time.monotonic(), 0.0))
        if self._judging is not None:
            await self._judging.close()
        try:
            async with asyncio.timeout(RUNNER_CLOSE_SECONDS):
                await self._runners.close()
        except TimeoutError:
            _log.warning("toolsets and plugins of apps that did not close in time are abandoned")
        await self.webhooks.close()
        if self._takeovers is not None:
            self._takeovers.stop()
        draining.cancel()
        await self.run_store.close()

    async def _wait_until_ready(self, key: SessionKey) -> None:
        """Returns when this process owns the session, and has resumed its runs. Raises OwnershipLost."""
        if self._takeovers is not None:
            await self._takeovers.wait_until_ready(key)

    async def _runner_for(self, key: SessionKey) -> Runner:
        """The runner of the version of its app that serves a session, acquired. Raises Unavailable while the engine
        closes.
        """
        if self._queues.is_closing:
            raise Unavailable("The server is shutting down")
        if self._traffic.is_split(key.app_name):
            version = await self._traffic.version_for(key)
            if version is not None:
                return await self._runners.acquire_published(key.app_name, version)
        return await self._runners.acquire(key.app_name)

    async def _open_whole(self, key: SessionKey) -> Session:
        session = await self.session_service.get_session(**key._asdict())
        if session is None:
            raise SessionNotFound(*key)
        return session

    def _release(self, key: SessionKey, runner: Runner) -> None:
        self._runners.release(runner)
        self._limiter.release(key)

    def _make_runner(self, app_name: str, app: App) -> Runner:
        runner = Runner(
            app=app,
            app_name=app_name,
            session_service=self.session_service,
            artifact_service=self.artifact_service,
            memory_service=self.memory_service,
            credential_service=self.credential_service,
            event_stream=self._stream,
            trace_listeners=self.trace_listeners,
            signal_urls=self.signal_urls,
            steering=self._queued_messages,
            audit=self.run_store.audit.append if self.is_audited else None,
        )
        self.budgets.enforce(runner)
        return runner


async def _when_stored(stored: asyncio.Future[None], reader: AttachmentOrNone) -> AttachmentOrNone:
    """The reader, once the run's record is stored."""
    try:
        await stored
    except GreenroomError:
        if reader is not None:
            reader.close()
        raise
    return reader
