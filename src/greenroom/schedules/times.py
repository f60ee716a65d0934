"""The times of a schedule.

A cron expression is about the clock on the wall of its time zone. Where that clock is put forward, a time that doesn't
exist becomes the first instant after the gap; where it is put back, a time that exists twice is the first one. Times
that fall together are one. In Europe/Berlin:

    2026-03-29, from 02:00 to 03:00    `30 2 * * *` and `0 3 * * *`: at 03:00; `*/30 2-3 * * *`: at 03:00 and 03:30
    2026-10-25, from 03:00 to 02:00    `30 2 * * *`: at the first 02:30 only; `*/30 * * * *`: not from the second 02:00
                                       on, until 03:00

An interval is about elapsed time, and clocks are nothing to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from zoneinfo import ZoneInfo

from greenroom.errors import InvalidRequest
from greenroom.records.schedule import Schedule

_MOST_REPEATED = timedelta(days=1)
"""The longest time by which a clock is put back."""


def next_time(schedule: Schedule, after: float) -> float | None:
    """The first time after `after`, without jitter; None if there is none. The schedule must be valid."""
    if schedule.start_at is not None:
        after = max(after, math.nextafter(schedule.start_at, 0.0))
    if schedule.at is not None:
        time = schedule.at if schedule.at > after else None
    elif schedule.every_seconds is not None:
        time = _next_of_interval(schedule, schedule.every_seconds, after)
    else:
        time = _next_of_cron(schedule.cron or "", zone_of(schedule.time_zone), after)
    return None if time is None or (schedule.end_at is not None and time > schedule.end_at) else time


def last_time(schedule: Schedule, until: float) -> float | None:
    """The last time that isn't after `until`, without jitter; None if there is none. The schedule must be valid."""
    if schedule.end_at is not None:
        until = min(until, schedule.end_at)
    if schedule.at is not None:
        time = schedule.at if schedule.at <= until else None
    elif schedule.every_seconds is not None:
        time = _last_of_interval(schedule, schedule.every_seconds, until)
    else:
        time = _last_of_cron(schedule.cron or "", zone_of(schedule.time_zone), until)
    return None if time is None or (schedule.start_at is not None and time < schedule.start_at) else time


def with_jitter(schedule: Schedule, due_at: float) -> float:
    """The time at which the run of `due_at` starts: the same whenever, and by whatever process, it is asked for."""
    if not schedule.jitter_seconds:
        return due_at
    digest = sha256(f"{schedule.app_name}\0{schedule.id}\0{due_at!r}".encode("utf-8", "surrogatepass")).digest()
    return due_at + schedule.jitter_seconds * int.from_bytes(digest[:6]) / (1 << 48)


def zone_of(name: str) -> ZoneInfo:
    """Raises InvalidRequest for a name that isn't in the IANA database."""
    try:
        return ZoneInfo(name)
    except (ValueError, KeyError, OSError):  # of a strange path, of none, of a folder
        message = f"There is no time zone {name!r}: use a name of the IANA database, such as 'Europe/Berlin'"
        raise InvalidRequest(message, location=("body", "timeZone")) from None


def read_time(text: str) -> float:
    """The Unix seconds of a date and time with its offset, such as `2026-03-01T09:00:00+01:00`. Raises ValueError."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no offset, such as +01:00, or Z")
    return time.timestamp()


def _first_of_interval(schedule: Schedule, seconds: float) -> float:
    return schedule.start_at if schedule.start_at is not None else schedule.created_at + seconds


def _next_of_interval(schedule: Schedule, seconds: float, after: float) -> float:
    first = _first_of_interval(schedule, seconds)
    if after < first:
        return first
    number = math.floor((after - first) / seconds)
    while (time := first + number * seconds) <= after:  # twice at most: the quotient is rounded
        number += 1
    return time


def _last_of_interval(schedule: Schedule, seconds: float, until: float) -> float | None:
    first = _first_of_interval(schedule, seconds)
    number = math.floor((until - first) / seconds) + 1
    while (time := first + number * seconds) > until:
        number -= 1
    return time if number >= 0 else None


def _next_of_cron(expression: str, zone: ZoneInfo, after: float) -> float | None:
    """Instants never decrease with the times on the wall, so those up to the time at `after` aren't later than it."""
    start = datetime.fromtimestamp(math.floor(after), zone).replace(tzinfo=None)
    for wall_time in _wall_times(expression, start):
        instant = _instant(wall_time, zone)
        if instant > after:
            return instant
    return None


def _last_of_cron(expression: str, zone: ZoneInfo, until: float) -> float | None:
    at_until = datetime.fromtimestamp(math.floor(until), zone)
    start = at_until.replace(tzinfo=None, fold=0) + timedelta(seconds=1)
    if at_until.fold:
        start += _MOST_REPEATED  # times on the wall later than this one were before it
    for wall_time in _wall_times(expression, start, is_backwards=True):
        instant = _instant(wall_time, zone)
        if instant <= until:
            return instant
    return None


def _wall_times(expression: str, start: datetime, *, is_backwards: bool = False) -> Iterator[datetime]:
    """The times of an expression after `start`, or backwards before it, without a time zone."""
    from cronsim import CronSim  # most servers have no cron expression

    return CronSim(expression, start, reverse=is_backwards)


def _instant(wall_time: datetime, zone: ZoneInfo) -> float:
    """The first instant at which clocks show a time; of a time that they leave out, the first one after it."""
    instant = wall_time.replace(tzinfo=zone).timestamp()
    if datetime.fromtimestamp(instant, zone).replace(tzinfo=None) == wall_time:
        return instant

    # The clock is put forward between the two readings of a time that doesn't exist.
    low = int(wall_time.replace(tzinfo=zone, fold=1).timestamp())
    high = int(instant)
    offset = _offset(high, zone)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(middle, zone) == offset:
            high = middle
        else:
            low = middle
    return float(high)


def _offset(instant: float, zone: ZoneInfo) -> timedelta:
    return datetime.fromtimestamp(instant, UTC).astimezone(zone).utcoffset() or timedelta()
