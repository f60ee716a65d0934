"""The queue of each session: one run at a time, the others after it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from greenroom.errors import GreenroomError, OwnershipLost, RunCancelled, StorageError, StoreInUse
from greenroom.event_streams.in_process import InProcessEventStream
from greenroom.event_streams.stream import RunEnded
from greenroom.invocation.context import ABANDONED
from greenroom.records.content import Content
from greenroom.records.human_requests import responses_in
from greenroom.records.model_exchange import LiveRequest
from greenroom.records.run import RETRYABLE, QueuedRequest, Run, RunStatus
from greenroom.records.session import Session, SessionKey
from greenroom.runner.runner import Runner
from greenroom.runs.app_versions import AppVersions
from greenroom.runs.judging import RunJudging
from greenroom.runs.memory_writer import MemoryWriter
from greenroom.runs.ownership import IsOf
from greenroom.runs.run_config import RunDefaults
from greenroom.runs.start_scheduler import StartScheduler
from greenroom.runs.steering import Reading
from greenroom.runs.store import RunLoad, RunStore
from greenroom.runs.task import RunTask
from greenroom.runs.turns import Turns
from greenroom.runs.wake_ups import WakeUps
from greenroom.runs.watch import RunWatches
from greenroom.statistics.run_figures import RunFigures
from greenroom.telemetry.span import Trace, TraceListener
from greenroom.usage.store import UsageStore

_log = logging.getLogger("greenroom.runs")

SAVE_AGAIN_SECONDS = 1.0, 30.0
"""The first and the longest pause between two tries to store the ends of runs, while the store refuses them."""

CANCEL_SECONDS = 1.0
"""Time limit for the clean-up of a cancelled run, which tools may ignore: then the run ends without them."""


@dataclass(kw_only=True, eq=False)
class SessionQueues:
    """The unfinished runs of each session: the first one runs as a task, the others wait."""

    run_store: RunStore
    usage_store: Callable[[], UsageStore]
    """Called when it is needed first."""
    stream: InProcessEventStream
    watches: RunWatches
    open_session: Callable[[SessionKey], Awaitable[Session]]
    find_reading: Callable[[Run], Awaitable[Reading | None]]
    """Finds the event of a message that another run has stored."""
    release: Callable[[SessionKey, Runner], None]
    """Called once for each run when it ends."""
    defaults: RunDefaults
    versions: AppVersions
    trace_listeners: Sequence[TraceListener]
    memory_writer: MemoryWriter
    judging: RunJudging | None
    """Judges ended runs; None: no run is judged."""
    wake_ups: WakeUps
    has_statistics: bool = False
    """Whether runs are counted in the statistics."""
    turns: Turns | None = None
    """Limits the runs that are executed at a time; None: no limit."""
    save_again_seconds: tuple[float, float] = SAVE_AGAIN_SECONDS

    def __post_init__(self) -> None:
        self.is_closing = False
        self._is_closed = False
        self._queues: dict[SessionKey, list[RunTask]] = {}
        self._tasks: dict[str, RunTask] = {}
        self._by_idempotency_key: dict[tuple[str, str, str], RunTask] = {}
        self._scheduler = StartScheduler()
        self._compacting: dict[asyncio.Task[None], RunTask] = {}
        self._newest_compacting: dict[str, RunTask] = {}
        """By run; without those that a message has continued since their end, whose records are newer."""

        self._ignoring: set[asyncio.Task[None]] = set()
        self._unsaved: dict[str, RunTask] = {}
        self._retrying: asyncio.Task[None] | None = None
        self._is_refusing = False

    @property
    def tasks(self) -> Mapping[str, RunTask]:
        """Returns the newest task of each run that has not ended, or whose end isn't stored yet."""
        return self._tasks

    def of_session(self, key: SessionKey) -> Sequence[RunTask]:
        return self._queues.get(key) or ()

    def unfinished(self) -> list[RunTask]:
        """All runs that have not ended."""
        return [task for queue in self._queues.values() for task in queue]

    def busy_sessions(self) -> set[SessionKey]:
        """The sessions with runs that have not ended, or whose ends aren't stored yet. None after `close`."""
        if self._is_closed:
            return set()
        return {task.key for task in [*self._tasks.values(), *self._compacting.values()]}

    def active(self, run_id: str) -> RunTask | None:
        """The run if it has not ended."""
        task = self._tasks.get(run_id)
        return None if task is None or task.has_ended else task

    def with_idempotency_key(self, app_name: str, user_id: str, idempotency_key: str) -> RunTask | None:
        """The run that was started with the key, until its end is stored."""
        return self._by_idempotency_key.get((app_name, user_id, idempotency_key))

    def load(self) -> dict[str, RunLoad]:
        loads: dict[str, RunLoad] = {}
        for key, queue in self._queues.items():
            running, queued = loads.get(key.app_name, (0, 0))
            begun = sum(task.has_begun for task in queue)
            loads[key.app_name] = RunLoad(running + begun, queued + len(queue) - begun)
        return loads

    def enqueue(self, task: RunTask) -> asyncio.Future[None]:
        """Stores the record; starts the run now, or after those before it. Returns the future of the record."""
        run = task.run
        queue = self._queues.setdefault(task.key, [])
        queue.append(task)
        if run.id in self._tasks or run.queued_before:
            run.queued_before = [_queued_request(earlier) for earlier in queue if _waits_before(earlier, task)]
        if task.is_newest:
            if (earlier := self._unsaved.get(run.id)) is not None:
                task.figures = earlier.figures
            self._tasks[run.id] = task
        self._newest_compacting.pop(run.id, None)
        if run.idempotency_key is not None:
            self._by_idempotency_key[run.app_name, run.user_id, run.idempotency_key] = task
        return self._begin(task) if self._may_begin(task) else self.save(task)

    async def wait_until_stored(self, run_id: str) -> None:
        """Returns when the run's first record is stored. Raises the error with which the store refused it."""
        task = self._tasks.get(run_id)
        if task is not None and task.storing is not None:
            await asyncio.shield(task.storing)

    def begin_held(self, task: RunTask) -> None:
        """Starts a held resumed run, now or after earlier runs in its session's queue."""
        task.is_held = False
        if self._may_begin(task):
            self._begin(task)

    def stop(self, task: RunTask, reason: GreenroomError) -> RunTask:
        """Cancels a run, and drops the queued messages that would continue it. Returns the cancelled run."""
        queue = self._queues[task.key]
        first, *later = [queued for queued in queue if queued.run.id == task.run.id]
        for queued in later:
            queued.end()
            queue.remove(queued)
            self._drop(queued)
        self._tasks[first.run.id] = first
        self.cancel(first, reason)
        return first

    def preempt(self, key: SessionKey, run_id: str) -> None:
        """Cancels all runs of a session for the run `run_id`, which replaces them."""
        for task in {task.run.id: task for task in self.of_session(key)}.values():
            self.stop(task, RunCancelled(task.run.id, f"run {run_id} preempted it"))

    async def leave(self, is_left: IsOf) -> None:
        """Like `abandon`, for sessions that are given back. Their interruption doesn't count as a stall."""
        saving: list[asyncio.Future[None]] = []
        newest = set(self._tasks.values())
        for task in self.abandon(is_left):
            if task.has_begun and task in newest:
                task.run.progress = -1
                save = self.run_store.save_progress if task.is_stored else self.run_store.save
                saving.append(save(task.run))
        if saving:
            await asyncio.wait(saving, timeout=CANCEL_SECONDS)

    def abandon(self, is_lost: IsOf) -> list[RunTask]:
        """Drops the runs of sessions that another server runs now, as they are stored."""
        abandoned: list[RunTask] = []
        for key in [key for key in self._queues if is_lost(key)]:
            self.close_live_input(key)
            lost = OwnershipLost(*key)
            for task in self._queues.pop(key):
                _log.warning("run %s is left to another server, which has taken over its session", task.run.id)
                abandoned.append(task)
                task.abandon(lost)
                self._drop(task)
        if self.turns is not None:
            self._begin_next(self.turns)

        for compacting, task in self._compacting.items():
            if is_lost(task.key):
                compacting.cancel(ABANDONED)
        for task in [task for task in self._unsaved.values() if is_lost(task.key)]:
            del self._unsaved[task.run.id]
            task.is_to_remember = False
            self._forget(task)
        return abandoned

    def end_read(self, task: RunTask, run_id: str, seq: int) -> None:
        """Ends a queued run whose message the run `run_id` has stored. A cancellation since then came too late."""
        task.stopped_by = None
        task.run.note_reading(run_id, seq)
        self._finish(task)

    def end_unread(self, task: RunTask) -> None:
        """Ends a queued run that was cancelled while its message was being stored, which has failed."""
        self._finish(task)

    async def was_read(self, task: RunTask) -> bool:
        reading = await self.find_reading(task.run)
        if reading is not None:
            task.run.note_reading(*reading)
        return reading is not None

    def close_live_input(self, key: SessionKey) -> None:
        for task in self.of_session(key):
            if task.live is not None:
                task.live.requests.close()

    async def close(self, *, grace_seconds: float) -> None:
        """Gives runs a while to end; the next process resumes the others."""
        self.is_closing = True
        if self._retrying is not None:
            self._retrying.cancel()
        for key in self._queues:
            self.close_live_input(key)
        each = (task for queue in self._queues.values() for task in queue)
        tasks = {task.asyncio_task: task for task in each if task.asyncio_task is not None} | self._compacting
        if tasks:
            await self._end_attempts(tasks, grace_seconds)
        self._is_closed = True

    async def _end_attempts(self, tasks: Mapping[asyncio.Task[None], RunTask], grace_seconds: float) -> None:
        _, running = await asyncio.wait(tasks, timeout=grace_seconds)
        saving: list[asyncio.Future[None]] = []
        for attempt in running:
            task = tasks[attempt]
            task.is_abandoned = True
            attempt.cancel(ABANDONED)
            if not task.has_ended:
                task.run.progress = -1
                saving.append(self.save(task))
        if running:
            await asyncio.wait([*running, *saving], timeout=CANCEL_SECONDS)

    def _may_begin(self, task: RunTask) -> bool:
        """True if the run is the first one in its session's queue, and nothing else keeps it from starting."""
        if task.has_begun or task.is_held or self.is_closing:
            return False
        queue = self._queues.get(task.key)
        return bool(queue) and queue[0] is task

    def _begin_next(self, turns: Turns) -> None:
        """Starts the runs whose turn it is."""
        while not self.is_closing and (task := turns.next()) is not None:
            self._begin(task)

    def _begin(self, task: RunTask) -> asyncio.Future[None]:
        """Starts a run that may begin; it waits for its turn if the server executes as many as it may. Returns the
        future of its record.
        """
        if self.turns is not None and not self.turns.acquire(task):
            return self.save(task)
        run = task.run
        run.started_at = run.started_at or time.time()
        run.status = RunStatus.RUNNING
        run.attempts += 1
        task.begin()
        stored = self.save(task)
        start = partial(self._start, task)
        if (self._scheduler.is_saturated or _may_conflict(task)) and not stored.done():
            # In a burst, the client is answered before its run starts.
            stored.add_done_callback(lambda _: self._scheduler.start(run.user_id, start))
        else:
            self._scheduler.start(run.user_id, start)
        return stored

    def _start(self, task: RunTask) -> None:
        if task.has_ended or self.is_closing:
            return  # cancelled, or left for the next process, while it was scheduled
        self._run_as(task, asyncio.create_task(self._execute(task)))

    def _run_as(self, task: RunTask, asyncio_task: asyncio.Task[None]) -> None:
        task.asyncio_task = asyncio_task
        asyncio_task.add_done_callback(partial(self._task_done, task))

    def _task_done(self, task: RunTask, asyncio_task: asyncio.Task[None]) -> None:
        if asyncio_task is task.asyncio_task:
            self._finish(task)

    async def _execute(self, task: RunTask) -> None:
        await task.execute(self)
        executing = asyncio.current_task()
        if executing is None or task.asyncio_task is not executing:
            return
        self._finish(task)

        compacts = task.runner.services.compaction is not None
        if compacts and task.run.status is RunStatus.SUCCEEDED and task.log is not None:
            self._compacting[executing] = task
            self._newest_compacting[task.run.id] = task
            try:
                await task.runner.compact(task.log)
            finally:
                del self._compacting[executing]
                is_newest = self._newest_compacting.get(task.run.id) is task
                if is_newest:
                    del self._newest_compacting[task.run.id]
            if is_newest and task.log.summaries:
                task.count_usage()
                if self.has_statistics:
                    self._count_figures(task, has_ended=False)
                task.is_to_remember = self.memory_writer.is_pending(task.run.id)
                self._save_end(task)

    def save(self, task: RunTask) -> asyncio.Future[None]:
        """Stores the record, or stops the run when that fails: no later process could resume it.

        A run that a queued message continues is stored with that message already, and isn't stored again without it.
        """
        if self._tasks.get(task.run.id) is not task:
            return _done()

        requests = task.requests
        figures = task.figures
        if task.is_stored and requests is None and not task.audit and not figures:
            saving = self.run_store.save_progress(task.run)
        else:
            task.requests = None
            saving = self.run_store.save(task.run, requests=requests, audit=task.audit, figures=figures)
            task.audit = ()
            task.figures = ()
            if not task.is_stored:
                task.storing = saving
        when_done(saving, partial(self._saved, task, figures))
        return saving

    def _saved(self, task: RunTask, figures: Sequence[RunFigures], saving: asyncio.Future[None]) -> None:
        error = None if saving.cancelled() else saving.exception()
        if isinstance(error, StorageError):
            task.figures = (*figures, *task.figures)
        task.storing = None
        if not isinstance(error, GreenroomError):
            task.is_stored = True
            self._is_refusing = False
            if not task.has_begun and task.may_be_read:
                self._wake_live_run(task.key)
            self.watches.publish(task.run)
            return
        if isinstance(error, OwnershipLost):
            self._lose(task.key)
            return
        if isinstance(error, StorageError) and not self._is_refusing:
            self._is_refusing = True
            _log.error("runs are refused, because their records can't be stored: %s", error)
        self.cancel(task, error)

    def _wake_live_run(self, key: SessionKey) -> None:
        """Sends an empty request to the session's live run, which then reads the queued messages."""
        live = self._queues[key][0].live
        if live is not None:
            live.requests.send(LiveRequest())

    def cancel(self, task: RunTask, reason: GreenroomError) -> None:
        """Ends the execution of a run, or its wait in the queue. The first reason counts."""
        if task.stopped_by is not None or task.has_ended:
            return
        task.stopped_by = reason
        if task.is_being_read:
            return  # it ends as read, or when its message could not be stored
        is_unread = task.is_resumed and task.log is None and self._queues[task.key][0] is task
        if is_unread and isinstance(reason, RunCancelled):
            if task.is_held:
                self.begin_held(task)
            elif self.turns is not None and not task.has_begun and not self.is_closing:
                self.turns.begin(task)
                self._begin(task)
            # It ends by itself when it has read its log, in which earlier attempts may have left calls open.
        elif task.asyncio_task is not None:
            task.asyncio_task.cancel()
        else:
            self._finish(task)
            return
        asyncio.get_running_loop().call_later(CANCEL_SECONDS, self._end_without_waiting, task)

    def _lose(self, key: SessionKey) -> None:
        """Drops the runs of a session of which a write was refused, and ends its streams.

        The listener of the ownership does the same a moment later, when a run that has failed would have been seen.
        """
        self.abandon(lambda one: one == key)
        self.stream.end_lost(lambda one: one == key)

    def _end_without_waiting(self, task: RunTask) -> None:
        """Ends a run that was cancelled, and whose tool, model or callback ignores the cancellation."""
        if task.has_ended or task.is_abandoned or task.asyncio_task is None:
            return
        _log.warning("run %s ends, though its code ignores its cancellation and still runs", task.run.id)
        self._ignoring.add(task.asyncio_task)
        task.asyncio_task.add_done_callback(self._ignoring.discard)
        self._run_as(task, asyncio.create_task(self._record_abort(task)))

    async def _record_abort(self, task: RunTask) -> None:
        if task.stopped_by is not None:
            await task.record_abort(task.stopped_by)

    def _finish(self, task: RunTask) -> None:
        """Writes the record, notifies the readers, and starts the next run of the session.

        An abandoned run keeps its record as it is, so that the next process resumes it.
        """
        if task.has_ended:
            return
        if task.is_abandoned and task.asyncio_task is not None and task.asyncio_task.cancelled():
            return
        error = task.error or task.stopped_by
        if isinstance(error, OwnershipLost) and task.key == (error.app_name, error.user_id, error.session_id):
            self._lose(task.key)
            return

        task.end()
        run = task.run
        task.record_outcome()
        task.count_usage()
        run.ended_at = time.time()
        if run.read_at_seq is None:  # it was cancelled before another run could read its message
            run.steered_into = None
        is_kept = run.status in RETRYABLE and not task.is_message_stored
        if run.request is not None and not is_kept:
            run.request = msgspec.structs.replace(run.request, new_message=None, state_delta=None)
        self._release(task)
        if self._tasks.get(run.id) is task:
            ended = RunEnded(run, error)
            if self.has_statistics and run.read_at_seq is None:
                self._count_figures(task, has_ended=True)
            if task.is_stored or task.storing is not None or task.has_events:
                app = task.runner.app
                is_selected = app is not None and app.memory_policy is not None and run.read_at_seq is None
                task.is_to_remember = is_selected and run.status is not RunStatus.WAITING
                task.is_to_judge = app is not None and bool(app.judges) and run.status is RunStatus.SUCCEEDED
                task.end_stored = self._save_end(task)
                if run.is_live or task.requests is not None:
                    # A live run's log has no end: until the record is stored, a crash would cancel the run. Requests to
                    # people are read from the store, by other servers too.
                    when_done(task.end_stored, partial(self._publish_stored, task.key, ended))
                else:
                    self.stream.publish(task.key, ended)
            else:  # it was refused before anything was stored
                self._forget(task)
                if not self._restore_earlier(task):
                    self.stream.publish(task.key, ended)
        else:  # a queued message continues this run, and holds its record
            self._forget(task)

        if self.trace_listeners and run.read_at_seq is None:
            # A run that never started has no trace yet.
            trace = (task.log.trace if task.log is not None else None) or Trace(task.key, run.id)
            trace.end(run.status, self.trace_listeners)

        queue = self._queues[task.key]
        queue.remove(task)
        pending = run.asked
        for later in queue:
            if later.run.id == run.id and later.run.request is not None:
                pending = later.run.asked = without_answered(pending, later.run.request.new_message)

        if not queue:
            del self._queues[task.key]
        elif self._may_begin(queue[0]):
            self._begin(queue[0])
        if self.turns is not None:
            self._begin_next(self.turns)

    def _count_figures(self, task: RunTask, *, has_ended: bool) -> None:
        task.count_figures(self.usage_store() if task.usage.by_model else None, has_ended=has_ended)

    def _restore_earlier(self, refused: RunTask) -> bool:
        """Gives the record of a run back to the task that a refused message would have continued, if there is one."""
        for earlier in reversed(self._queues[refused.key]):
            if earlier.run.id == refused.run.id and earlier is not refused:
                self._tasks[earlier.run.id] = earlier
                return True
        return False

    def _publish_stored(self, key: SessionKey, ended: RunEnded, saving: asyncio.Future[None]) -> None:
        """Notifies the readers of an end that is stored, or is retried; those of a lost session get OwnershipLost."""
        error = None if saving.cancelled() else saving.exception()
        if not isinstance(error, OwnershipLost):
            self.stream.publish(key, ended)

    def _save_end(self, task: RunTask) -> asyncio.Future[None]:
        """Stores the record of the end; until then, the task holds it."""
        figures = task.figures
        saving = self._store_end(task)
        when_done(saving, partial(self._end_saved, task, figures))
        return saving

    def _store_end(self, task: RunTask) -> asyncio.Future[None]:
        if task.usage.by_model:
            self.usage_store().record(task.run, task.usage.by_model)  # shares the transaction of the next write
        if task.run.wake_ups:
            self.wake_ups.add(task.run)
        if task.requests is None:
            self.watches.publish(task.run)
            return self.run_store.save(task.run, is_to_remember=task.is_to_remember, figures=task.figures)

        saving = self.run_store.save(
            task.run, is_to_remember=task.is_to_remember, requests=task.requests, figures=task.figures
        )
        when_done(saving, lambda _: self.watches.publish(task.run))
        return saving

    def _end_saved(self, task: RunTask, figures: Sequence[RunFigures], saving: asyncio.Future[None]) -> None:
        error = None if saving.cancelled() else saving.exception()
        if not isinstance(error, StorageError):
            if figures:
                task.figures = task.figures[len(figures) :]
            if error is not None:  # another server has the run
                task.is_to_remember = False
                task.is_to_judge = False
            self._forget(task)
        elif (newest := self._tasks.get(task.run.id)) is not task:
            if newest is not None and figures:  # a message continues the run
                newest.figures = (*figures, *newest.figures)
        else:
            self._unsaved[task.run.id] = task
            if self._retrying is None and not self.is_closing:
                _log.error("the ends of runs can't be stored, and are retried: %s", error)
                self._retrying = asyncio.create_task(self._save_unsaved())

    async def _save_unsaved(self) -> None:
        """Retries to store the ends of runs: the first of them with growing pauses, then all others."""
        pause, longest = self.save_again_seconds
        while self._unsaved:
            await asyncio.sleep(pause)
            pause = min(pause * 2, longest)
            with contextlib.suppress(StorageError):
                for run_id, task in list(self._unsaved.items()):
                    if self._tasks.get(run_id) is task:
                        await self._store_again(task)
                    if self._unsaved.pop(run_id, None) is not None:
                        self._forget(task)
        self._retrying = None
        _log.warning("the ends of all runs are stored again")

    async def _store_again(self, task: RunTask) -> None:
        """Raises StorageError."""
        try:
            await self._store_end(task)
        except (OwnershipLost, StoreInUse):  # another server has the run
            task.is_to_remember = False
            task.is_to_judge = False

    def _release(self, task: RunTask) -> None:
        self.release(task.key, task.runner)
        if self.turns is not None:
            self.turns.end(task)

    def _drop(self, task: RunTask) -> None:
        self._release(task)
        self._forget(task)

    def _forget(self, task: RunTask) -> None:
        run = task.run
        if task.is_to_remember:
            self.memory_writer.add(run, task.runner)
        if task.is_to_judge and self.judging is not None and task.runner.app is not None:
            task.is_to_judge = False
            self.judging.add(run, task.runner.app)
        if self._tasks.get(run.id) is task:
            del self._tasks[run.id]
        if run.idempotency_key is not None:
            self._by_idempotency_key.pop((run.app_name, run.user_id, run.idempotency_key), None)


