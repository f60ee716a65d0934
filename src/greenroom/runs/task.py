"""A run as an asyncio task, from its admission to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from greenroom.errors import (
    DeadlineExceeded,
    GreenroomError,
    OwnershipLost,
    RunCancelled,
    RunFailed,
    RunGivenUp,
    StorageError,
)
from greenroom.invocation.context import ABANDONED
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.log.inbox import open_requests
from greenroom.log.progress import RunProgress
from greenroom.log.retries import retry_events, retry_in
from greenroom.log.run_state import RunState
from greenroom.log.state import events_of_run, log_state_of
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.audit import AuditEntry
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event
from greenroom.records.human_requests import request_digest, requests_in
from greenroom.records.inbox import RequestChanges
from greenroom.records.run import AgentRunRequest, Run, RunConfig, RunError, RunStatus
from greenroom.records.session import Session, SessionKey
from greenroom.runner.accept import accept_message
from greenroom.runner.commit import RunLog
from greenroom.runner.runner import Runner
from greenroom.runs.app_versions import AppVersions
from greenroom.runs.run_config import RunDefaults, run_config_of, with_default_limit
from greenroom.runs.runner_cache import version_of
from greenroom.statistics.run_figures import RunFigures, first_text_in, has_text
from greenroom.telemetry.span import current_run
from greenroom.usage.store import SECONDS_PER_DAY, ModelDay, ModelUsage, UsageStore

_log = logging.getLogger("greenroom.runs")

MAX_ATTEMPTS = 5
MAX_ATTEMPTS_ALONE = 2
"""A run fails after this many attempts in a row that stored no event, and this many of them alone."""


class LiveInput(NamedTuple):
    """The client's input of a live run. It isn't stored, so the run can't be resumed by another process."""

    requests: LiveRequestQueue
    run_config: RunConfig


class TaskQueues(Protocol):
    """The queues of sessions, as a run that is being executed needs them."""

    defaults: RunDefaults
    versions: AppVersions
    has_statistics: bool
    open_session: Callable[[SessionKey], Awaitable[Session]]

    def save(self, task: RunTask) -> Awaitable[None]:
        """Stores the record, or stops the run when that fails."""
        ...

    def cancel(self, task: RunTask, reason: GreenroomError) -> None: ...

    async def was_read(self, task: RunTask) -> bool:
        """Finds out whether another run has stored the message of a queued run, and notes it in the record."""
        ...


