"""One run: its task, its progress and its result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from typing import NamedTuple

import msgspec

from greenroom.errors import (
    AppVersionChanged,
    DeadlineExceeded,
    GreenroomError,
    RunCancelled,
    RunFailed,
    StorageError,
)
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.log.calls import is_last_word
from greenroom.log.state import events_of_run
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.event import Event
from greenroom.records.human_requests import request_digest, requests_in
from greenroom.records.run import (
    AgentRunRequest,
    Run,
    RunConfig,
    RunError,
    RunStatus,
    StreamingMode,
    default_max_llm_calls,
)
from greenroom.records.session import Session, SessionKey
from greenroom.runner.commit import ABORTED, RunLog
from greenroom.runner.intake import Intake
from greenroom.runner.resume import RunProgress, run_progress
from greenroom.runner.runner import Runner
from greenroom.telemetry.span import current_run
from greenroom.usage.store import SECONDS_PER_DAY, ModelDay, ModelUsage

_log = logging.getLogger("greenroom.runs")

MAX_ATTEMPTS = 5
MAX_ATTEMPTS_ALONE = 2
"""A run is failed when so many attempts in a row were cut off without storing an event, so many of them alone."""

_CANCELLED = RunCancelled.__name__


class LiveInput(NamedTuple):
    """The client's input of a live run. It isn't stored, so the run can't be resumed by another process."""

    requests: LiveRequestQueue
    run_config: RunConfig


class RunDefaults(NamedTuple):
    """Limits of runs whose request and app set none."""

    deadline_seconds: float | None
    max_llm_calls: int


