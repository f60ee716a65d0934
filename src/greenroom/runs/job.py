"""A run on its way, and how it is carried out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

import msgspec

from greenroom.errors import AppVersionChanged, DeadlineExceeded, GreenroomError, RunCancelled, RunFailed, StorageError
from greenroom.records.event import Event
from greenroom.records.run import AgentRunRequest, Run, RunConfig, StreamingMode
from greenroom.records.session import Session, SessionKey
from greenroom.runner.commit import RunLog
from greenroom.runner.resume import RunProgress, run_progress
from greenroom.runner.runner import Intake, Runner
from greenroom.runs.live import LiveInput
from greenroom.runs.outcome import RunTally
from greenroom.telemetry.span import current_run

_log = logging.getLogger("greenroom.runs")

MAX_ATTEMPTS = 5
"""A run that was cut off so often without getting any further is failed instead of taken up again."""

_WHOLE = RunConfig(streaming_mode=StreamingMode.NONE)
_STREAMED = RunConfig(streaming_mode=StreamingMode.SSE)


class Surroundings(NamedTuple):
    """What jobs need. deadline_seconds, max_llm_calls: of runs that don't name their own. save: stores the record, and
    stops the job when that fails."""

    deadline_seconds: float | None
    max_llm_calls: int | None
    open_session: Callable[[SessionKey], Awaitable[Session]]
    save: Callable[[Job], object]


class Job:
    """intake None: it is resumed from its record and its log, unless it is live. has_begun: it is first in its queue,
    though its task may not have started yet. is_stored: its record, with the request, is in the store.
    stopped_by: why the engine cancelled it. is_abandoned: the engine cancelled it because the
    process ends, and the next process resumes it. done: nothing more comes of it."""

    __slots__ = (
        "done",
        "error",
        "has_begun",
        "intake",
        "is_abandoned",
        "is_stored",
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
        self,
        run: Run,
        runner: Runner,
        intake: Intake | None,
        session: Session | None,
        live: LiveInput | None = None,
        *,
        is_stored: bool = False,
    ) -> None:
        self.run = run
        self.runner = runner
        self.intake = intake
        self.session = session
        self.live = live
        self.key = session_of(run)
        self.has_begun = False
        self.is_abandoned = False
        self.is_stored = is_stored
        self.task: asyncio.Task[None] | None = None
        self.log: RunLog | None = None
        self.tally = RunTally(run.usage)
        self.error: Exception | None = None
        self.stopped_by: GreenroomError | None = None
        self.done = asyncio.Event()

    @property
    def has_events(self) -> bool:
        """Whether an event of this run was stored since its message came."""
        if self.log is None:
            return False
        later = self.log.session.events[self.run.message_after_seq :]
        return any(event.invocation_id == self.run.id for event in later)

    async def execute(self, around: Surroundings) -> None:
        """Runs to the end. Raises CancelledError only when the engine has abandoned the run.

        A cancellation that the engine did not ask for, KeyboardInterrupt, SystemExit and GeneratorExit were raised by
        the app's own code, and fail this run only.
        """
        current_run.set(self.run)
        try:
            if self.run.is_live:
                await self._talk(around)
            else:
                await self._carry_out(around)
        except Exception as error:  # the outcome of the run, whatever it was; already in its log where it could be
            if not isinstance(error, GreenroomError):
                _log.error("run %s failed", self.run.id, exc_info=error)
            self.error = error
        except BaseException as error:
            if self.stopped_by is not None:
                await self._record_abort(self.stopped_by)
            elif self.is_abandoned:
                raise
            else:
                _log.error("run %s failed", self.run.id, exc_info=error)
                self.error = RunFailed(f"The app's code raised {type(error).__name__}: {error}")
                self.error.__cause__ = error
                await self._record_abort(self.error)

    async def _carry_out(self, around: Surroundings) -> None:
        run, request = self.run, self.run.request
        if request is None:
            raise RunFailed("The run's record does not say what was asked for")
        config = _run_config(request, self.runner.run_config, around.max_llm_calls)
        session = self.session or await around.open_session(self.key)
        self.session = None
        log = self.log = self.runner.open_log(session, run.id, config, traceparent=run.traceparent, caller=run.caller)
        run.after_seq = min(run.after_seq, len(session.events))
        if run.attempts == 1 and run.message_after_seq < len(session.events):
            run.message_after_seq = len(session.events)  # others wrote while it was in line
            around.save(self)
        run.message_after_seq = min(run.message_after_seq, len(session.events))
        where, self.tally = so_far(run, session)
        if where.has_begun and where.is_over:
            return
        if where.events:
            check_version(run, self.runner)
        run.app_version = version_of(self.runner)
        if run.attempts > 1:
            run.stalled = run.stalled + 1 if len(where.events) <= run.progress else 0
            run.progress = len(where.events)
            around.save(self)
        if run.stalled >= MAX_ATTEMPTS:
            too_often = RunFailed(
                f"The run was cut off {run.stalled} times without getting any further; it is given up"
            )
            await self._record_abort(too_often)
            raise too_often
        if where.has_begun:
            events = self.runner.resume(log, where, run_config=config)
        else:
            intake = self.intake or self.runner.take_in(session, request.new_message, run.id)
            if intake.answered is not None:
                self.tally.add(Event(author="user", content=intake.message))
            events = self.runner.run_intake(log, intake, state_delta=request.state_delta, run_config=config)
        seconds = request.deadline_seconds or around.deadline_seconds
        if seconds is None:
            async for event in events:
                self.tally.add(event)
        else:
            await self._within(seconds, events)

    async def _within(self, seconds: float, events: AsyncIterator[Event]) -> None:
        late = DeadlineExceeded(seconds)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                async for event in events:
                    self.tally.add(event)
        except TimeoutError:
            if not limit.expired():
                raise  # another's
            await self._record_abort(late)
            raise late from None

    async def _talk(self, around: Surroundings) -> None:
        """A live run, or what a crash left of one."""
        run, live = self.run, self.live
        session = self.session or await around.open_session(self.key)
        self.session = None
        config = live.run_config if live is not None else RunConfig()
        log = self.log = self.runner.open_log(session, run.id, config, traceparent=run.traceparent, caller=run.caller)
        if live is None:
            cut_off = RunCancelled(run.id, "the server stopped in the midst of it")
            await self._record_abort(cut_off)
            raise cut_off
        async for event in self.runner.live(log, live.requests, run_config=config):
            self.tally.add(event)

    async def _record_abort(self, reason: GreenroomError) -> None:
        run, log = self.run, self.log
        if log is None:
            return
        where = run_progress(log.session.events[run.after_seq :], run.id, after=run.after_seq, since=0)
        if isinstance(reason, StorageError) and not where.events:
            return  # the store works no more, and has nothing to be closed
        try:
            await self.runner.record_abort(log, reason)
        except Exception:  # the run ends all the same; its history is healed when it is read
            _log.exception("the end of run %s could not be stored", run.id)


def session_of(run: Run) -> SessionKey:
    return SessionKey(run.app_name, run.user_id, run.session_id)


def version_of(runner: Runner) -> str | None:
    """Of the app's code; None when nothing sets it."""
    return (runner.app.version or None) if runner.app is not None else None