@dataclass(slots=True, eq=False)
class RunTask:
    """The work of this process on a run, from its admission or resumption to its end, beside the run's record."""

    run: Run
    """The record, as it is written to the store next."""
    runner: Runner
    _: KW_ONLY

    session: Session | None = None
    """As admission loaded it; None when it has to be loaded."""
    answered: Event | None = None
    """The event with the calls that the message of `run.request` answers, or of the task that waits for it. Unknown
    until the run begins, if it is resumed."""
    live: LiveInput | None = None
    """The input of a live run that this process has admitted."""
    is_resumed: bool = False
    """An earlier process left it unfinished: it continues from its record and its log."""

    requests: RequestChanges | None = None
    """Changes of the run's requests to people, to store with its next record."""
    audit: Sequence[AuditEntry] = ()
    """Entries of the audit trail, to store with the run's next record."""
    summaries: Sequence[Event] = ()
    """The compactions that it has made since its usage was counted before."""
    figures: Sequence[RunFigures] = ()
    """Figures to add to the statistics, to store with its next record."""
    is_stored: bool = False
    """Its record, with the request, is in the store."""
    is_newest: bool = True
    """False for the task of a resumed run that a later message continues, whose task holds the record."""
    storing: asyncio.Future[None] | None = None
    """The write of its first record, until that is stored or refused; None before and after."""
    is_held: bool = False
    """It is resumed by SuspectRuns only."""
    is_alone: bool = False
    """No other resumed run is without progress."""
    has_progressed: asyncio.Event | None = None
    """Set when the run has stored an event or has ended; None where nobody waits for that."""

    has_begun: bool = False
    """It is first in its queue, though its asyncio task may not have started yet."""
    is_being_read: bool = False
    """The active run stores its message."""
    may_be_stored: bool = False
    """The active run has tried to store its message."""
    asyncio_task: asyncio.Task[None] | None = None
    """Runs it; after a cancellation that its code ignores, another one that ends it."""
    log: RunLog | None = None
    """None until its session is open."""
    usage: RunUsage = field(init=False)

    error: Exception | None = None
    """The error with which it failed."""
    stopped_by: GreenroomError | None = None
    """The reason for which the engine cancelled it."""
    is_abandoned: bool = False
    """The engine cancelled it because the process ends, or lost its session, and another process resumes it."""
    lost: GreenroomError | None = None
    """Set when another server has taken over its session."""
    has_ended: bool = False
    end_stored: asyncio.Future[None] | None = None
    """Done when the record of its end is stored or refused; None if there is none to store."""
    is_to_remember: bool = False
    """It has ended, and its app's memory policy applies to it."""
    is_to_judge: bool = False
    """It has succeeded, and its app has judges."""

    key: SessionKey = field(init=False)
    _end: asyncio.Event | None = field(init=False, default=None)
    """Set when it has ended; made by the first who waits for it."""
    _decision: asyncio.Event | None = field(init=False, default=None)
    """Set when it has begun or ended; made by the first who waits for it."""

    def __post_init__(self) -> None:
        self.key = self.run.session_key
        self.usage = RunUsage(self.run.usage)

    @property
    def may_be_read(self) -> bool:
        """Whether the active run may read its message."""
        if not self.run.waits_to_be_read or self.has_begun or self.has_ended or self.is_being_read:
            return False
        return self.is_stored and self.stopped_by is None

    def begin(self) -> None:
        """Marks the run as begun: no other run reads its message any more."""
        self.has_begun = True
        self.run.steered_into = None
        if self.run.queued_before:
            self.run.queued_before = []
        if self._decision is not None:
            self._decision.set()

    def end(self) -> None:
        """Marks the run as ended, and wakes the tasks that wait for it."""
        self.has_ended = True
        if self._end is not None:
            self._end.set()
        if self._decision is not None:
            self._decision.set()
        if self.has_progressed is not None:
            self.has_progressed.set()

    async def wait_for_end(self) -> None:
        if self.has_ended:
            return
        if self._end is None:
            self._end = asyncio.Event()
        await self._end.wait()

    @property
    def is_decided(self) -> bool:
        """Whether its message was read by another run, or it has begun or ended itself."""
        return self.has_begun or self.has_ended

    async def wait_until_decided(self) -> None:
        if self.is_decided:
            return
        if self._decision is None:
            self._decision = asyncio.Event()
        await self._decision.wait()

    @property
    def has_events(self) -> bool:
        """True when an event of this run was stored since its newest message was admitted."""
        if self.log is None:
            return False
        events = self.log.session.events
        logged = log_state_of(events).find_run(self.run.id)
        return logged is not None and logged.has_events(since=self.run.message_after_seq - events.skipped)

    @property
    def is_message_stored(self) -> bool:
        """Whether the log has the message of its request."""
        if self.log is None:
            return False
        events = self.log.session.events
        logged = log_state_of(events).find_run(self.run.id)
        since = self.run.message_after_seq - events.skipped
        return logged is not None and any(index >= since for index in logged.messages)

    def count_usage(self) -> None:
        """Sets the run's usage, with that of compactions."""
        if self.log is not None and self.log.summaries:
            self.summaries = self.log.summaries
            self.log.summaries = []
            for summary in self.summaries:
                self.usage.add(summary)
        self.run.usage = self.usage.total

    def count_figures(self, usage: UsageStore | None, *, has_ended: bool) -> None:
        """Takes what the run adds to the statistics since it was counted last.

        usage: None if its models have reported none. has_ended: with its end.
        """
        run = self.run
        events: Sequence[Event] = ()
        if self.log is not None:
            logged = self.log.session.events
            events = logged[max(run.after_seq, run.counted_seq, logged.skipped) - logged.skipped :]
            run.counted_seq = logged.end
        if run.first_text_at is None and run.attempts > 1:  # it may be in an attempt that was cut off
            run.first_text_at = first_text_in(events, run.id, run.requested_at or run.created_at)
        added = RunFigures(
            run,
            events,
            summaries=self.summaries,
            has_ended=has_ended,
            prices=usage.prices if usage is not None else None,
            own_prices=usage.prices_of_run(run.id) if usage is not None else None,
        )
        self.summaries = ()
        self.figures = (*self.figures, added)

    def record_outcome(self) -> None:
        """Sets the status, the error and the pending requests of a run that has ended, or waits."""
        run = self.run
        error = self.error or self.stopped_by
        logged = log_state_of(self.log.session.events).find_run(run.id) if self.log is not None else None
        if isinstance(error, RunCancelled):
            run.status = RunStatus.CANCELLED
        elif error is not None:
            run.status = RunStatus.FAILED
        elif logged is not None:
            run.status = logged.status
        else:
            run.status = RunStatus.SUCCEEDED

        if error is not None:
            run.error = described(error)
            if self.runner.redaction is not None:
                run.error.message = self.runner.redaction.text(run.error.message)
        elif logged is not None and run.status is not RunStatus.WAITING:
            run.error = logged.progress.error
        else:
            run.error = None

        if run.status is RunStatus.CANCELLED:
            run.asked = {}
        earlier_requests = run.requests
        if run.status is RunStatus.WAITING and logged is not None and self.log is not None:
            events = self.log.session.events
            run.wake_ups = logged.wake_ups(events)
            self._record_requests(logged, events, earlier_requests)
        else:
            if run.wake_ups:
                run.wake_ups = {}
            if earlier_requests:
                run.requests = {}
                self.requests = RequestChanges(cancelled=list(earlier_requests.values()))

    def _record_requests(self, logged: RunState, events: Sequence[Event], earlier: Mapping[str, str]) -> None:
        """Sets the requests to people of a run that waits.

        earlier: those that were open when it began or was continued.
        """
        added = open_requests(self.run, logged, events)
        self.run.requests = {request.call_id: request.id for request in added}
        cancelled = [request_id for request_id in earlier.values() if request_id not in self.run.requests.values()]
        if added or cancelled:
            self.requests = RequestChanges(added=added, cancelled=cancelled)

    def pending_requests(self, session: Session) -> Mapping[str, str]:
        """The run's pending requests to people, see `Run.asked`."""
        if self.is_resumed and self.log is None and not self.has_ended:  # it has not read its log yet
            logged = log_state_of(session.events).find_run(self.run.id)
            if logged is not None:
                return _asked_in_log(self.run, logged, session.events)
        return self.run.asked

    def abandon(self, lost: GreenroomError) -> None:
        """Cancels it without storing anything: another server resumes it."""
        self.is_abandoned = True
        self.lost = lost
        if self.log is not None:
            self.log.lost = lost
        if self.asyncio_task is not None:
            self.asyncio_task.cancel(ABANDONED)
        self.end()

    async def execute(self, queues: TaskQueues) -> None:
        """Runs to the end. Raises CancelledError only when the engine has abandoned the run.

        A cancellation that the engine did not ask for, KeyboardInterrupt, SystemExit and GeneratorExit were raised by
        the app's own code, and fail this run only.
        """
        current_run.set(self.run)
        try:
            session = self.session or await queues.open_session(self.key)
            self.session = None
            if self.run.is_live:
                await self._run_live(session, queues)
            else:
                await self._run(session, queues)
        except (
            Exception
        ) as error:  # any exception is the run's outcome, and is in its log already if it could be stored
            if not isinstance(error, GreenroomError):
                _log.error("run %s failed", self.run.id, exc_info=error)
            self.error = error
        except BaseException as error:
            if self.asyncio_task not in (None, asyncio.current_task()):
                _log.warning("a tool of run %s ended after its run; its result is dropped", self.run.id)
            elif self.stopped_by is not None:
                await self.record_abort(self.stopped_by)
            elif self.is_abandoned:
                raise
            else:
                _log.error("run %s failed", self.run.id, exc_info=error)
                self.error = RunFailed(f"The app's code raised {type(error).__name__}: {error}")
                self.error.__cause__ = error
                await self.record_abort(self.error)

    async def _run(self, session: Session, queues: TaskQueues) -> None:
        run = self.run
        request = self.run.request
        if request is None:
            raise RunFailed("The run's record holds no request")
        if self.may_be_stored and await queues.was_read(self):
            return
        config = run_config_of(request, self.runner.run_config, queues.defaults.max_llm_calls)
        log = self._open_log(session, config, queues)
        events = session.events
        end = events.end
        run.after_seq = min(run.after_seq, end)
        begins_retry = run.retries > 0 and log_state_of(events).retries(run.id) < run.retries
        if run.attempts == 1 and not begins_retry and run.message_after_seq < end:
            run.message_after_seq = end  # events were stored while it was queued
            queues.save(self)
        run.message_after_seq = min(run.message_after_seq, end)

        if begins_retry:
            await self._begin_retry(log)
            events = session.events
        logged = log_state_of(events).find_run(run.id)
        stored: Sequence[Event] = ()
        if logged is not None:
            run.asked = _asked_in_log(run, logged, events)
            stored = events_of_run(events, run.id, since=run.after_seq - events.skipped)
        for event in self._events_before_retries(events) if run.retries else stored:
            self.usage.add(event)

        begun: RunProgress | None = None
        if logged is not None and logged.has_events(since=run.message_after_seq - events.skipped):
            begun = logged.progress
            if begun.is_over or _waits_again(logged, events):
                return
        if self.stopped_by is not None:  # before it had read its log
            if stored:
                await self.record_abort(self.stopped_by)
            return
        if self.is_resumed:
            if stored:
                self.runner = await queues.versions.exchange(run, self.runner, session)
            run.app_version = version_of(self.runner)
        if run.attempts > 1:
            await self._count_attempt(len(stored), queues)

        executed = self._remaining(request, log, begun, config)
        await self._collect(executed, request.deadline_seconds or queues.defaults.deadline_seconds, queues)

    async def _begin_retry(self, log: RunLog) -> None:
        """Takes back what ended the run."""
        run = self.run
        retried = log_state_of(log.session.events).find_run(run.retry_of or run.id)
        author = self.runner.agent.name
        begin = retry_events(log.session.events, retried, number=run.retries, author=author, retried_run=run.retry_of)
        for event in begin:
            event.invocation_id = run.id
        await log.commit(*begin)

    def _events_before_retries(self, events: CopyOnWriteList[Event]) -> list[Event]:
        """The stored events of a run, those that retries took back, too: their models have to be paid."""
        own = events[max(self.run.after_seq - events.skipped, 0) :]
        return [event for event in own if event.invocation_id == self.run.id]

    def _remaining(
        self, request: AgentRunRequest, log: RunLog, begun: RunProgress | None, config: RunConfig
    ) -> AsyncGenerator[Event]:
        """Executes what the run still has to do: all of it, or what is left after the events of earlier attempts.

        begun: the progress, if events are stored since its message was admitted.
        """
        if begun is not None:
            return self.runner.resume(log, begun, run_config=config)
        message = request.new_message
        if self.is_resumed:
            message, self.answered, _ = accept_message(log.session.events, message, self.run.id)
        return self.runner.execute(
            log, message, answered=self.answered, state_delta=request.state_delta, run_config=config
        )

    async def _count_attempt(self, stored_events: int, queues: TaskQueues) -> None:
        """Counts the attempt before this one, if it was cut off without storing an event. Raises RunGivenUp when it was
        cut off too often.
        """
        run = self.run
        if stored_events > run.progress:
            run.stalled = 0
            run.stalled_alone = 0
        else:
            run.stalled += 1
            run.stalled_alone += run.resumed_alone
        run.progress = stored_events
        run.resumed_alone = self.is_alone

        await queues.save(self)  # this attempt may end the process at once
        if run.stalled >= MAX_ATTEMPTS and run.stalled_alone >= MAX_ATTEMPTS_ALONE:
            too_often = RunGivenUp(run.stalled)
            await self.record_abort(too_often)
            raise too_often

    async def _collect(self, events: AsyncIterator[Event], deadline_seconds: float | None, queues: TaskQueues) -> None:
        timer: asyncio.TimerHandle | None = None
        if deadline_seconds is not None:
            late = DeadlineExceeded(deadline_seconds)
            timer = asyncio.get_running_loop().call_later(deadline_seconds, queues.cancel, self, late)
        awaits_text = queues.has_statistics and self.run.first_text_at is None
        try:
            async for event in events:
                if awaits_text and event.author != "user" and has_text(event):
                    self.run.first_text_at = event.timestamp
                    awaits_text = False
                if event.partial:
                    continue
                self.usage.add(event)
                for request in requests_in(event):
                    # Events that others write into the log meanwhile ask nothing in the run's name.
                    self.run.asked = {**self.run.asked, request.id or "": request_digest(event, request)}
                if self.has_progressed is not None:
                    self.has_progressed.set()
        finally:
            if timer is not None:
                timer.cancel()

    async def _run_live(self, session: Session, queues: TaskQueues) -> None:
        live = self.live
        config = with_default_limit(live.run_config if live is not None else RunConfig(), queues.defaults.max_llm_calls)
        log = self._open_log(session, config, queues)
        if live is None:  # a crash cut it off
            cut_off = RunCancelled(self.run.id, "the server stopped while it was running")
            await self.record_abort(cut_off)
            raise cut_off
        events = self.runner.live(log, live.requests, run_config=config)
        await self._collect(events, queues.defaults.deadline_seconds, queues)

    def _open_log(self, session: Session, config: RunConfig, queues: TaskQueues) -> RunLog:
        run = self.run
        self.log = self.runner.open_log(session, run.id, config, traceparent=run.traceparent, caller=run.caller)
        self.log.lost = self.lost
        return self.log

    async def record_abort(self, reason: GreenroomError) -> None:
        """Stores the events that end a run that was stopped."""
        run = self.run
        log = self.log
        if log is None:
            return
        events = log.session.events
        logged = log_state_of(events).find_run(run.id)
        has_events = logged is not None and logged.has_events(since=run.after_seq - events.skipped)
        if isinstance(reason, StorageError) and not has_events:
            return  # the store fails, and holds no open event of the run
        try:
            await self.runner.record_abort(log, reason)
        except OwnershipLost as lost:  # another server continues the run
            self.error = lost
        except Exception:  # the run ends nevertheless; its history is repaired when it is read
            _log.exception("the end of run %s could not be stored", run.id)


