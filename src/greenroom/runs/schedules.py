"""Starts the runs of schedules at their times. A schedule is rows in the store; no task or memory is kept for it.

    09:00:00  the timer reads the schedules that are due, by an index, of the sessions that this server owns
    09:00:00  a run is started with the idempotency key `schedule:ID:TIME`, in a session whose id follows from the time
    09:00:00  the time of the next run is stored with an entry of the history

A server that dies between the last two steps starts the run again at its next start: the key returns the same run, and
the time is moved. A stored time is only moved by somebody who has read it: of two servers that start a run, which the
key makes one, the second finds the time moved.

A time is missed if a later one of its schedule is due, too, or if it was `MISSED_SECONDS` ago. Missed times get their
entry in the history first; then the schedule is due again, at the time after them. The next time follows from the last
one, and not from the clock, so a clock that is put back repeats nothing.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import NamedTuple, Protocol

import msgspec

from greenroom.apps.app import App
from greenroom.errors import (
    Forbidden,
    IdempotencyConflict,
    OwnershipLost,
    RunNotFound,
    ScheduleConflict,
    ScheduleNotFound,
    SessionExists,
    StorageError,
    TooManyRequests,
    Unavailable,
    code_of,
    message_of,
)
from greenroom.records.identifiers import new_schedule_id
from greenroom.records.run import AgentRunRequest, Caller, Run, RunStatus
from greenroom.records.schedule import (
    ListScheduleRunsResponse,
    ListSchedulesResponse,
    Schedule,
    ScheduleRun,
    ScheduleTimes,
    StoredSchedule,
    public_schedule,
)
from greenroom.records.session import SessionKey
from greenroom.records.shard import Shards, shard_of
from greenroom.redaction.rules import Redaction
from greenroom.runs.ownership import require
from greenroom.runs.store import RunStore
from greenroom.runs.store_timer import LONGEST_SLEEP, StoreTimer
from greenroom.schedules.store import ScheduleLimits
from greenroom.schedules.times import last_time, next_time, with_jitter
from greenroom.schedules.validation import check_schedule
from greenroom.sessions.service import BaseSessionService

_log = logging.getLogger("greenroom.runs")

MISSED_SECONDS = 60.0
"""A run may start this much after its time; after that the schedule's policy for missed times applies."""

MAX_CAUGHT_UP = 100
"""Number of missed times for which runs are started with the policy `all`, the last ones."""

_AT_ONCE = 100
_RETRY_SECONDS = 5.0
"""Pause after a run that the server can't start for the moment."""

_UNFINISHED = (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING)


class StartRun(Protocol):
    """`RunEngine.start`, as schedules call it."""

    async def __call__(
        self, request: AgentRunRequest, *, idempotency_key: str | None, attach: bool, caller: Caller | None
    ) -> tuple[Run, object]: ...


class DueTimes(NamedTuple):
    """The times of a schedule that have come, after the policy for missed ones."""

    run_at: float | None
    """The time whose run is to be started."""

    missed: tuple[float, float] | None
    """The first and the last of the times that get no run."""


def due_times(schedule: StoredSchedule, now: float) -> DueTimes:
    """Applies the policy for missed times. The schedule is due."""
    first = schedule.due_at
    assert first is not None
    last = _last_due(schedule, first, now)

    run_at = last
    if schedule.missed == "all":
        for _ in range(MAX_CAUGHT_UP - 1):
            if run_at <= first:
                break
            run_at = _time_before(schedule, run_at, first)
    elif schedule.missed == "skip" and now - with_jitter(schedule, last) > MISSED_SECONDS:
        return DueTimes(None, (first, last))

    if run_at > first:
        return DueTimes(run_at, (first, _time_before(schedule, run_at, first)))
    return DueTimes(run_at, None)


def _last_due(schedule: StoredSchedule, first: float, now: float) -> float:
    """The last time that has come, with its jitter. first: one that has."""
    last = max(last_time(schedule, now) or first, first)
    while last > first and with_jitter(schedule, last) > now:
        last = _time_before(schedule, last, first)
    return last


