"""Schedules: runs that start by the clock, again and again or once, and the history of each."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from greenroom.records import wire
from greenroom.records.base import Record
from greenroom.records.content import Content, Part
from greenroom.records.run import AgentRunRequest, Caller, SessionRunRequest
from greenroom.records.session import SessionKey

SCHEDULE_ID = r"^[A-Za-z0-9_-]{0,64}$"
LAST_TIME = 221845392000.0
"""The beginning of the year 9000, in Unix seconds: times are before it."""

MAX_JITTER_SECONDS = 3600.0
MAX_CRON_LENGTH = 200

_Time = Annotated[float, Meta(extra_json_schema={"minimum": 0, "exclusiveMaximum": LAST_TIME})]

MissedPolicy = Literal["skip", "once", "all"]
"""Policy for times that nobody was there for: no run, one run for all of them, or one for each, at most 100."""

OverlapPolicy = Literal["allow", "skip", "enqueue", "cancel"]
"""Policy while the schedule's last run is unfinished, which one that waits is, too: start beside it, start none, start
after it in the same session, or cancel it first."""


class Schedule(Record, kw_only=True):
    """A schedule. It has exactly one of `cron`, `everySeconds` and `at`. Times are Unix seconds."""

    id: Annotated[str, Meta(extra_json_schema={"pattern": SCHEDULE_ID})] = ""
    """Unique in its app; by default the server chooses one."""
    app_name: str = ""
    """The app that runs. Set by the server."""
    user_id: str
    """The owner of the sessions."""
    cron: Annotated[str, Meta(extra_json_schema={"maxLength": MAX_CRON_LENGTH})] | None = None
    """Minute, hour, day of the month, month and day of the week: `30 9 * * MON-FRI`."""
    time_zone: str = "UTC"
    """The time zone of `cron`: a name of the IANA database, such as `Europe/Berlin`."""
    every_seconds: Annotated[float, Meta(extra_json_schema={"minimum": 1, "maximum": LAST_TIME})] | None = None
    """Runs start at this distance, from `startAt` on or, without it, from the creation of the schedule on."""
    at: _Time | None = None
    """The run starts once, at this time."""
    start_at: _Time | None = None
    """No run starts before this time."""
    end_at: _Time | None = None
    """No run starts after this time."""
    jitter_seconds: Annotated[float, Meta(extra_json_schema={"minimum": 0, "maximum": MAX_JITTER_SECONDS})] = 0.0
    """Each run starts up to this much later, by a number that looks random."""
    missed: MissedPolicy = "once"
    """Policy for times that passed while the server was down: no run, one for all of them, or one for each, at most
    100."""
    overlap: OverlapPolicy | None = None
    """Policy while the schedule's last run is unfinished: `skip` this time, `cancel` that run, `enqueue` (in one
    session) or `allow` (in new sessions). By default `skip` in one session, and `allow` in new ones."""
    session_id: str | None = None
    """The session of all runs; by default each run gets a new session."""
    request: SessionRunRequest = msgspec.field(default_factory=SessionRunRequest)
    """The request of each run: its message, changes of the state, and options."""
    is_paused: bool = False
    """Whether no run starts until the schedule is resumed."""
    next_at: float | None = None
    """The time of the next run; None if there is none. Set by the server."""
    is_of_app: bool = False
    """Whether the app's code or YAML declares it: then it can be paused, but not changed. Set by the server."""
    created_at: float = 0.0
    """Set by the server."""
    last_run_id: str | None = None
    """The run that it started last. Set by the server."""

    if TYPE_CHECKING:  # type checkers take it for an argument of the constructor; see `from_shorthands`
        message: str | None = None

    @classmethod
    def from_shorthands(cls, /, *args: Any, **arguments: Any) -> dict[str, Any]:
        """Takes the text of the user's message as `message`, in place of `request`."""
        message = arguments.pop("message", None)
        if message is not None:
            if "request" in arguments:
                raise ValueError("Schedule() takes either message or request")
            content = Content(role="user", parts=[Part(text=message)])
            arguments["request"] = SessionRunRequest(new_message=content)
        return super().from_shorthands(*args, **arguments)

    @property
    def key(self) -> SessionKey:
        """Its session. One whose runs get new sessions has a key of its own; these sessions are of the same shard."""
        return SessionKey(self.app_name, self.user_id, self.session_id or self.id)

    def run_request(self, session_id: str) -> AgentRunRequest:
        fields = {field: getattr(self.request, field) for field in SessionRunRequest.__struct_fields__}
        return AgentRunRequest(**fields, app_name=self.app_name, user_id=self.user_id, session_id=session_id)


class StoredSchedule(Schedule, kw_only=True):
    """A schedule with what only the server needs."""

    caller: Caller | None = None
    """The caller whose permissions its runs have; None for one of the app's, and without authentication."""
    due_at: float | None = None
    """The time of the next run, without jitter."""
    revision: int = 0
    """Number of changes of the record, each of which is made to the one that was read."""
    history_size: int = 0
    """Number of entries that its history has had."""

    @property
    def definition(self) -> Schedule:
        """The fields that its author gave, without those that the server and people set."""
        unset = {"app_name": "", "is_paused": False, "next_at": None, "created_at": 0.0, "last_run_id": None}
        return msgspec.structs.replace(public_schedule(self), **unset)


_PUBLIC = Schedule.__struct_fields__


def public_schedule(stored: Schedule) -> Schedule:
    """The schedule without internal fields."""
    return Schedule(**{field: getattr(stored, field) for field in _PUBLIC})


def with_id_by_definition(schedule: Schedule) -> Schedule:
    """A schedule of an app; its id, unless it has one, follows from its definition: it stays after a restart."""
    if schedule.id:
        return schedule
    return msgspec.structs.replace(schedule, id=f"app_{sha256(wire.encode(schedule)).hexdigest()[:16]}")


class ScheduleRun(Record, kw_only=True):
    """An entry of a schedule's history: a time that came, and its outcome. Times are Unix seconds."""

    due_at: float
    """The time that the schedule gave, without jitter; of a run that a person started, the time of that."""
    first_due_at: float | None = None
    """The first of several times that passed without a run; `dueAt` is the last one."""
    at: float
    """The time at which the outcome was known."""
    outcome: Literal["started", "missed", "unfinished", "refused"]
    """A run was started; or none was, since nobody was there at the time, since the last run was unfinished, or since
    the server refused the request."""
    run_id: str | None = None
    """The run that was started, or the unfinished one."""
    session_id: str | None = None
    """The session of the run that was started."""
    error_code: str | None = None
    """The name of the error with which the request was refused."""
    error_message: str | None = None
    """The error's text."""
    is_manual: bool = False
    """Whether a person started the run, by `…/run`."""


class ScheduleTimes(Record, kw_only=True, omit_defaults=False):
    """The next times of a schedule."""

    times: list[float]
    """Unix seconds, earliest first, without jitter."""


class ListSchedulesResponse(Record, kw_only=True, omit_defaults=False):
    """A page of a list of schedules."""

    schedules: list[Schedule]
    """Newest first."""
    next_page_token: str | None = None
    """`page_token` of the next request; None on the last page."""


class ListScheduleRunsResponse(Record, kw_only=True, omit_defaults=False):
    """The newest entries of a schedule's history."""

    runs: list[ScheduleRun]
    """Newest first."""
