"""`greenroom schedules`: the schedules of a server's apps, which start runs by the clock."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import App, Parameter

from greenroom.cli.parameters import ApiKey, client_for
from greenroom.cli.terminal import note, print_line, print_table
from greenroom.errors import CallerError

if TYPE_CHECKING:
    from greenroom.records.schedule import Schedule

app = App(name="schedules", help="Manage schedules, which start runs by the clock, on a running server.")

Url: TypeAlias = Annotated[str, Parameter(name="--url", env_var="GREENROOM_URL", help="The URL of the server.")]
AppName: TypeAlias = Annotated[str, Parameter(name="APP", help="The app.")]
ScheduleId: TypeAlias = Annotated[str, Parameter(name="SCHEDULE", help="The schedule's ID.")]

_DEFAULT_URL = "http://127.0.0.1:8000"


@app.command(name="list")
def list_schedules(
    app: AppName, /, *, user: str | None = None, url: Url = _DEFAULT_URL, api_key: ApiKey = None
) -> None:
    """List the schedules of an app, the newest first.

        greenroom schedules list weather --url https://agents.example.com

    Parameters
    ----------
    user
        Only schedules of this user.
    """

    async def find() -> list[Schedule]:
        found: list[Schedule] = []
        page_token: str | None = None
        async with client_for(url, api_key) as client:
            while True:
                page = await client.list_schedules(app_name=app, user_id=user, page_token=page_token)
                found += page.schedules
                page_token = page.next_page_token
                if page_token is None:
                    return found

    schedules = asyncio.run(find())
    if not schedules:
        note("No schedules found.")
        return
    print_table(("id", "user", "times", "next run"), [_row(schedule) for schedule in schedules])


@app.command
def add(
    app: AppName,
    /,
    *,
    user: str,
    message: str,
    cron: str | None = None,
    time_zone: str = "UTC",
    every_seconds: float | None = None,
    at: str | None = None,
    start_at: str | None = None,
    end_at: str | None = None,
    jitter_seconds: float = 0.0,
    missed: Literal["skip", "once", "all"] = "once",
    overlap: Literal["allow", "skip", "enqueue", "cancel"] | None = None,
    session: str | None = None,
    schedule_id: Annotated[str, Parameter(name="--id")] = "",
    url: Url = _DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Add a schedule, with exactly one of `--cron`, `--every-seconds` and `--at`. Its ID goes to standard output.

        greenroom schedules add weather --user ada --cron "30 7 * * *" --time-zone Europe/Berlin --message "Umbrella?"

        greenroom schedules add weather --user ada --at 2026-03-01T09:00:00+01:00 --message "How is the weather?"

    Parameters
    ----------
    user
        The user whose sessions the runs are in.
    message
        The message of each run.
    cron
        Minute, hour, day of the month, month and day of the week.
    time_zone
        The time zone of `--cron`, a name of the IANA database.
    every_seconds
        The distance between runs in seconds.
    at
        The time of a single run, with its offset.
    start_at
        The time before which no run starts, with its offset.
    end_at
        The time after which no run starts, with its offset.
    jitter_seconds
        Start each run up to this much later.
    missed
        The policy for times that passed while the server was down: no run, one for all, or one for each.
    overlap
        The policy while the last run is unfinished. Default: `skip` with `--session`, else `allow`.
    session
        The session of all runs. Default: a new one for each run.
    schedule_id
        The ID of the schedule. Default: the server chooses one.
    """
    from greenroom.records.content import Content, Part
    from greenroom.records.run import SessionRunRequest
    from greenroom.records.schedule import Schedule

    schedule = Schedule(
        id=schedule_id,
        user_id=user,
        cron=cron,
        time_zone=time_zone,
        every_seconds=every_seconds,
        at=_seconds("--at", at),
        start_at=_seconds("--start-at", start_at),
        end_at=_seconds("--end-at", end_at),
        jitter_seconds=jitter_seconds,
        missed=missed,
        overlap=overlap,
        session_id=session,
        request=SessionRunRequest(new_message=Content(role="user", parts=[Part(text=message)])),
    )

    async def create() -> Schedule:
        async with client_for(url, api_key) as client:
            return await client.create_schedule(schedule, app_name=app)

    created = asyncio.run(create())
    print_line(created.id)
    note(f"next run: {_next_run(created)}")


