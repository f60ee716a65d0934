"""Statistics that are forgotten with the process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from greenroom.statistics.figures import Sum
from greenroom.statistics.rollups import Rows, days_of_names, limit_names, rows_of
from greenroom.statistics.run_figures import DAY, HOUR, MINUTE, Kind, RunFigures, Sums, add_figures
from greenroom.statistics.store import (
    ALL_APPS,
    LoadRow,
    LoadSample,
    Period,
    Retention,
    Row,
    StatisticsStore,
    stored_step,
)

_PENDING = 1000
"""Figures of runs that are added to the sums together."""


class InMemoryStatisticsStore(StatisticsStore):
    def __init__(self) -> None:
        self._pending: list[RunFigures] = []
        self._rows: Rows = {}
        self._names: dict[tuple[Kind, int, str], set[str]] = {}
        self._load: dict[tuple[int, str, int], LoadRow] = {}

    def add(self, figures: Sequence[RunFigures]) -> None:
        """Adds what a run adds."""
        self._pending += figures
        if len(self._pending) >= _PENDING:
            self._fold()

    def _fold(self) -> None:
        sums: Sums = {}
        add_figures(sums, self._pending)
        self._pending.clear()

        known = {day: self._names.setdefault(day, set()) for day in days_of_names(sums)}
        for row, added in rows_of(limit_names(sums, known)).items():
            self._rows.setdefault(row, Sum()).add(added)

    async def rows(self, kind: Kind, period: Period, *, app_names: Sequence[str] | None, name: str | None) -> list[Row]:
        self._fold()
        step = stored_step(period)
        return [
            Row(key.app_name, key.name, key.time, _copy_of(one))
            for key, one in self._rows.items()
            if key.step == step
            and key.kind == kind
            and period.start <= key.time < period.end
            and (app_names is None or key.app_name in app_names)
            and (name is None or key.name == name)
        ]

    async def fold(self) -> None:
        self._fold()

    async def prune(self, now: float, retention: Retention) -> None:
        for step, before in retention.ends(now):
            for key in [key for key in self._rows if key.step == step and key.time < before]:
                del self._rows[key]
            for load_key in [key for key in self._load if key[0] == step and key[2] < before]:
                del self._load[load_key]
        for day in [day for day in self._names if day[1] < now - 2 * DAY]:
            del self._names[day]

    async def delete_user(self, app_name: str, user_id: str) -> None:
        self._fold()
        for key in [key for key in self._rows if (key.kind, key.app_name, key.name) == ("user", app_name, user_id)]:
            del self._rows[key]

    async def add_load(self, minute: int, load: Mapping[str, LoadSample]) -> None:
        if (MINUTE, ALL_APPS, minute) in self._load:
            return
        for app_name, sample in load.items():
            for step in (MINUTE, HOUR, DAY):
                at = minute // step * step
                earlier = self._load.get((step, app_name, at), LoadRow(app_name, at, 0, LoadSample(), LoadSample()))
                self._load[step, app_name, at] = LoadRow(
                    app_name,
                    at,
                    earlier.samples + 1,
                    LoadSample(*(total + more for total, more in zip(earlier.total, sample, strict=True))),
                    LoadSample(*(max(most, more) for most, more in zip(earlier.maximum, sample, strict=True))),
                )

    async def load_rows(self, period: Period, *, app_names: Sequence[str]) -> list[LoadRow]:
        step = stored_step(period)
        return [
            row
            for (of_step, app_name, at), row in self._load.items()
            if of_step == step and period.start <= at < period.end and app_name in (ALL_APPS, *app_names)
        ]


def _copy_of(one: Sum) -> Sum:
    copied = Sum()
    copied.add(one)
    return copied
