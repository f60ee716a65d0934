"""Times of schedules, compared with a walk over all minutes, and the changes of clocks in three time zones."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenroom.records.schedule import Schedule
from greenroom.schedules.times import last_time, next_time, with_jitter
from greenroom.schedules.validation import check_schedule

BERLIN = "Europe/Berlin"
NEW_YORK = "America/New_York"
LORD_HOWE = "Australia/Lord_Howe"
"""Its clocks change by half an hour."""

CHANGES = {
    BERLIN: ("2026-03-29", "2026-10-25"),
    NEW_YORK: ("2026-03-08", "2026-11-01"),
    LORD_HOWE: ("2026-04-05", "2026-10-04"),
}
DAYS = [(zone, day) for zone, days in CHANGES.items() for day in days]


def schedule(**fields: Any) -> Schedule:
    made = Schedule(user_id="ann", **fields)
    check_schedule(made)
    return made


def instant(zone: str, text: str) -> float:
    """fold: a time with `*` is the second one."""
    wall = datetime.fromisoformat(text.rstrip("*")).replace(tzinfo=ZoneInfo(zone), fold=text.endswith("*"))
    return wall.timestamp()


def times(made: Schedule, zone: str, day: str, *, days: int = 1) -> list[str]:
    """The times of a day, as clocks show them, with their offsets. Each is also found backwards."""
    found: list[str] = []
    at: float | None = math.nextafter(instant(zone, f"{day}T00:00"), 0.0)
    end = instant(zone, f"{datetime.fromisoformat(day) + timedelta(days=days):%Y-%m-%d}T00:00")
    while (at := next_time(made, at)) is not None and at < end:
        assert last_time(made, at) == at
        assert last_time(made, at + 0.5) == at
        found.append(datetime.fromtimestamp(at, ZoneInfo(zone)).strftime("%H:%M%z"))
    return found


@pytest.mark.parametrize(
    ("zone", "day", "cron", "expected"),
    [
        (BERLIN, "2026-03-29", "30 2 * * *", ["03:00+0200"]),
        (BERLIN, "2026-03-29", "0 2,3 * * *", ["03:00+0200"]),
        (BERLIN, "2026-03-29", "*/30 1-3 * * *", ["01:00+0100", "01:30+0100", "03:00+0200", "03:30+0200"]),
        (BERLIN, "2026-03-29", "59 1 * * *", ["01:59+0100"]),
        (BERLIN, "2026-10-25", "30 2 * * *", ["02:30+0200"]),
        (BERLIN, "2026-10-25", "0 2,3 * * *", ["02:00+0200", "03:00+0100"]),
        (BERLIN, "2026-10-25", "*/30 2-3 * * *", ["02:00+0200", "02:30+0200", "03:00+0100", "03:30+0100"]),
        (NEW_YORK, "2026-03-08", "30 2 * * *", ["03:00-0400"]),
        (NEW_YORK, "2026-03-08", "0 0 * * *", ["00:00-0500"]),
        (NEW_YORK, "2026-11-01", "30 1 * * *", ["01:30-0400"]),
        (NEW_YORK, "2026-11-01", "0 */2 * * *", [f"{h:02}:00-0{4 if h < 2 else 5}00" for h in range(0, 24, 2)]),
        (LORD_HOWE, "2026-10-04", "15 2 * * *", ["02:30+1100"]),
        (LORD_HOWE, "2026-10-04", "0,15,30 2 * * *", ["02:30+1100"]),
        (LORD_HOWE, "2026-10-04", "15 1-3 * * *", ["01:15+1030", "02:30+1100", "03:15+1100"]),
        (LORD_HOWE, "2026-04-05", "45 1 * * *", ["01:45+1100"]),
        (LORD_HOWE, "2026-04-05", "*/15 1 * * *", ["01:00+1100", "01:15+1100", "01:30+1100", "01:45+1100"]),
        (LORD_HOWE, "2026-04-05", "0 2 * * *", ["02:00+1030"]),
    ],
)
def test_a_time_on_the_wall_comes_once_where_clocks_change(zone: str, day: str, cron: str, expected: list[str]) -> None:
    assert times(schedule(cron=cron, time_zone=zone), zone, day) == expected


@pytest.mark.parametrize(("zone", "day"), DAYS)
def test_a_daily_time_comes_once_on_each_day_around_a_change(zone: str, day: str) -> None:
    before = f"{datetime.fromisoformat(day) - timedelta(days=3):%Y-%m-%d}"
    for hour in range(24):
        for minute in (0, 15, 45):
            assert len(times(schedule(cron=f"{minute} {hour} * * *", time_zone=zone), zone, before, days=7)) == 7


@pytest.mark.parametrize(("zone", "day"), DAYS)
def test_intervals_know_nothing_of_clocks(zone: str, day: str) -> None:
    start = instant(zone, f"{day}T00:00") - 86400
    made = schedule(every_seconds=1800, start_at=start)
    at = start - 1
    for number in range(150):
        at = next_time(made, at)
        assert at is not None
        assert at == start + number * 1800
        assert last_time(made, at + 1799) == at


def test_from_the_second_of_two_equal_times_on_the_next_one_is_later() -> None:
    made = schedule(cron="30 2 * * *", time_zone=BERLIN)
    second = instant(BERLIN, "2026-10-25T02:10*")
    assert next_time(made, second) == instant(BERLIN, "2026-10-26T02:30")
    assert last_time(made, second) == instant(BERLIN, "2026-10-25T02:30")
    assert last_time(made, second - 3600) == instant(BERLIN, "2026-10-24T02:30")


def test_a_day_that_a_zone_leaves_out_is_a_gap() -> None:
    made = schedule(cron="0 12 30 12 *", time_zone="Pacific/Apia")
    assert next_time(made, instant("Pacific/Apia", "2011-12-29T13:00")) == instant("Pacific/Apia", "2011-12-31T00:00")


MINUTES = 6 * 1440


@cache
def walls(zone: str, day: str) -> list[tuple[float, list[datetime]]]:
    """The minutes of six days, each with the times on the wall that belong to it: none where they are repeated, and
    those of the gap before it.
    """
    start = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(days=3)
    found: list[tuple[float, list[datetime]]] = []
    expected: datetime | None = None
    for number in range(MINUTES):
        at = start + timedelta(minutes=number)
        wall = at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        shown: list[datetime] = []
        following = wall if expected is None else expected
        while following <= wall:
            shown.append(following)
            following += timedelta(minutes=1)
        expected = following
        found.append((at.timestamp(), shown))
    return found


def field(first: int, last: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    """A field of an expression, and its numbers."""
    number = st.integers(first, last)
    steps = st.integers(1, last)
    every = frozenset(range(first, last + 1))
    return st.one_of(
        st.just(("*", every)),
        number.map(lambda n: (str(n), frozenset({n}))),
        steps.map(lambda n: (f"*/{n}", frozenset(range(first, last + 1, n)))),
        st.lists(number, min_size=1, max_size=4).map(lambda ns: (",".join(map(str, ns)), frozenset(ns))),
        st.tuples(number, number).map(
            lambda ends: (f"{min(ends)}-{max(ends)}", frozenset(range(min(ends), max(ends) + 1)))
        ),
    )


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    where=st.sampled_from(DAYS),
    minute=field(0, 59),
    hour=field(0, 23),
    weekday=st.one_of(st.just(("*", frozenset(range(7)))), field(0, 6)),
    begin=st.integers(0, MINUTES * 60),
)
def test_times_are_those_of_a_walk_over_all_minutes(
    where: tuple[str, str],
    minute: tuple[str, frozenset[int]],
    hour: tuple[str, frozenset[int]],
    weekday: tuple[str, frozenset[int]],
    begin: int,
) -> None:
    zone, day = where
    made = schedule(cron=f"{minute[0]} {hour[0]} * * {weekday[0]}", time_zone=zone)
    walked = [
        at
        for at, shown in walls(zone, day)
        if any(w.minute in minute[1] and w.hour in hour[1] and w.isoweekday() % 7 in weekday[1] for w in shown)
    ]
    start = walls(zone, day)[0][0] + begin
    end = walls(zone, day)[-1][0]
    after = [at for at in walked if at > start]
    found: list[float] = []
    at: float | None = start
    while len(found) < 200 and (at := next_time(made, at)) is not None and at <= end:
        found.append(at)
    assert found == after[:200]

    earlier = [at for at in walked if at <= start]
    if earlier:
        assert last_time(made, start) == earlier[-1]
    if len(earlier) > 1:
        assert last_time(made, math.nextafter(earlier[-1], 0.0)) == earlier[-2]


@settings(deadline=None)
@given(
    seconds=st.floats(1, 1e6),
    first=st.floats(0, 4e9),
    distance=st.floats(-1e6, 1e8),
)
def test_intervals_move_on_and_are_found_backwards(seconds: float, first: float, distance: float) -> None:
    made = schedule(every_seconds=seconds, start_at=first)
    at = next_time(made, max(first + distance, 0.0))
    assert at is not None
    assert at > first + distance
    assert at == first or at - (first + distance) <= seconds * (1 + 1e-6)
    assert last_time(made, at) == at
    following = next_time(made, at)
    assert following is not None
    assert following > at


def test_start_and_end_limit_the_times() -> None:
    made = schedule(cron="0 * * * *", start_at=7200.0, end_at=10800.0)
    assert next_time(made, 0.0) == 7200
    assert next_time(made, 7200.0) == 10800
    assert next_time(made, 10800.0) is None
    assert last_time(made, 1e9) == 10800
    assert last_time(made, 7199.0) is None
    once = schedule(at=5.0, start_at=6.0)
    assert next_time(once, 0.0) is None


def test_jitter_is_the_same_for_a_time_and_differs_between_times() -> None:
    made = schedule(every_seconds=60, jitter_seconds=30)
    delays = {with_jitter(made, 60.0 * number) - 60.0 * number for number in range(100)}
    assert len(delays) == 100
    assert all(0 <= delay < 30 for delay in delays)
    assert with_jitter(made, 60.0) == with_jitter(made, 60.0)
    assert max(delays) - min(delays) > 20


@pytest.mark.parametrize("cron", ["0 0 29 2 *", "0 0 L * *", "0 0 * * 5L", "0 0 * * MON#1", "0 9 * JAN,JUL MON-FRI"])
def test_rare_days_and_names_are_understood(cron: str) -> None:
    made = schedule(cron=cron)
    at = next_time(made, 1.7e9)
    assert at is not None
    assert last_time(made, at + 3600) == at
