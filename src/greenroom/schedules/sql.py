"""Schedules in a database, by statements that SQLite and PostgreSQL share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from greenroom.encryption.codec import Codec
from greenroom.errors import ScheduleConflict, TooManySchedules
from greenroom.records import wire
from greenroom.records.schedule import ScheduleRun, StoredSchedule
from greenroom.records.shard import SHARDS, Shards, shard_of
from greenroom.schedules.store import ScheduleLimits, ScheduleStore, kept_numbers, next_page_token, position_after

if TYPE_CHECKING:
    from greenroom.postgres.database import Database as PostgresDatabase
    from greenroom.sqlite.database import Database as SqliteDatabase

_decode = wire.decoder(StoredSchedule)
_decode_run = wire.decoder(ScheduleRun)

_COUNT_OF_APP = "SELECT count(*) FROM schedules WHERE app_name = ? AND is_of_app = 0"
_COUNT_OF_USER = "SELECT count(*) FROM schedules WHERE app_name = ? AND is_of_app = 0 AND user_id = ?"
_ADD = """
    INSERT INTO schedules (app_name, id, user_id, is_of_app, created_at, shard, next_at, revision, data)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (app_name, id) DO NOTHING RETURNING id
"""
_GET = "SELECT data FROM schedules WHERE app_name = ? AND id = ?"
_LIST = "SELECT app_name, id, data FROM schedules WHERE app_name = ? {terms} ORDER BY created_at DESC, id DESC LIMIT ?"
_LIST_OF_APPS = "SELECT app_name, id, data FROM schedules WHERE is_of_app = 1"
_UPDATE = """
    UPDATE schedules SET user_id = ?, is_of_app = ?, created_at = ?, shard = ?, next_at = ?, revision = ?, data = ?
    WHERE app_name = ? AND id = ? AND revision = ? RETURNING id
"""
_ADD_RUN = "INSERT INTO schedule_runs (app_name, schedule_id, number, data) VALUES (?, ?, ?, ?)"
_DELETE_OLD_RUNS = "DELETE FROM schedule_runs WHERE app_name = ? AND schedule_id = ? AND number <= ?"
_LIST_RUNS = (
    "SELECT number, data FROM schedule_runs WHERE app_name = ? AND schedule_id = ? ORDER BY number DESC LIMIT ?"
)
_DELETE_RUNS = "DELETE FROM schedule_runs WHERE app_name = ? AND schedule_id = ?"
_DELETE = "DELETE FROM schedules WHERE app_name = ? AND id = ? RETURNING id"
_DELETE_RUNS_OF_USER = """
    DELETE FROM schedule_runs WHERE app_name = ?
    AND schedule_id IN (SELECT id FROM schedules WHERE app_name = ? AND user_id = ? AND is_of_app = 0)
