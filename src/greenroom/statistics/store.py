"""The contract of a store of statistics, and answers to queries."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from greenroom.errors import InvalidRequest
from greenroom.records.statistics import (
    Figures,
    Level,
    LoadPoint,
    LoadStatistics,
    Statistics,
    StatisticsGroup,
    StatisticsGrouping,
    StatisticsPoint,
)
from greenroom.statistics.figures import Sum
from greenroom.statistics.run_figures import DAY, HOUR, MINUTE, Kind

STEPS = (MINUTE, 5 * MINUTE, HOUR, DAY)

MAX_POINTS = 1500
"""Of a group."""
MAX_POINTS_OF_GROUPS = 15_000
DEFAULT_MAX_POINTS = 500
"""Of a group, where the request names no step."""

DEFAULT_GROUPS = 10
MAX_GROUPS = 50

ALL_APPS = ""
"""In place of an app's name, in the load of all apps."""


@dataclass(frozen=True, kw_only=True)
class Retention:
    """The days for which sums are kept; the sums of longer steps have what those of shorter ones had."""

    minutes: float = 14
    hours: float = 400
    days: float = 3650

    def ends(self, now: float) -> list[tuple[int, int]]:
        """Each step with the Unix seconds before which its sums are deleted."""
        kept = ((MINUTE, self.minutes), (HOUR, self.hours), (DAY, self.days))
        return [(step, int(now - days * DAY)) for step, days in kept]


class Row(NamedTuple):
    """A sum of a step, at the beginning of which it is."""

    app_name: str
    name: str
    time: int
    sum: Sum


class LoadSample(NamedTuple):
    """Numbers of one minute, or sums of several."""

    running: int = 0
    queued: int = 0
    open_requests: int = 0
    replicas: int = 0


class LoadRow(NamedTuple):
    app_name: str
    """ALL_APPS for the sum of all apps."""
    time: int
    samples: int
    """The number of minutes; of an app, only those in which it had something."""
    total: LoadSample
    maximum: LoadSample


class Period(NamedTuple):
    start: int
    end: int
    step: int

    @property
    def points(self) -> int:
        return (self.end - self.start) // self.step