@app.command
def times(app: AppName, schedule_id: ScheduleId, /, *, url: Url = _DEFAULT_URL, api_key: ApiKey = None) -> None:
    """Show the next five times of a schedule, in its time zone and without jitter."""
    from greenroom.schedules.times import zone_of

    async def find() -> tuple[Schedule, list[float]]:
        async with client_for(url, api_key) as client:
            schedule = await client.get_schedule(app_name=app, schedule_id=schedule_id)
            return schedule, await client.next_times(schedule, app_name=app)

    schedule, found = asyncio.run(find())
    zone = zone_of(schedule.time_zone)
    for at in found:
        print_line(datetime.fromtimestamp(at, zone).isoformat(sep=" ", timespec="seconds"))
    if schedule.is_paused:
        note("The schedule is paused.")
    elif not found:
        note("No time is left.")


@app.command
def pause(app: AppName, schedule_id: ScheduleId, /, *, url: Url = _DEFAULT_URL, api_key: ApiKey = None) -> None:
    """Pause a schedule: no runs start until it is resumed."""

    async def change() -> None:
        async with client_for(url, api_key) as client:
            await client.pause_schedule(app_name=app, schedule_id=schedule_id)

    asyncio.run(change())
    note(f"Paused schedule {schedule_id!r}.")


@app.command
def resume(app: AppName, schedule_id: ScheduleId, /, *, url: Url = _DEFAULT_URL, api_key: ApiKey = None) -> None:
    """Resume a paused schedule. Times during the pause are left out."""

    async def change() -> Schedule:
        async with client_for(url, api_key) as client:
            return await client.resume_schedule(app_name=app, schedule_id=schedule_id)

    note(f"Resumed schedule {schedule_id!r}, next run: {_next_run(asyncio.run(change()))}")


@app.command(name="run")
def run_schedule(app: AppName, schedule_id: ScheduleId, /, *, url: Url = _DEFAULT_URL, api_key: ApiKey = None) -> None:
    """Start a run of a schedule now, without waiting for it. Its ID goes to standard output."""

    async def start() -> tuple[str, str]:
        async with client_for(url, api_key) as client:
            run = await client.run_schedule(app_name=app, schedule_id=schedule_id)
            return run.id, run.session_id

    run_id, session_id = asyncio.run(start())
    print_line(run_id)
    note(f"session {session_id}")


@app.command
def delete(app: AppName, schedule_id: ScheduleId, /, *, url: Url = _DEFAULT_URL, api_key: ApiKey = None) -> None:
    """Delete a schedule and its history. Its runs and sessions stay."""

    async def remove() -> None:
        async with client_for(url, api_key) as client:
            await client.delete_schedule(app_name=app, schedule_id=schedule_id)

    asyncio.run(remove())
    note(f"Deleted schedule {schedule_id!r}.")


def _seconds(name: str, text: str | None) -> float | None:
    """Raises CallerError."""
    from greenroom.schedules.times import read_time

    if text is None:
        return None
    try:
        return read_time(text)
    except ValueError as error:
        raise CallerError(f"{name} must be a time such as 2026-03-01T09:00:00+01:00: {error}") from None


def _row(schedule: Schedule) -> tuple[str, ...]:
    return schedule.id, schedule.user_id, _times(schedule), _next_run(schedule)


def _times(schedule: Schedule) -> str:
    if schedule.cron is not None:
        return f"{schedule.cron} {schedule.time_zone}"
    if schedule.every_seconds is not None:
        return f"every {schedule.every_seconds:g} s"
    return "once"


def _next_run(schedule: Schedule) -> str:
    if schedule.is_paused:
        return "paused"
    if schedule.next_at is None:
        return "none"
    return datetime.fromtimestamp(schedule.next_at).strftime("%Y-%m-%d %H:%M:%S")