"""
_DELETE_USER = "DELETE FROM schedules WHERE app_name = ? AND user_id = ? AND is_of_app = 0"
LIST_DUE = "SELECT app_name, id, data FROM schedules WHERE next_at <= ? {and_in_shards} ORDER BY next_at LIMIT ?"
NEXT_TIME = "SELECT next_at FROM schedules WHERE next_at > ? {and_in_shards} ORDER BY next_at LIMIT 1"


class Transaction(Protocol):
    async def fetch(self, statement: str, *arguments: Any) -> Sequence[Any]: ...


class SqlScheduleStore(ScheduleStore):
    """In the database of the runs, which closes it."""

    def __init__(self, database: SqliteDatabase | PostgresDatabase) -> None:
        self._database = database

    async def add(self, schedule: StoredSchedule, limits: ScheduleLimits) -> None:
        async def write(transaction: Transaction) -> None:
            if not schedule.is_of_app:
                [(of_app,)] = await transaction.fetch(_COUNT_OF_APP, schedule.app_name)
                if of_app >= limits.per_app:
                    raise TooManySchedules(f"App {schedule.app_name!r}", limits.per_app)
                [(of_user,)] = await transaction.fetch(_COUNT_OF_USER, schedule.app_name, schedule.user_id)
                if of_user >= limits.per_user:
                    raise TooManySchedules(f"User {schedule.user_id!r}", limits.per_user)
            if not await transaction.fetch(
                _ADD, schedule.app_name, schedule.id, *_columns(self._database.codec, schedule)
            ):
                raise ScheduleConflict(schedule.id, "exists already")

        await self._database.transact(write)

    async def get(self, app_name: str, schedule_id: str) -> StoredSchedule | None:
        rows = await self._database.fetch(_GET, app_name, schedule_id)
        return self._decode(app_name, schedule_id, rows[0][0]) if rows else None

    async def list(
        self, *, app_name: str, user_id: str | None = None, limit: int = 100, page_token: str | None = None
    ) -> tuple[Sequence[StoredSchedule], str | None]:
        terms: str = ""
        arguments: list[str | float] = []
        if user_id is not None:
            terms += " AND user_id = ?"
            arguments.append(user_id)
        before = position_after(page_token)
        if before is not None:
            terms += " AND (created_at, id) < (?, ?)"
            arguments += before
        found = await self._select(_LIST.format(terms=terms), app_name, *arguments, limit + 1)
        page = found[:limit]
        return page, next_page_token(page) if len(page) < len(found) else None

    async def list_of_apps(self) -> Sequence[StoredSchedule]:
        return await self._select(_LIST_OF_APPS)

    async def update(self, schedule: StoredSchedule, entries: Sequence[ScheduleRun] = ()) -> bool:
        read_revision = schedule.revision
        number, last_to_delete = kept_numbers(schedule, entries)
        key = schedule.app_name, schedule.id
        changed = _copy_with(schedule, entries)

        async def write(transaction: Transaction) -> bool:
            if not await transaction.fetch(_UPDATE, *_columns(self._database.codec, changed), *key, read_revision):
                return False
            for offset, entry in enumerate(entries):
                run_key = *key, number + offset
                data = self._database.codec.encode(wire.encode(entry), "schedule_runs", *run_key)
                await transaction.fetch(_ADD_RUN, *run_key, data)
            if last_to_delete > 0:
                await transaction.fetch(_DELETE_OLD_RUNS, *key, last_to_delete)
            return True

        is_changed = await self._database.transact(write)
        if is_changed:
            schedule.revision = changed.revision
            schedule.history_size = changed.history_size
        return is_changed

    async def delete(self, app_name: str, schedule_id: str) -> bool:
        async def write(transaction: Transaction) -> bool:
            await transaction.fetch(_DELETE_RUNS, app_name, schedule_id)
            return bool(await transaction.fetch(_DELETE, app_name, schedule_id))

        return await self._database.transact(write)

    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        await self._database.execute_all(
            [(_DELETE_RUNS_OF_USER, (app_name, app_name, user_id)), (_DELETE_USER, (app_name, user_id))]
        )

    async def list_runs(self, app_name: str, schedule_id: str, *, limit: int = 100) -> Sequence[ScheduleRun]:
        rows = await self._database.fetch(_LIST_RUNS, app_name, schedule_id, limit)
        decode = self._database.codec.decode
        return [_decode_run(decode(data, "schedule_runs", app_name, schedule_id, number)) for number, data in rows]

    async def list_due(self, now: float, *, limit: int, shards: Shards | None = None) -> Sequence[StoredSchedule]:
        return await self._select(in_shards(LIST_DUE, shards), now, limit)

    async def next_time(self, after: float, *, shards: Shards | None = None) -> float | None:
        rows = await self._database.fetch(in_shards(NEXT_TIME, shards), after)
        return rows[0][0] if rows else None

    async def _select(self, query: str, *arguments: str | float) -> list[StoredSchedule]:
        return [self._decode(*row) for row in await self._database.fetch(query, *arguments)]

    def _decode(self, app_name: str, schedule_id: str, data: str) -> StoredSchedule:
        return _decode(self._database.codec.decode(data, "schedules", app_name, schedule_id))


def in_shards(query: str, shards: Shards | None) -> str:
    """Returns the query for the schedules of shards, or of all."""
    if shards is None or len(shards) == SHARDS:
        return query.format(and_in_shards="")
    numbers = ", ".join(map(str, sorted(shards))) or "NULL"
    return query.format(and_in_shards=f"AND shard IN ({numbers})")


def _copy_with(schedule: StoredSchedule, entries: Sequence[ScheduleRun]) -> StoredSchedule:
    """The schedule after a change that adds entries to its history."""
    return msgspec.structs.replace(
        schedule, revision=schedule.revision + 1, history_size=schedule.history_size + len(entries)
    )


def _columns(codec: Codec, schedule: StoredSchedule) -> tuple[str, int, float, int, float | None, int, str]:
    return (
        schedule.user_id,
        int(schedule.is_of_app),
        schedule.created_at,
        shard_of(schedule.key),
        schedule.next_at,
        schedule.revision,
        codec.encode(wire.encode(schedule), "schedules", schedule.app_name, schedule.id),
    )
