"""Statistics in a database, by statements that SQLite and PostgreSQL share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from greenroom.statistics.rollups import (
    DayOfApp,
    RowKey,
    Rows,
    days_of_names,
    limit_names,
    read_entries,
    read_sum,
    rows_of,
    write_sum,
)
from greenroom.statistics.run_figures import DAY, HOUR, MINUTE, Kind
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

if TYPE_CHECKING:
    from greenroom.postgres.database import Database as PostgresDatabase
    from greenroom.sqlite.database import Database as SqliteDatabase

_ENTRIES = 500
"""Entries of the journal that are moved in one transaction."""
_MAX_FOLDS = 100
"""Transactions in a row."""

ADD_ENTRY = "INSERT INTO statistics_journal (data) VALUES (?)"

_TAKE_ENTRIES = f"""
    DELETE FROM statistics_journal WHERE id IN (SELECT id FROM statistics_journal ORDER BY id LIMIT {_ENTRIES})
    RETURNING data
"""
_ENTRIES_LEFT = "SELECT data FROM statistics_journal"
_NAMES = "SELECT name FROM statistics WHERE step = ? AND kind = ? AND time = ? AND app_name = ?"
_ROW = "SELECT data FROM statistics WHERE step = ? AND kind = ? AND time = ? AND app_name = ? AND name = ?"
_SAVE_ROW = """
    INSERT INTO statistics (step, kind, time, app_name, name, data) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (step, kind, time, app_name, name) DO UPDATE SET data = excluded.data
"""
_ROWS = """
    SELECT app_name, name, time, data FROM statistics WHERE step = ? AND kind = ? AND time >= ? AND time < ?
"""
_PRUNE = (
    "DELETE FROM statistics WHERE step = ? AND time < ?",
    "DELETE FROM statistics_load WHERE step = ? AND time < ?",
)
_DELETE_USER = "DELETE FROM statistics WHERE kind = 'user' AND app_name = ? AND name = ?"

_NUMBERS = LoadSample._fields
_LOAD_COLUMNS = ", ".join([*_NUMBERS, *(f"{name}_maximum" for name in _NUMBERS)])
_ADD_LOAD = f"""
    INSERT INTO statistics_load (step, app_name, time, samples, {_LOAD_COLUMNS})
    VALUES (?, ?, ?, 1{", ?" * 2 * len(_NUMBERS)})
    ON CONFLICT (step, app_name, time) DO
