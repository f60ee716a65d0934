"""Steering: messages that the active run of a session reads within its turn.

A message is stored as the record of a queued run before its request is answered. Either the active run reads it before
one of its model calls, or it becomes the next turn:

    run A   running                       calls a tool
    run B   queued, steered into A        its message is stored, in its record
    run A   commits B's message           an event of run A, under an id made of B's id, and then ends B's record
    run A   calls its model               with the message

    run A   ends without another model call
    run B   running                       a run of its own

A crash between the event and the end of B's record leaves both stored. The next process finds the event by its id, and
ends the record, before it resumes the runs of the session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from greenroom.errors import NotFound
from greenroom.event_streams.stream import LiveItem, ReadLog, StreamItem
from greenroom.invocation.context import InvocationContext
from greenroom.records.content import Content
from greenroom.records.event import Event, without_reserved
from greenroom.records.run import Run
from greenroom.records.session import Session, SessionKey
from greenroom.records.steering import steering_event_id
from greenroom.runner.commit import RunLog
from greenroom.runner.runner import event_of_message
from greenroom.runs.engine import Attachment
from greenroom.runs.task import RunTask
from greenroom.sessions.service import BaseSessionService

_log = logging.getLogger("greenroom.runs")


class SteeringQueues(Protocol):
    """The queues of sessions, as a run that reads messages needs them."""

    @property
    def tasks(self) -> Mapping[str, RunTask]: ...

    def of_session(self, key: SessionKey) -> Sequence[RunTask]: ...

    def end_read(self, task: RunTask, run_id: str, seq: int) -> None:
        """Ends a queued run whose message the run `run_id` has stored."""
        ...

    def end_unread(self, task: RunTask) -> None:
        """Ends a queued run that was cancelled while its message was being stored, which has failed."""
        ...


@dataclass(slots=True, eq=False)
class QueuedMessages:
    """The messages that active runs are to read: `invocation.context.Steering`."""

    queues: SteeringQueues

    def is_pending(self, ctx: InvocationContext) -> bool:
        task = self.queues.tasks.get(ctx.invocation_id)
        queue = self.queues.of_session(task.key) if task is not None else ()
        if len(queue) < 2 or _log_of(queue[0], ctx) is None:
            return False
        return queue[0].stopped_by is None and any(_may_read(queue[0], task) for task in queue)

    async def read(self, ctx: InvocationContext) -> list[Content]:
        contents: list[Content] = []
        queue = list(self.queues.of_session(ctx.session.key))
        log = _log_of(queue[0], ctx) if queue else None
        for task in queue:
            if log is not None and _may_read(queue[0], task):
                content = await self._read(task, ctx, log)
                if content is not None:
                    contents.append(content)
        return contents

    async def _read(self, task: RunTask, ctx: InvocationContext, log: RunLog) -> Content | None:
        """Stores the message and ends its run; None if it becomes a run of its own instead."""
        task.is_being_read = True
        stored_before = log.session.events.end
        try:
            event = await self._event_of(task, ctx)
            if event is None:
                task.run.steered_into = None
                return None
            task.may_be_stored = True
            await log.commit(event)
            return event.content
        finally:
            task.is_being_read = False
            seq = _seq_of(log.session, steering_event_id(task.run.id), after=stored_before)
            if seq is not None:
                self.queues.end_read(task, ctx.invocation_id, seq)
            elif task.stopped_by is not None:
                self.queues.end_unread(task)

    async def _event_of(self, task: RunTask, ctx: InvocationContext) -> Event | None:
        """The event of the message; None if a plugin refused it, or if an earlier try to store it may have succeeded:
        then the queued run finds out.
        """
        request = task.run.request
        if request is None or task.may_be_stored:
            return None
        try:
            event = await event_of_message(ctx, request.new_message, request.state_delta, request_id=task.run.id)
        except Exception as error:  # whatever a plugin raises concerns the message, and not the run that would read it
            _log.warning("run %s can't read the message of run %s: %s", ctx.invocation_id, task.run.id, error)
            return None
        if event is not None:
            event.id = steering_event_id(task.run.id)
            event.custom_metadata = without_reserved(request.custom_metadata)
        return event


def _log_of(active: RunTask, ctx: InvocationContext) -> RunLog | None:
    """The log of the active run; None if the context is that of an earlier one, whose code ignores its cancellation."""
    log = active.log
    return log if log is not None and log.session is ctx.session else None


def _may_read(active: RunTask, task: RunTask) -> bool:
    return task.may_be_read and active.run.may_read(task.run)


def _seq_of(session: Session, event_id: str, *, after: int) -> int | None:
    events = session.events
    for seq in range(events.end, after, -1):
        if events[seq - 1 - events.skipped].id == event_id:
            return seq
    return None


class Reading(NamedTuple):
    run_id: str
    """The run that has read a message."""
    seq: int
    """The sequence number of the message's event."""


async def find_reading(sessions: BaseSessionService, run: Run) -> Reading | None:
    """The event of a request's message, if another run has stored it. Raises StorageError."""
    key = run.session_key._asdict()
    try:
        seq = await sessions.seq_of_event(**key, event_id=steering_event_id(run.id))
        page = await sessions.list_events(**key, after=seq - 1, limit=1)
    except NotFound:
        return None
    return Reading(page.events[0].invocation_id, seq)


class Attach(Protocol):
    async def __call__(self, run_id: str, *, after: int | None, with_user_events: bool) -> Attachment: ...


class SteeringReader:
    """Reads what follows a message: the event of the message and the later ones of the run that has read it, or else
    the run of its own. An `Attachment`.

    after: of the session's log, None: from the message on. task: of a run that waits to be read.
    """

    def __init__(
        self,
        run: Run,
        *,
        task: RunTask | None,
        after: int | None,
        with_user_events: bool,
        attach: Attach,
        read_log: ReadLog,
    ) -> None:
        self._run = run
        self._task = task
        self._after = after
        self._with_user_events = with_user_events
        self._attach = attach
        self._read_log = read_log
        self._closed = asyncio.Event()
        self._reader: Attachment | None = None

    async def next_batch(self, *, idle_seconds: float | None = None) -> list[LiveItem]:
        if self._reader is not None:
            return await self._reader.next_batch(idle_seconds=idle_seconds)
        if self._task is not None:
            if not await self._is_decided(self._task, idle_seconds):
                return []
            if self._task.lost is not None:
                raise self._task.lost

        run = self._run
        seq = run.read_at_seq
        if run.steered_into is None or seq is None:
            self._reader = await self._attach(run.id, after=self._after, with_user_events=self._with_user_events)
            return await self._reader.next_batch(idle_seconds=idle_seconds)

        after = max(self._after or 0, seq)
        self._reader = await self._attach(run.steered_into, after=after, with_user_events=self._with_user_events)
        if self._after is not None and self._after >= seq:
            return await self._reader.next_batch(idle_seconds=idle_seconds)
        [message, *_] = await self._read_log(seq - 1)
        return [StreamItem(message, run_id=run.steered_into, seq=seq)]

    async def _is_decided(self, task: RunTask, idle_seconds: float | None) -> bool:
        """Waits until the message was read, or its run has begun or ended; False after a while, or when closed."""
        waiting = [asyncio.ensure_future(one) for one in (task.wait_until_decided(), self._closed.wait())]
        try:
            await asyncio.wait(waiting, timeout=idle_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()
        return task.is_decided and not self._closed.is_set()

    def close(self) -> None:
        self._closed.set()
        if self._reader is not None:
            self._reader.close()