@dataclass(slots=True, eq=False)
class RunTask:
    """A run from admission to its end."""

    run: Run
    runner: Runner
    _: KW_ONLY
    intake: Intake | None = None
    """None: the run is resumed from its record and its log, unless it is live."""
    session: Session | None = None
    """As admission loaded it; None when it has to be loaded."""
    live: LiveInput | None = None
    is_held: bool = False
    """It is resumed by SuspectRuns only."""
    is_alone: bool = False
    """No other resumed run is without progress."""
    has_progressed: asyncio.Event | None = None
    """Set when the run has stored an event or has ended; None where nobody waits for that."""
    is_stored: bool = False
    """Its record, with the request, is in the store."""
    is_to_remember: bool = False
    """It has ended, and its app's memory policy applies to it."""
    has_begun: bool = False
    """It is first in its queue, though its asyncio task may not have started yet."""
    is_abandoned: bool = False
    """The engine cancelled it because the process ends, and the next process resumes it."""
    asyncio_task: asyncio.Task[None] | None = None
    """Runs it; after a cancellation that its code ignores, another one that ends it."""
    log: RunLog | None = None
    error: Exception | None = None
    stopped_by: GreenroomError | None = None
    """The reason for which the engine cancelled it."""
    done: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it has ended."""
    key: SessionKey = field(init=False)
    result: RunResult = field(init=False)

    def __post_init__(self) -> None:
        self.key = session_of(self.run)
        self.result = RunResult(self.run.usage)

    @property
    def has_events(self) -> bool:
        """True when an event of this run was stored since its newest message was admitted."""
        if self.log is None:
            return False
        events = self.log.session.events
        later = events[max(self.run.message_after_seq - events.skipped, 0) :]
        return any(event.invocation_id == self.run.id for event in later)

    def count_usage(self) -> None:
        """Sets the run's usage, with that of compactions."""
        while self.log is not None and self.log.summaries:
            self.result.add_usage(self.log.summaries.pop())
        self.run.usage = self.result.usage

    def pending_requests(self, session: Session) -> Mapping[str, str]:
        """The run's pending requests to people, see `Run.asked`."""
        if self.done.is_set() or (self.log is None and self.intake is not None):
            return self.run.asked
        if self.log is None:  # it is resumed, and has not read its log yet
            return replay_progress(self.run, session)[1].asked
        return self.result.asked

    async def execute(
        self,
        *,
        defaults: RunDefaults,
        open_session: Callable[[SessionKey], Awaitable[Session]],
        save: Callable[[RunTask], Awaitable[None]],
        stop: Callable[[RunTask, GreenroomError], None],
    ) -> None:
        """Runs to the end. Raises CancelledError only when the engine has abandoned the run.

        A cancellation that the engine did not ask for, KeyboardInterrupt, SystemExit and GeneratorExit were raised by
        the app's own code, and fail this run only. save: stores the record, and stops the run when that fails.
        stop: cancels the run at its deadline.
        """
        current_run.set(self.run)
        try:
            session = self.session or await open_session(self.key)
            self.session = None
            if self.run.is_live:
                await self._run_live(session, defaults, stop)
            else:
                await self._run(session, defaults, save, stop)
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

    async def _run(
        self,
        session: Session,
        defaults: RunDefaults,
        save: Callable[[RunTask], Awaitable[None]],
        stop: Callable[[RunTask, GreenroomError], None],
    ) -> None:
        run, request = self.run, self.run.request
        if request is None:
            raise RunFailed("The run's record holds no request")
        config = _run_config(request, self.runner.run_config, defaults.max_llm_calls)
        log = self._open_log(session, config)
        run.after_seq = min(run.after_seq, session.events.end)
        if run.attempts == 1 and run.message_after_seq < session.events.end:
            run.message_after_seq = session.events.end  # events were stored while it was queued
            save(self)
        run.message_after_seq = min(run.message_after_seq, session.events.end)
        progress, self.result = replay_progress(run, session)
        if progress.has_begun and progress.is_over:
            return
        if progress.events:
            check_version(run, self.runner)
        run.app_version = version_of(self.runner)
        if run.attempts > 1:
            self._count_attempt(len(progress.events))
            saving = save(self)
            if run.stalled:
                await saving  # this attempt may end the process at once
        if run.stalled >= MAX_ATTEMPTS and run.stalled_alone >= MAX_ATTEMPTS_ALONE:
            too_often = RunFailed(f"The run was cut off {run.stalled} times without storing an event; it is given up")
            await self.record_abort(too_often)
            raise too_often
        if progress.has_begun:
            events = self.runner.resume(log, progress, run_config=config)
        else:
            intake = self.intake or self.runner.take_in(session, request.new_message, run.id)
            if intake.answered is not None:
                self.result.add(Event(author="user", content=intake.message))
            events = self.runner.run_intake(log, intake, state_delta=request.state_delta, run_config=config)
        await self._collect(events, request.deadline_seconds or defaults.deadline_seconds, stop)

    def _count_attempt(self, stored_events: int) -> None:
        """Counts the attempt before this one, if it was cut off without storing an event."""
        run = self.run
        if stored_events > run.progress:
            run.stalled = 0
            run.stalled_alone = 0
        else:
            run.stalled += 1
            run.stalled_alone += run.resumed_alone
        run.progress = stored_events
        run.resumed_alone = self.is_alone

    async def _collect(
        self,
        events: AsyncIterator[Event],
        deadline_seconds: float | None,
        stop: Callable[[RunTask, GreenroomError], None],
    ) -> None:
        timer: asyncio.TimerHandle | None = None
        if deadline_seconds is not None:
            late = DeadlineExceeded(deadline_seconds)
            timer = asyncio.get_running_loop().call_later(deadline_seconds, stop, self, late)
        try:
            async for event in events:
                if event.partial:
                    continue
                self.result.add(event)
                if self.has_progressed is not None:
                    self.has_progressed.set()
        finally:
            if timer is not None:
                timer.cancel()

    async def _run_live(
        self, session: Session, defaults: RunDefaults, stop: Callable[[RunTask, GreenroomError], None]
    ) -> None:
        live = self.live
        config = _with_default_limit(live.run_config if live is not None else RunConfig(), defaults.max_llm_calls)
        log = self._open_log(session, config)
        if live is None:  # a crash cut it off
            cut_off = RunCancelled(self.run.id, "the server stopped while it was running")
            await self.record_abort(cut_off)
            raise cut_off
        events = self.runner.live(log, live.requests, run_config=config)
        await self._collect(events, defaults.deadline_seconds, stop)

    def _open_log(self, session: Session, config: RunConfig) -> RunLog:
        run = self.run
        self.log = self.runner.open_log(session, run.id, config, traceparent=run.traceparent, caller=run.caller)
        return self.log

    async def record_abort(self, reason: GreenroomError) -> None:
        """Stores the events that end a run that was stopped."""
        run, log = self.run, self.log
        if log is None:
            return
        where = run_progress(log.session.events, run.id, after=run.after_seq, since=0)
        if isinstance(reason, StorageError) and not where.events:
            return  # the store fails, and holds no open event of the run
        try:
            await self.runner.record_abort(log, reason)
        except Exception:  # the run ends nevertheless; its history is repaired when it is read
            _log.exception("the end of run %s could not be stored", run.id)


