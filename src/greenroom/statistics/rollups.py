"""Sums by minute, hour and day.

Each write of ends of runs adds one entry to a journal, in the transaction of their records; a background task moves
entries into the sums of their minutes, hours and days, many at a time. An answer adds the entries that are left to the
sums. So a run costs one short insert, which waits for no other server, and the number of rows depends on the times and
on what runs, not on how many.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from greenroom.records import wire
from greenroom.statistics.figures import OTHER, Sum
from greenroom.statistics.run_figures import DAY, HOUR, MINUTE, Kind, RunFigures, SumKey, Sums, add_figures

MAX_NAMES = 500
"""Models, and tools, of an app on a day that have sums of their own; models may make up names of tools."""


class RowKey(NamedTuple):
    """A stored sum."""

    step: int
    """Its seconds."""
    kind: Kind
    time: int
    """Unix seconds of its begin."""
    app_name: str
    name: str


Rows: TypeAlias = dict[RowKey, Sum]

_encode = wire.encode
_decode_entry = wire.decoder(list[tuple[SumKey, Sum]])
_decode_sum = wire.decoder(Sum)


def steps_of(kind: Kind) -> tuple[int, ...]:
    """The steps at which sums of this kind are stored."""
    return (DAY,) if kind == "user" else (MINUTE, HOUR, DAY)


def write_entry(figures: Iterable[RunFigures]) -> str:
    """The journal's entry for the ends of some runs."""
    sums: Sums = {}
    add_figures(sums, figures)
    return _encode(list(sums.items())).decode()


def read_entries(entries: Iterable[str]) -> Sums:
    """The sums of entries of the journal."""
    sums: Sums = {}
    for entry in entries:
        for key, added in _decode_entry(entry.encode()):
            found = sums.get(key)
            if found is None:
                sums[key] = added
            else:
                found.add(added)
    return sums


def write_sum(one: Sum) -> str:
    return _encode(one).decode()


def read_sum(data: str) -> Sum:
    return _decode_sum(data.encode())


def rows_of(sums: Sums) -> Rows:
    """The rows to which sums are added, with what is added to each."""
    rows: Rows = {}
    for (kind, app_name, name, time), added in sums.items():
        for step in steps_of(kind):
            row = RowKey(step, kind, time // step * step, app_name, name)
            found = rows.get(row)
            if found is None:
                found = rows[row] = Sum()
            found.add(added)
    return rows


class DayOfApp(NamedTuple):
    """The models or the tools of an app on a day."""

    kind: Kind
    time: int
    app_name: str


def days_of_names(sums: Sums) -> set[DayOfApp]:
    """The days and apps whose names have a limit."""
    return {
        DayOfApp(kind, time // DAY * DAY, app_name) for kind, app_name, _, time in sums if kind in ("model", "tool")
    }


def limit_names(sums: Sums, known: Mapping[DayOfApp, set[str]]) -> Sums:
    """Sums in which names beyond the limit are replaced by OTHER.

    known: the stored names; those that are added are noted there.
    """
    limited: Sums = {}
    for key, added in sums.items():
        kind, app_name, name, time = key
        names = known.get(DayOfApp(kind, time // DAY * DAY, app_name))
        if names is not None and name not in names:
            if len(names) < MAX_NAMES:
                names.add(name)
            else:
                key = (kind, app_name, OTHER, time)
        found = limited.get(key)
        if found is None:
            limited[key] = added
        else:
            found.add(added)
    return limited