class RunUsage:
    """The usage of models by a run, summed from its events."""

    __slots__ = ("_earlier", "by_model")

    def __init__(self, earlier: GenerateContentResponseUsageMetadata | None = None) -> None:
        """Begins the sum. `earlier` is the stored sum, which holds until events are added."""
        self._earlier = earlier
        self.by_model: dict[ModelDay, ModelUsage] = {}

    def add(self, event: Event) -> None:
        if event.usage_metadata is None:
            return
        model_day = ModelDay(event.model_version or "", int(event.timestamp // SECONDS_PER_DAY))
        used = self.by_model.get(model_day)
        if used is None:
            reported = GenerateContentResponseUsageMetadata.counts_of(event.usage_metadata)
            self.by_model[model_day] = ModelUsage(1, reported)
        else:
            used.calls += 1
            used.reported.add(event.usage_metadata)

    @property
    def total(self) -> GenerateContentResponseUsageMetadata | None:
        """The sum over all models."""
        if not self.by_model:
            return self._earlier
        first, *others = [used.reported for used in self.by_model.values()]
        total = msgspec.structs.replace(first)
        for reported in others:
            total.add(reported)
        return total


def described(error: Exception) -> RunError:
    if isinstance(error, GreenroomError):
        return RunError(code=error.code, message=error.detail, status=int(error.status))
    return RunError(code=type(error).__name__, message=str(error), status=500)


def _asked_in_log(run: Run, logged: RunState, events: CopyOnWriteList[Event]) -> dict[str, str]:
    """Returns the requests in the run's record, and those in the log since its newest message."""
    asked = {
        request.call.id or "": request_digest(request.event, request.call)
        for request in logged.requests_since(run.message_after_seq - events.skipped)
    }
    return {**run.asked, **asked}


def _waits_again(logged: RunState, events: CopyOnWriteList[Event]) -> bool:
    """Whether a run that was cancelled while it waited has just been retried."""
    retry = retry_in(events[-1])
    return retry is not None and not retry.taken_back and logged.status is RunStatus.WAITING