class RunResult:
    """Status, error, usage and pending requests of a run, folded from its events.

    usage_by_model: of the events. asked: pending requests to people, see `Run.asked`. was_failed: the newest event
    ended the run, even if calls are pending."""

    __slots__ = ("_earlier_usage", "_last_error", "_open_calls", "asked", "usage_by_model", "was_failed")

    def __init__(
        self, usage: GenerateContentResponseUsageMetadata | None = None, asked: Mapping[str, str] | None = None
    ) -> None:
        """usage: of the run, until events are added."""
        self._earlier_usage = usage
        self.usage_by_model: dict[ModelDay, ModelUsage] = {}
        self.asked = dict(asked or {})
        self._open_calls: set[str] = set()
        self._last_error: RunError | None = None
        self.was_failed = False

    def add(self, event: Event, *, is_of_this_attempt: bool = True) -> None:
        """is_of_this_attempt: this server wrote the event since the run's newest message. Requests are taken from no
        other events: a client that creates a session may import a log."""
        if is_of_this_attempt:
            for request in requests_in(event):
                self.asked[request.id or ""] = request_digest(event, request)
        self.add_usage(event)
        if event.long_running_tool_ids:
            self._open_calls.update(event.long_running_tool_ids)
        if event.isolation_scope is not None:
            self._open_calls.discard(event.isolation_scope)
            if event.waits_for_message():
                self._open_calls.add(event.isolation_scope)
        for response in event.get_function_responses():
            if is_last_word(event, response):
                self._open_calls.discard(response.id or "")
        self._last_error = _failure(event)

    def add_usage(self, event: Event) -> None:
        if event.usage_metadata is None:
            return
        model_day = ModelDay(event.model_version or "", int(event.timestamp // SECONDS_PER_DAY))
        used = self.usage_by_model.get(model_day)
        if used is None:
            used = self.usage_by_model[model_day] = ModelUsage()
        used.calls += 1
        used.reported.add(event.usage_metadata)

    @property
    def usage(self) -> GenerateContentResponseUsageMetadata | None:
        """The sum over all models."""
        if not self.usage_by_model:
            return self._earlier_usage
        total = GenerateContentResponseUsageMetadata()
        for used in self.usage_by_model.values():
            total.add(used.reported)
        return total

    def status(self, error: Exception | None) -> RunStatus:
        was_cancelled = self._last_error is not None and self._last_error.code == _CANCELLED
        if isinstance(error, RunCancelled) or (error is None and was_cancelled):
            return RunStatus.CANCELLED
        if error is not None:
            return RunStatus.FAILED
        if self._open_calls and not self.was_failed:
            return RunStatus.WAITING  # even if another branch failed
        return RunStatus.FAILED if self._last_error is not None else RunStatus.SUCCEEDED

    def error(self, error: Exception | None) -> RunError | None:
        if error is None:
            return self._last_error if self.status(None) is not RunStatus.WAITING else None
        if isinstance(error, GreenroomError):
            return RunError(code=error.code, message=error.detail, status=int(error.status))
        return RunError(code=type(error).__name__, message=str(error), status=500)


def _failure(event: Event) -> RunError | None:
    """Returns the error that failed the run, if this is the event that ends it. A reply that the model cut short is no
    failure."""
    code = event.error_code
    if code is None or (event.content is not None and not event.interrupted and not event.get_function_responses()):
        return None
    return RunError(code=_CANCELLED if code == ABORTED else code, message=event.error_message or code)


def session_of(run: Run) -> SessionKey:
    return SessionKey(run.app_name, run.user_id, run.session_id)


def version_of(runner: Runner) -> str | None:
    """The version of the app's code; None when it is unknown."""
    return (runner.app.version or None) if runner.app is not None else None


def check_version(run: Run, runner: Runner) -> None:
    """Raises AppVersionChanged when the code changed since the run began, and its app refuses that; else logs it."""
    now = version_of(runner)
    if runner.app is None or run.app_version is None or now is None or run.app_version == now:
        return
    if runner.app.on_version_change == "refuse":
        raise AppVersionChanged(run.id, run.app_version, now)
    _log.warning(
        "run %s began with version %s of app %s, continues with %s", run.id, run.app_version, run.app_name, now
    )


def replay_progress(run: Run, session: Session) -> tuple[RunProgress, RunResult]:
    """Progress and result of a run as its log shows them; the run may have been started by another process."""
    progress = run_progress(session.events, run.id, after=run.after_seq, since=run.message_after_seq)
    result = RunResult(asked=run.asked)
    if progress.events:
        new = len(events_of_run(session.events, run.id, since=run.message_after_seq - session.events.skipped))
        for index, event in enumerate(progress.events, new - len(progress.events)):
            result.add(event, is_of_this_attempt=index >= 0)
        result.was_failed = progress.was_failed
    return progress, result


@lru_cache
def _plain_config(mode: StreamingMode, max_llm_calls: int) -> RunConfig:
    """The configuration of runs whose app and request set nothing."""
    return RunConfig(streaming_mode=mode, max_llm_calls=max_llm_calls)


def _run_config(request: AgentRunRequest, base: RunConfig | None, max_llm_calls: int) -> RunConfig:
    """base: of the app. max_llm_calls: of the server, where the app has no limit of its own; a request lowers it."""
    mode = StreamingMode.SSE if request.streaming else StreamingMode.NONE
    is_plain = base is None and request.max_llm_calls is None
    if is_plain and not request.custom_metadata and not request.service_tier and not request.client_tools:
        return _plain_config(mode, max_llm_calls)

    config = RunConfig(
        custom_metadata=request.custom_metadata,
        service_tier=request.service_tier,
        client_tools=request.client_tools or [],
    ).over(base)
    config = _with_default_limit(config, max_llm_calls)
    limit = config.max_llm_calls
    if request.max_llm_calls is not None and (limit <= 0 or request.max_llm_calls < limit):
        limit = request.max_llm_calls
    return msgspec.structs.replace(config, streaming_mode=mode, max_llm_calls=limit)


def _with_default_limit(config: RunConfig, max_llm_calls: int) -> RunConfig:
    if config.max_llm_calls != default_max_llm_calls():
        return config
    return msgspec.structs.replace(config, max_llm_calls=max_llm_calls)