def check_version(run: Run, runner: Runner) -> None:
    """Raises AppVersionChanged when a run would continue with other code than it ran with, and its app refuses that."""
    now = version_of(runner)
    if runner.app is None or run.app_version is None or now is None or run.app_version == now:
        return
    if runner.app.on_version_change == "refuse":
        raise AppVersionChanged(run.id, run.app_version, now)
    _log.warning(
        "run %s began with version %s of app %s, continues with %s", run.id, run.app_version, run.app_name, now
    )


def so_far(run: Run, session: Session) -> tuple[RunProgress, RunTally]:
    """Where a run is that another process began, or this one will: told by its record and its log."""
    where = run_progress(session.events[run.after_seq :], run.id, after=run.after_seq, since=run.message_after_seq)
    tally = RunTally(asked=run.asked)
    if where.events:
        new = sum(event.invocation_id == run.id for event in session.events[run.message_after_seq :])
        for place, event in enumerate(where.events, new - len(where.events)):
            tally.add(event, is_of_this_stretch=place >= 0)
        tally.was_failed = where.was_failed
    return where, tally


def _run_config(request: AgentRunRequest, base: RunConfig | None, max_llm_calls: int | None) -> RunConfig:
    """base: of the app. max_llm_calls: of the server, where the app has no limit of its own; a request lowers it."""
    is_plain = base is None and max_llm_calls is None and request.max_llm_calls is None
    if is_plain and not request.custom_metadata and not request.service_tier:
        return _STREAMED if request.streaming else _WHOLE
    config = RunConfig(custom_metadata=request.custom_metadata, service_tier=request.service_tier).over(base)
    limit = config.max_llm_calls
    if max_llm_calls is not None and limit == _WHOLE.max_llm_calls:
        limit = max_llm_calls
    if request.max_llm_calls is not None and (limit <= 0 or request.max_llm_calls < limit):
        limit = request.max_llm_calls
    mode = StreamingMode.SSE if request.streaming else StreamingMode.NONE
    return msgspec.structs.replace(config, streaming_mode=mode, max_llm_calls=limit)