@dataclass(frozen=True, kw_only=True)
class StatisticsQuery:
    """A query, as a caller asks it."""

    start: float | None = None
    end: float | None = None
    step: int | None = None
    group_by: StatisticsGrouping | None = None
    app_names: Sequence[str] | None = None
    """None: all apps."""
    user_id: str | None = None
    model: str | None = None
    tool: str | None = None
    limit: int | None = None

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of sums that answer it. Raises InvalidRequest when none do."""
        chosen: list[Kind] = []
        if self.user_id is not None or self.group_by == "user":
            chosen.append("user")
        if self.model is not None or self.group_by == "model":
            chosen.append("model")
        if self.tool is not None or self.group_by == "tool":
            chosen.append("tool")
        if len(chosen) > 1:
            raise InvalidRequest(
                f"Figures are not kept by {chosen[0]} and {chosen[1]} together", location=("query", chosen[1])
            )
        return tuple(chosen) or ("run", "model", "tool")

    @property
    def name(self) -> str | None:
        """Of the user, model or tool; None: of all."""
        return next((name for name in (self.user_id, self.model, self.tool) if name is not None), None)

    def groups_in(self, period: Period) -> int:
        """The maximum number of groups. Raises InvalidRequest if their points would be too many."""
        if self.group_by is None:
            return 1
        fitting = max(MAX_POINTS_OF_GROUPS // max(period.points, 1), 1)
        if self.limit is None:
            return min(DEFAULT_GROUPS, fitting)
        limit = min(self.limit, MAX_GROUPS)
        if limit > fitting:
            raise InvalidRequest(
                f"{limit} groups with {period.points} points are more than {MAX_POINTS_OF_GROUPS} points: use a longer "
                "step or a lower limit",
                location=("query", "limit"),
            )
        return limit


def period_of(start: float | None, end: float | None, step: int | None, *, now: float, by_user: bool = False) -> Period:
    """The period of a query. Raises InvalidRequest.

    by_user: for figures of users, which are kept by day.
    """
    last = now if end is None else end
    if start is None:
        start = last - (30 * DAY if by_user else DAY)
    first = start
    if first >= last:
        raise InvalidRequest("start must be before end", location=("query", "start"))
    if by_user and step is not None and step < DAY:
        raise InvalidRequest("Figures of users are kept by day: step must be 86400", location=("query", "step"))
    if step is None:
        fitting = (one for one in STEPS if (last - first) / one <= DEFAULT_MAX_POINTS)
        step = DAY if by_user else next(fitting, DAY)

    period = Period(int(first // step) * step, -int(-last // step) * step, step)
    if period.points > MAX_POINTS:
        raise InvalidRequest(
            f"There are {period.points} points, more than {MAX_POINTS}: use a longer step or a shorter period",
            location=("query", "step"),
        )
    return period


class StatisticsStore(ABC):
    """Sums of figures over time, kept beside the runs.

    What runs add is written with their records, by the store of runs.
    """

    @abstractmethod
    async def rows(self, kind: Kind, period: Period, *, app_names: Sequence[str] | None, name: str | None) -> list[Row]:
        """Sums of a kind in the period, several for a time of a key perhaps. Those of five minutes are by minute.

        app_names, name: only of these; None: of all.
        """

    @abstractmethod
    async def fold(self) -> None:
        """Moves what runs have added since into the sums. Does nothing while another server does it."""

    @abstractmethod
    async def prune(self, now: float, retention: Retention) -> None:
        """Deletes sums that are no longer kept."""

    @abstractmethod
    async def delete_user(self, app_name: str, user_id: str) -> None:
        """Deletes the sums of a user."""

    @abstractmethod
    async def add_load(self, minute: int, load: Mapping[str, LoadSample]) -> None:
        """Adds the load of a minute by app, unless another server has added it.

        minute: Unix seconds of its begin. load: with ALL_APPS, and apps that have something.
        """

    @abstractmethod
    async def load_rows(self, period: Period, *, app_names: Sequence[str]) -> list[LoadRow]:
        """The load in the period, with that of ALL_APPS. Those of five minutes are by minute."""

    async def query(self, query: StatisticsQuery, *, currency: str, now: float | None = None) -> Statistics:
        """Answers a query. now: Unix seconds, by default the present. Raises InvalidRequest."""
        kinds = query.kinds
        now = time.time() if now is None else now
        period = period_of(query.start, query.end, query.step, now=now, by_user="user" in kinds)
        limit = query.groups_in(period)
        rows: dict[Kind, list[Row]] = {}
        for kind in kinds:
            rows[kind] = await self.rows(kind, period, app_names=query.app_names, name=query.name)
        return await asyncio.to_thread(_answer, rows, period, query.group_by, limit=limit, currency=currency)

    async def query_load(self, period: Period, *, app_names: Sequence[str] | None) -> LoadStatistics:
        """The load of all servers. app_names: only of these apps; None: of all."""
        rows = await self.load_rows(period, app_names=app_names or ())
        points = _load_points(rows, period, of_apps=app_names is not None)
        return LoadStatistics(start=period.start, end=period.end, step=period.step, points=points)


class _Group:
    """The sums of a group."""

    def __init__(self) -> None:
        self.total = Sum()
        self.points: dict[int, Sum] = {}

    def add(self, time: int, added: Sum) -> None:
        point = self.points.get(time)
        if point is None:
            point = self.points[time] = Sum()
        point.add(added)

    def add_group(self, other: _Group) -> None:
        self.total.add(other.total)
        for at, added in other.points.items():
            self.add(at, added)

    def sum_up(self) -> None:
        for point in self.points.values():
            self.total.add(point)

    def record(self, key: str | None) -> StatisticsGroup:
        points = [StatisticsPoint(time=at, **one.fields()) for at, one in sorted(self.points.items())]
        return StatisticsGroup(key=key, total=Figures(**self.total.fields()), points=points)


def _answer(
    rows: Mapping[Kind, Iterable[Row]],
    period: Period,
    group_by: StatisticsGrouping | None,
    *,
    limit: int,
    currency: str,
) -> Statistics:
    """An answer to a query. rows: by the kinds of sums that answer it."""
    by_key: dict[str | None, _Group] = {}
    is_of_runs = len(rows) > 1
    for kind, of_kind in rows.items():
        for row in of_kind:
            added = row.sum
            if is_of_runs and kind != "run":  # beside runs, calls have neither errors nor durations
                added.errors = None
                added.duration = None
            key = _key_of(row, group_by)
            group = by_key.get(key)
            if group is None:
                group = by_key[key] = _Group()
            group.add(row.time // period.step * period.step, added)

    for group in by_key.values():
        group.sum_up()
    if group_by is None:
        by_key.setdefault(None, _Group())
    ordered = sorted(by_key.items(), key=lambda item: (-item[1].total.weight, item[0] or ""))
    others: _Group | None = None
    for _, group in ordered[limit:]:
        others = others or _Group()
        others.add_group(group)
    return Statistics(
        currency=currency,
        start=period.start,
        end=period.end,
        step=period.step,
        groups=[group.record(key) for key, group in ordered[:limit]],
        others=others.record(None) if others is not None else None,
        other_groups=max(len(ordered) - limit, 0),
    )


def _key_of(row: Row, group_by: StatisticsGrouping | None) -> str | None:
    """The group of a sum."""
    if group_by is None:
        return None
    return row.app_name if group_by == "app" else row.name


def _load_points(rows: Iterable[LoadRow], period: Period, *, of_apps: bool) -> list[LoadPoint]:
    samples: dict[int, int] = {}
    totals: dict[int, list[int]] = {}
    maxima: dict[int, dict[str, list[int]]] = {}
    for row in rows:
        at = row.time // period.step * period.step
        if row.app_name == ALL_APPS:
            samples[at] = samples.get(at, 0) + row.samples
        if of_apps == (row.app_name == ALL_APPS):
            continue
        total = totals.setdefault(at, [0] * len(LoadSample._fields))
        maximum = maxima.setdefault(at, {}).setdefault(row.app_name, [0] * len(LoadSample._fields))
        for position, (added, most) in enumerate(zip(row.total, row.maximum, strict=True)):
            total[position] += added
            maximum[position] = max(maximum[position], most)

    points: list[LoadPoint] = []
    for at, count in sorted(samples.items()):
        levels = [
            Level(
                average=(totals[at][position] if at in totals else 0) / count,
                maximum=sum(of_app[position] for of_app in maxima.get(at, {}).values()),
            )
            for position in range(len(LoadSample._fields))
        ]
        running, queued, open_requests, replicas = levels
        points.append(
            LoadPoint(
                time=at,
                running=running,
                queued=queued,
                open_requests=open_requests,
                replicas=None if of_apps else replicas,
            )
        )
    return points


def stored_step(period: Period) -> int:
    """The longest step at which sums are stored that has the points of a period."""
    return next(step for step in (DAY, HOUR, MINUTE) if period.step % step == 0)


def minute_of(now: float | None = None) -> int:
    """Unix seconds of the begin of a minute, by default the present one."""
    return int((time.time() if now is None else now) // MINUTE) * MINUTE