def _may_conflict(task: RunTask) -> bool:
    """True if the store may refuse the record, since a run in another session has the idempotency key."""
    return task.run.idempotency_key is not None and not task.is_stored


def _waits_before(earlier: RunTask, later: RunTask) -> bool:
    """True for a task of the same run whose message isn't in the log yet: only its request has it."""
    if earlier is later or earlier.run.id != later.run.id or earlier.run.request is None:
        return False
    if earlier.run.request.new_message is None:
        return not earlier.has_begun
    return not earlier.is_message_stored


def _queued_request(task: RunTask) -> QueuedRequest:
    run = task.run
    assert run.request is not None
    return QueuedRequest(request=run.request, caller=run.caller, message_after_seq=run.message_after_seq)


def _done() -> asyncio.Future[None]:
    """The future of a write that isn't needed."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_result(None)
    return future


def when_done(saving: asyncio.Future[None], call: Callable[[asyncio.Future[None]], None]) -> None:
    """Calls at once if the write is done already, as it always is in memory."""
    if saving.done():
        call(saving)
    else:
        saving.add_done_callback(call)


def without_answered(pending: Mapping[str, str], message: Content | None) -> dict[str, str]:
    """Returns the pending requests, without those that the message answers."""
    if not pending:
        return {}
    answered = {response.id for response in responses_in(message)}
    return {request_id: made for request_id, made in pending.items() if request_id not in answered}