def _time_before(schedule: StoredSchedule, at: float, first: float) -> float:
    return max(last_time(schedule, math.nextafter(at, 0.0)) or first, first)


@dataclass(eq=False, kw_only=True)
class Schedules:
    """The schedules of one engine.

    Changes are made by the server that owns the schedule's `key`, whose timer then knows of them: others raise
    OwnershipLost.
    """

    run_store: RunStore
    session_service: BaseSessionService
    start: StartRun
    get_run: Callable[[str], Awaitable[Run]]
    cancel_run: Callable[..., Awaitable[Run]]
    redaction_of: Callable[[str], Awaitable[Redaction | None]]
    limits: ScheduleLimits
    is_valid: Callable[[Caller], Awaitable[bool]] | None = None
    """False for a caller whose API key was revoked or has expired. None without authentication."""

    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._store = self.run_store.schedules
        self._timer = StoreTimer(self._start_due, "runs of schedules could not be started", clock=self.clock)
        self._starting: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._has_more = False
        """Whether the store may have others that are due."""

    # for clients

    async def create(self, schedule: Schedule, *, app_name: str, caller: Caller | None) -> Schedule:
        """Stores a new schedule. Raises InvalidRequest, ScheduleConflict, TooManySchedules, OwnershipLost."""
        check_schedule(schedule)
        schedule = await self._redacted(schedule, app_name)
        created = self._stored(schedule, app_name=app_name, caller=caller, created_at=self.clock())
        if not created.id:
            created.id = self._new_id(created)
        self._require(created)
        self._plan(created, self.clock())
        await self._store.add(created, self.limits)
        self._look_at(created)
        return public_schedule(created)

    def next_times(self, schedule: Schedule, *, limit: int) -> ScheduleTimes:
        """The first times after now, whether the schedule is stored or not. Raises InvalidRequest."""
        check_schedule(schedule)
        now = self.clock()
        if not schedule.created_at:
            schedule = msgspec.structs.replace(schedule, created_at=now)
        times: list[float] = []
        at = next_time(schedule, now)
        while at is not None and len(times) < limit:
            times.append(at)
            at = next_time(schedule, at)
        return ScheduleTimes(times=times)

    async def get(self, app_name: str, schedule_id: str) -> Schedule:
        """Raises ScheduleNotFound."""
        return public_schedule(await self._read(app_name, schedule_id))

    async def list(
        self, *, app_name: str, user_id: str | None = None, limit: int = 100, page_token: str | None = None
    ) -> ListSchedulesResponse:
        """An app's schedules, newest first. Raises InvalidRequest."""
        page, next_page_token = await self._store.list(
            app_name=app_name, user_id=user_id, limit=limit, page_token=page_token
        )
        return ListSchedulesResponse(schedules=list(map(public_schedule, page)), next_page_token=next_page_token)

    async def replace(self, schedule: Schedule, *, app_name: str, schedule_id: str, caller: Caller | None) -> Schedule:
        """Changes a schedule. Its next time is after now.

        Raises ScheduleNotFound, InvalidRequest, ScheduleConflict, OwnershipLost.
        """
        schedule = msgspec.structs.replace(schedule, id=schedule_id)
        check_schedule(schedule)
        schedule = await self._redacted(schedule, app_name)

        def change(earlier: StoredSchedule) -> StoredSchedule:
            if earlier.is_of_app:
                raise ScheduleConflict(schedule_id, "is declared by its app, and can only be changed there")
            return self._replaced(earlier, schedule, caller=caller)

        return await self._change(app_name, schedule_id, change)

    async def set_paused(self, app_name: str, schedule_id: str, *, is_paused: bool) -> Schedule:
        """Pauses a schedule, or resumes it: times of the pause are left out. Raises ScheduleNotFound, OwnershipLost."""

        def change(earlier: StoredSchedule) -> StoredSchedule:
            changed = msgspec.structs.replace(earlier, is_paused=is_paused)
            if is_paused != earlier.is_paused:
                self._plan(changed, self.clock())
            return changed

        return await self._change(app_name, schedule_id, change)

    async def delete(self, app_name: str, schedule_id: str) -> None:
        """Deletes a schedule with its history; its runs stay.

        Raises ScheduleNotFound, ScheduleConflict, OwnershipLost.
        """
        schedule = await self._read(app_name, schedule_id)
        if schedule.is_of_app:
            raise ScheduleConflict(schedule_id, "is declared by its app, and can only be removed there")
        self._require(schedule)
        await self._store.delete(app_name, schedule_id)

    async def run_now(self, app_name: str, schedule_id: str, *, idempotency_key: str | None = None) -> Run:
        """Starts a run, whatever the schedule's times; the policy for overlapping runs applies only with `cancel`.

        The same idempotency key returns the same run.
        Raises ScheduleNotFound, Forbidden, OwnershipLost, and what `RunEngine.start` does.
        """
        schedule = await self._read(app_name, schedule_id)
        self._require(schedule)
        key = None if idempotency_key is None else _key(schedule, f"now:{idempotency_key}")
        started = None if key is None else await self._started(schedule, key)
        if started is not None:
            return started

        now = self.clock()
        last = await self._unfinished_run(schedule) if schedule.overlap == "cancel" else None
        if last is not None:
            await self._cancel(last)
        run = await self._start_run(schedule, now, key)
        entry = ScheduleRun(
            due_at=now, at=self.clock(), outcome="started", run_id=run.id, session_id=run.session_id, is_manual=True
        )
        await self._note_run(app_name, schedule_id, entry)
        return run

    async def list_runs(self, app_name: str, schedule_id: str, *, limit: int) -> ListScheduleRunsResponse:
        """The newest entries of the history. Raises ScheduleNotFound."""
        await self._read(app_name, schedule_id)
        return ListScheduleRunsResponse(runs=list(await self._store.list_runs(app_name, schedule_id, limit=limit)))

    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        """Deletes a user's schedules in an app, but those that the app declares."""
        await self._store.delete_user(app_name=app_name, user_id=user_id)

    async def _redacted(self, schedule: Schedule, app_name: str) -> Schedule:
        """The schedule with its request as it may be stored."""
        redaction = await self.redaction_of(app_name)
        if redaction is None:
            return schedule
        return msgspec.structs.replace(schedule, request=await redaction.redact_request(schedule.request))

    # for the engine

    def look(self) -> None:
        """Reads the times of the store, which has those of other processes."""
        self._timer.look_at(0.0)

    async def declare(self, apps: Mapping[str, App], shards: Shards | None = None) -> None:
        """Stores the schedules that apps declare, and deletes those that they don't declare any more.

        apps: by the names under which they are served. shards: only schedules whose `key` belongs to them.
        """
        stored: dict[str, dict[str, StoredSchedule]] = {name: {} for name in apps}
        for schedule in await self._store.list_of_apps():
            if schedule.app_name in stored:
                stored[schedule.app_name][schedule.id] = schedule

        for name, app in apps.items():
            declared = {schedule.id: schedule for schedule in app.schedules}
            for schedule in declared.values():
                new = self._stored(schedule, app_name=name, created_at=self.clock(), is_of_app=True)
                if shards is None or shards.include(new.key):
                    await self._declare(new, stored[name].get(new.id))
            for schedule in stored[name].values():
                if schedule.id not in declared and (shards is None or shards.include(schedule.key)):
                    await self._store.delete(name, schedule.id)
        self.look()

    async def close(self) -> None:
        """Starts nothing more. Runs that are being started are not waited for: the next process starts them again."""
        await self._timer.close()
        starting = list(self._starting.values())
        for task in starting:
            task.cancel()
        await asyncio.gather(*starting, return_exceptions=True)

    # changes

    async def _declare(self, new: StoredSchedule, earlier: StoredSchedule | None) -> None:
        if earlier is not None and earlier.definition == new.definition:
            return
        earlier = earlier or await self._store.get(new.app_name, new.id)
        if earlier is None:
            self._plan(new, self.clock())
            await self._store.add(new, self.limits)
        else:
            changed = self._replaced(earlier, new, caller=None, is_of_app=True)
            changed.is_paused = earlier.is_of_app and earlier.is_paused
            self._plan(changed, self.clock())
            await self._store.update(changed)  # else another server was faster

    async def _change(
        self, app_name: str, schedule_id: str, change: Callable[[StoredSchedule], StoredSchedule]
    ) -> Schedule:
        """Raises ScheduleNotFound, OwnershipLost, and what `change` does."""
        while True:
            changed = change(await self._read(app_name, schedule_id))
            self._require(changed)
            if await self._store.update(changed):
                self._look_at(changed)
                return public_schedule(changed)

    def _stored(
        self,
        schedule: Schedule,
        *,
        app_name: str,
        created_at: float,
        caller: Caller | None = None,
        is_of_app: bool = False,
    ) -> StoredSchedule:
        fields = {field: getattr(schedule, field) for field in Schedule.__struct_fields__}
        fields |= {"app_name": app_name, "created_at": created_at, "is_of_app": is_of_app}
        fields |= {"next_at": None, "last_run_id": None}
        stored = StoredSchedule(**fields, caller=caller)
        if stored.overlap is None:
            stored.overlap = "allow" if stored.session_id is None else "skip"
        return stored

    def _replaced(
        self, earlier: StoredSchedule, schedule: Schedule, *, caller: Caller | None, is_of_app: bool = False
    ) -> StoredSchedule:
        changed = self._stored(
            schedule, app_name=earlier.app_name, created_at=earlier.created_at, caller=caller, is_of_app=is_of_app
        )
        changed.last_run_id = earlier.last_run_id
        changed.revision = earlier.revision
        changed.history_size = earlier.history_size
        self._plan(changed, self.clock())
        return changed

    def _plan(self, schedule: StoredSchedule, after: float) -> None:
        """Sets the time of the next run."""
        schedule.due_at = None if schedule.is_paused else next_time(schedule, after)
        schedule.next_at = None if schedule.due_at is None else with_jitter(schedule, schedule.due_at)

    def _new_id(self, schedule: StoredSchedule) -> str:
        """An id with which this server owns the schedule. One of a session is owned with the session."""

        def key_of(unique: str) -> SessionKey:
            return msgspec.structs.replace(schedule, id=f"sch_{unique}").key

        if schedule.session_id is not None:
            return new_schedule_id()
        return self.session_service.new_key(key_of).session_id

    def _require(self, schedule: StoredSchedule) -> None:
        if self.run_store.ownership is not None:
            require(self.run_store.ownership, schedule.key)

    async def _read(self, app_name: str, schedule_id: str) -> StoredSchedule:
        schedule = await self._store.get(app_name, schedule_id)
        if schedule is None:
            raise ScheduleNotFound(app_name, schedule_id)
        return schedule

    def _look_at(self, schedule: StoredSchedule) -> None:
        if schedule.next_at is not None:
            self._timer.look_at(schedule.next_at)

    # times

    async def _start_due(self) -> None:
        """Starts a task for each schedule that is due, and sets the timer for the next one."""
        ownership = self.run_store.ownership
        shards = None if ownership is None else ownership.owned()
        now = self.clock()
        limit = _AT_ONCE + len(self._starting)
        due = await self._store.list_due(now, limit=limit, shards=shards)
        for schedule in due:
            key = schedule.app_name, schedule.id
            if key not in self._starting and len(self._starting) < _AT_ONCE:
                self._starting[key] = asyncio.create_task(self._run_schedule(schedule))

        self._has_more = len(due) == limit or len(self._starting) == _AT_ONCE
        next_at = await self._store.next_time(now, shards=shards)
        if next_at is not None:
            self._timer.look_at(next_at)

    async def _run_schedule(self, schedule: StoredSchedule) -> None:
        key = schedule.app_name, schedule.id
        try:
            await self._run_due(schedule)
        except Exception as error:  # whatever it is, the schedule must not be forgotten
            # Ownership may be lost and come back while the run is being started: then this server has to try again.
            if not isinstance(error, (OwnershipLost, StorageError)):
                _log.exception("schedule %s of app %s could not start its run", schedule.id, schedule.app_name)
            self._timer.look_at(self.clock() + LONGEST_SLEEP)
        finally:
            del self._starting[key]
            if self._has_more and len(self._starting) < _AT_ONCE // 2:
                self._timer.look_at(0.0)

    async def _run_due(self, schedule: StoredSchedule) -> None:
        """Notes the missed times of a schedule that is due, or else starts the run of its time; then moves the time."""
        run_at, missed = due_times(schedule, self.clock())
        if missed is not None:
            # Stored before the run after them starts: a server that dies in between leaves that run's time as the next.
            await self._move(schedule, missed[1], await self._missed_entries(schedule, *missed))
            return

        assert run_at is not None
        entry = await self._run_at(schedule, run_at)
        if entry is None:
            schedule.next_at = self.clock() + _RETRY_SECONDS
            await self._store.update(schedule)
            self._look_at(schedule)
            return
        await self._move(schedule, run_at, [entry])

    async def _move(self, schedule: StoredSchedule, last_at: float, entries: Sequence[ScheduleRun]) -> None:
        """Stores the time after `last_at`, with the entries of the history for the times up to it."""
        due_at = schedule.due_at
        started = [entry.run_id for entry in entries if entry.outcome == "started"]
        changed = schedule
        while True:
            if started:
                changed.last_run_id = started[-1]
            if changed.due_at == due_at:
                self._plan(changed, last_at)
            if await self._store.update(changed, entries):
                self._look_at(changed)
                return
            newer = await self._store.get(schedule.app_name, schedule.id)
            if newer is None or not started or await self._is_noted(newer, started[-1]):
                self._timer.look_at(self.clock())
                return  # it was deleted, or another server has started the same run
            changed = newer  # somebody has changed it, and the history gets the run all the same

    async def _is_noted(self, schedule: StoredSchedule, run_id: str | None) -> bool:
        """True if the history has the run, which later ones may have followed."""
        if schedule.last_run_id == run_id:
            return True
        noted = await self._store.list_runs(schedule.app_name, schedule.id, limit=_AT_ONCE)
        return any(entry.run_id == run_id for entry in noted)

    async def _missed_entries(self, schedule: StoredSchedule, first: float, last: float) -> Sequence[ScheduleRun]:
        entries: list[ScheduleRun] = []
        started = await self._started(schedule, _key(schedule, first))
        if started is not None:  # by a server that died before it could note that
            entries.append(self._entry_of(started, first))
            following = next_time(schedule, first)
            if following is None or following > last:
                return entries
            first = following
        first_due_at = first if first < last else None
        entries.append(ScheduleRun(due_at=last, first_due_at=first_due_at, at=self.clock(), outcome="missed"))
        return entries

    async def _run_at(self, schedule: StoredSchedule, due_at: float) -> ScheduleRun | None:
        """The entry of the history for a time that has come; None if the run is to be tried again."""
        key = _key(schedule, due_at)
        last = await self._unfinished_run(schedule) if schedule.overlap in ("skip", "cancel") else None
        if last is not None and last.idempotency_key != key:
            if schedule.overlap == "skip":
                return ScheduleRun(due_at=due_at, at=self.clock(), outcome="unfinished", run_id=last.id)
            await self._cancel(last)
        try:
            run = await self._start_run(schedule, due_at, key)
        except (OwnershipLost, StorageError):
            raise
        except Exception as error:  # an app's own code may raise anything
            is_for_the_moment = isinstance(error, (Unavailable, TooManyRequests))
            if is_for_the_moment and self.clock() - with_jitter(schedule, due_at) < MISSED_SECONDS:
                return None
            _log.warning("schedule %s of app %s: no run was started: %s", schedule.id, schedule.app_name, error)
            return ScheduleRun(
                due_at=due_at,
                at=self.clock(),
                outcome="refused",
                error_code=code_of(error),
                error_message=message_of(error),
            )
        return self._entry_of(run, due_at)

    def _entry_of(self, run: Run, due_at: float) -> ScheduleRun:
        return ScheduleRun(due_at=due_at, at=self.clock(), outcome="started", run_id=run.id, session_id=run.session_id)

    async def _note_run(self, app_name: str, schedule_id: str, entry: ScheduleRun) -> None:
        while (schedule := await self._store.get(app_name, schedule_id)) is not None:
            if schedule.last_run_id == entry.run_id:
                return  # by a copy of the request
            schedule.last_run_id = entry.run_id
            if await self._store.update(schedule, [entry]):
                return

    # runs

    async def _start_run(self, schedule: StoredSchedule, at: float, idempotency_key: str | None) -> Run:
        """Raises Forbidden, and what `RunEngine.start` does."""
        caller = schedule.caller
        if caller is not None and self.is_valid is not None and not await self.is_valid(caller):
            raise Forbidden(
                f"The API key with which schedule {schedule.id!r} was stored was revoked or has expired. Store the "
                "schedule again"
            )
        key = self._session_of(schedule, at)
        has_created = schedule.session_id is None and await self._create_session(key)
        try:
            run, _ = await self.start(
                schedule.run_request(key.session_id),
                idempotency_key=idempotency_key,
                attach=False,
                caller=caller,
            )
        except Exception as error:  # an app's own code may raise anything
            if has_created:
                await self.session_service.delete_session(**key._asdict())
            if isinstance(error, IdempotencyConflict):  # started before the schedule was changed
                started = await self._started(schedule, idempotency_key or "")
                if started is not None:
                    return started
            raise
        return run

    def _session_of(self, schedule: StoredSchedule, at: float) -> SessionKey:
        """The session of a run: the same for the same time, and of the shard of the schedule's key."""
        if schedule.session_id is not None:
            return schedule.key
        seconds, milliseconds = divmod(round(at * 1000), 1000)
        second = datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%dT%H%M%S")
        base = f"{schedule.id}-{second}{f'.{milliseconds:03}' if milliseconds else ''}Z"
        key = schedule.key._replace(session_id=base)
        if self.run_store.ownership is None:
            return key
        shard = shard_of(schedule.key)
        return next(
            candidate
            for number in count(1)
            if shard_of(candidate := key._replace(session_id=f"{base}-{number}")) == shard
        )

    async def _create_session(self, key: SessionKey) -> bool:
        """False if it was there."""
        try:
            await self.session_service.create_session(**key._asdict())
        except SessionExists:
            return False
        return True

    async def _started(self, schedule: StoredSchedule, idempotency_key: str) -> Run | None:
        """The run that was started with a key."""
        return await self.run_store.find_by_idempotency_key(
            app_name=schedule.app_name, user_id=schedule.user_id, key=idempotency_key
        )

    async def _unfinished_run(self, schedule: StoredSchedule) -> Run | None:
        if schedule.last_run_id is None:
            return None
        try:
            run = await self.get_run(schedule.last_run_id)
        except (RunNotFound, OwnershipLost):  # the latter after a change of the session
            return None
        return run if run.status in _UNFINISHED else None

    async def _cancel(self, run: Run) -> None:
        await self.cancel_run(run.id, reason="the next run of its schedule is due")


def _key(schedule: StoredSchedule, time: float | str) -> str:
    """The idempotency key of a run."""
    return f"schedule:{schedule.id}:{time}"