"""
_ADD_MINUTE = f"{_ADD_LOAD} NOTHING RETURNING time"
_ADD_TO_LOAD = f"""
    {_ADD_LOAD} UPDATE SET samples = statistics_load.samples + 1,
    {", ".join(f"{name} = statistics_load.{name} + excluded.{name}" for name in _NUMBERS)},
    {
    ", ".join(
        f"{name}_maximum = CASE WHEN excluded.{name}_maximum > statistics_load.{name}_maximum"
        f" THEN excluded.{name}_maximum ELSE statistics_load.{name}_maximum END"
        for name in _NUMBERS
    )
}
"""
_LOAD_ROWS = f"""
    SELECT app_name, time, samples, {_LOAD_COLUMNS} FROM statistics_load
    WHERE step = ? AND time >= ? AND time < ? """


class Transaction(Protocol):
    async def fetch(self, statement: str, *arguments: Any) -> Sequence[Any]: ...


class SqlStatisticsStore(StatisticsStore):
    """In the database of the runs, which closes it."""

    def __init__(
        self, database: SqliteDatabase | PostgresDatabase, *, wait_for_writes: Callable[[], Awaitable[None]]
    ) -> None:
        """Creates the store. wait_for_writes: returns when the records that were queued before are stored."""
        self._database = database
        self._wait_for_writes = wait_for_writes

    async def rows(self, kind: Kind, period: Period, *, app_names: Sequence[str] | None, name: str | None) -> list[Row]:
        step = stored_step(period)
        terms = [_ROWS]
        arguments: list[Any] = [step, kind, period.start, period.end]
        if app_names is not None:
            terms.append(_one_of("app_name", app_names))
            arguments += app_names
        if name is not None:
            terms.append("AND name = ?")
            arguments.append(name)
        query = " ".join(terms)

        async def read(transaction: Transaction) -> tuple[Sequence[Any], Sequence[Any]]:
            return await transaction.fetch(query, *arguments), await transaction.fetch(_ENTRIES_LEFT)

        await self._wait_for_writes()
        stored, left = await self._database.snapshot(read)
        return await asyncio.to_thread(_read, stored, left, RowFilter(step, kind, period, app_names, name))

    async def fold(self) -> None:
        for _ in range(_MAX_FOLDS):
            if await self._database.transact(self._fold) < _ENTRIES:
                return

    async def _fold(self, transaction: Transaction) -> int:
        """Moves some entries of the journal. Returns their number."""
        entries = [data for (data,) in await transaction.fetch(_TAKE_ENTRIES)]
        if entries:
            sums = read_entries(entries)
            known: dict[DayOfApp, set[str]] = {}
            for day in sorted(days_of_names(sums)):
                known[day] = {name for (name,) in await transaction.fetch(_NAMES, DAY, *day)}
            await self._add(transaction, rows_of(limit_names(sums, known)))
        return len(entries)

    async def _add(self, transaction: Transaction, rows: Rows) -> None:
        """Adds sums to the rows."""
        for key, added in sorted(rows.items(), key=itemgetter(0)):
            stored = await transaction.fetch(_ROW, *key)
            if stored:
                added.add(read_sum(stored[0][0]))
            await transaction.fetch(_SAVE_ROW, *key, write_sum(added))

    async def prune(self, now: float, retention: Retention) -> None:
        ends = retention.ends(now)

        async def delete(transaction: Transaction) -> None:
            for step, before in ends:
                for statement in _PRUNE:
                    await transaction.fetch(statement, step, before)

        await self._database.transact(delete)

    async def delete_user(self, app_name: str, user_id: str) -> None:
        await self.fold()
        await self._database.execute(_DELETE_USER, app_name, user_id)

    async def add_load(self, minute: int, load: Mapping[str, LoadSample]) -> None:
        async def add(transaction: Transaction) -> None:
            total = load[ALL_APPS]
            if not await transaction.fetch(_ADD_MINUTE, MINUTE, ALL_APPS, minute, *total, *total):
                return  # another server has added it
            for app_name, sample in sorted(load.items()):
                for step in (MINUTE, HOUR, DAY):
                    if step != MINUTE or app_name != ALL_APPS:
                        at = minute // step * step
                        await transaction.fetch(_ADD_TO_LOAD, step, app_name, at, *sample, *sample)

        await self._database.transact(add)

    async def load_rows(self, period: Period, *, app_names: Sequence[str]) -> list[LoadRow]:
        names = [ALL_APPS, *app_names]
        query = f"{_LOAD_ROWS} {_one_of('app_name', names)}"
        rows = await self._database.fetch(query, stored_step(period), period.start, period.end, *names)
        count = len(_NUMBERS)
        return [
            LoadRow(app_name, at, samples, LoadSample(*numbers[:count]), LoadSample(*numbers[count:]))
            for app_name, at, samples, *numbers in rows
        ]


class RowFilter(NamedTuple):
    """The sums that a query selects."""

    step: int
    kind: Kind
    period: Period
    app_names: Sequence[str] | None
    name: str | None

    def includes(self, key: RowKey) -> bool:
        return (
            (key.step, key.kind) == (self.step, self.kind)
            and self.period.start <= key.time < self.period.end
            and (self.app_names is None or key.app_name in self.app_names)
            and (self.name is None or key.name == self.name)
        )


def _read(stored: Sequence[Any], left: Sequence[Any], where: RowFilter) -> list[Row]:
    """The stored sums, and those of the journal."""
    rows = [Row(app_name, name, at, read_sum(data)) for app_name, name, at, data in stored]
    for key, one in rows_of(read_entries(data for (data,) in left)).items():
        if where.includes(key):
            rows.append(Row(key.app_name, key.name, key.time, one))
    return rows


def _one_of(column: str, values: Sequence[str]) -> str:
    return f"AND {column} IN ({', '.join('?' * len(values)) or 'NULL'})"
