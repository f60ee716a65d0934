"""All stores of schedules keep the contract, and find what is due by an index."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from greenroom.errors import InvalidRequest, ScheduleConflict, TooManySchedules
from greenroom.postgres.database import Database as PostgresDatabase
from greenroom.records.run import Caller
from greenroom.records.schedule import ScheduleRun, StoredSchedule
from greenroom.records.shard import SHARDS, Shards, shard_of
from greenroom.runs.memory_store import InMemoryRunStore
from greenroom.runs.postgres_store import PostgresRunStore
from greenroom.runs.sqlite_store import SqliteRunStore
from greenroom.schedules.sql import LIST_DUE, NEXT_TIME, in_shards
from greenroom.schedules.store import KEPT, ScheduleLimits, ScheduleStore
from greenroom.sqlite.database import Database as SqliteDatabase

LIMITS = ScheduleLimits(per_user=3, per_app=4)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ScheduleStore]:
    if request.param == "memory":
        runs = InMemoryRunStore()
    elif request.param == "sqlite":
        runs = SqliteRunStore(tmp_path / "runs.db")
    else:
        runs = PostgresRunStore(request.getfixturevalue("postgres_uri"))
    yield runs.schedules
    await runs.close()


def schedule(number: int = 1, **fields: Any) -> StoredSchedule:
    given: dict[str, Any] = {
        "id": f"s-{number}",
        "app_name": "desk",
        "user_id": "ann",
        "created_at": float(number),
        **fields,
    }
    return StoredSchedule(cron="0 9 * * *", **given)


async def added(store: ScheduleStore, *schedules: StoredSchedule) -> None:
    for one in schedules:
        await store.add(one, LIMITS)


async def read(store: ScheduleStore, number: int = 1) -> StoredSchedule:
    found = await store.get("desk", f"s-{number}")
    assert found is not None
    return found


def entry(number: int) -> ScheduleRun:
    return ScheduleRun(due_at=float(number), at=float(number), outcome="started", run_id=f"e-{number}")


async def test_a_schedule_comes_back_as_it_was(store: ScheduleStore) -> None:
    given = schedule(session_id="s", next_at=5.0, due_at=4.0, caller=Caller(user_id="ann", scopes=["run"]))
    await added(store, given)
    assert await read(store) == given
    assert await store.get("desk", "other") is None
    assert await store.get("other", "s-1") is None
    with pytest.raises(ScheduleConflict):
        await store.add(schedule(user_id="bob"), LIMITS)


async def test_of_two_changes_to_what_was_read_only_the_first_is_stored(store: ScheduleStore) -> None:
    await added(store, schedule())
    first, second = await read(store), await read(store)
    first.is_paused = True
    assert await store.update(first, [entry(1)])
    assert (first.revision, first.history_size) == (1, 1)
    assert not await store.update(second, [entry(2)])
    assert await read(store) == first
    assert await store.update(first, [entry(3)])
    assert [one.run_id for one in await store.list_runs("desk", "s-1")] == ["e-3", "e-1"]
    assert await store.delete("desk", "s-1")
    assert not await store.delete("desk", "s-1")
    assert not await store.update(first)
    assert await store.list_runs("desk", "s-1") == []


async def test_a_history_keeps_its_newest_entries(store: ScheduleStore) -> None:
    await added(store, schedule())
    changed = await read(store)
    assert await store.update(changed, [entry(number) for number in range(KEPT)])
    assert await store.update(changed, [entry(KEPT), entry(KEPT + 1)])
    kept = await store.list_runs("desk", "s-1", limit=2 * KEPT)
    assert [one.run_id for one in kept] == [f"e-{number}" for number in range(KEPT + 1, 1, -1)]
    assert len(await store.list_runs("desk", "s-1", limit=5)) == 5


async def test_lists_are_newest_first_and_paged(store: ScheduleStore) -> None:
    await added(store, *(schedule(n) for n in range(3)), schedule(3, user_id="bob"), schedule(4, app_name="other"))
    page, token = await store.list(app_name="desk", limit=2)
    assert [one.id for one in page] == ["s-3", "s-2"]
    rest, end = await store.list(app_name="desk", limit=2, page_token=token)
    assert ([one.id for one in rest], end) == (["s-1", "s-0"], None)
    assert [one.id for one in (await store.list(app_name="desk", user_id="bob"))[0]] == ["s-3"]
    with pytest.raises(InvalidRequest):
        await store.list(app_name="desk", page_token="x")


async def test_numbers_are_limited_but_of_what_apps_declare(store: ScheduleStore) -> None:
    await added(store, *(schedule(number) for number in range(3)))
    with pytest.raises(TooManySchedules):
        await store.add(schedule(3), LIMITS)
    await added(store, schedule(3, is_of_app=True), schedule(4, user_id="bob"))
    with pytest.raises(TooManySchedules):
        await store.add(schedule(5, user_id="bob"), LIMITS)
    assert [one.id for one in await store.list_of_apps()] == ["s-3"]

    await store.delete_user(app_name="desk", user_id="ann")
    assert [one.id for one in (await store.list(app_name="desk"))[0]] == ["s-4", "s-3"]


async def test_the_earliest_times_come_first(store: ScheduleStore) -> None:
    limits = ScheduleLimits()
    for number in range(20):
        await store.add(schedule(number, next_at=None if number % 5 == 0 else float(-number)), limits)
    assert [one.id for one in await store.list_due(-2.0, limit=3)] == ["s-19", "s-18", "s-17"]
    assert [one.id for one in await store.list_due(-18.0, limit=3)] == ["s-19", "s-18"]
    all_due = await store.list_due(-2.0, limit=100)
    assert len(all_due) == 15
    assert await store.next_time(-19.0) == -18
    assert await store.next_time(-18.5) == -18
    assert await store.next_time(-1.0) is None

    owned = Shards(range(SHARDS // 2))
    of_owned = [one for one in all_due if shard_of(one.key) in owned]
    assert await store.list_due(-2.0, limit=100, shards=owned) == of_owned
    assert await store.next_time(-100.0, shards=owned) == of_owned[0].next_at
    assert await store.list_due(-2.0, limit=100, shards=Shards()) == []
    assert await store.next_time(-100.0, shards=Shards()) is None


@pytest.mark.parametrize("query", [LIST_DUE, NEXT_TIME], ids=["due", "next"])
@pytest.mark.parametrize("shards", [None, range(SHARDS // 4)], ids=["all shards", "those of one of four servers"])
async def test_an_index_finds_what_is_due(query: str, shards: range | None, tmp_path: Path, postgres_uri: str) -> None:
    arguments = (100.0, 100) if query == LIST_DUE else (100.0,)
    query = in_shards(query, None if shards is None else Shards(shards))
    runs = SqliteRunStore(tmp_path / "runs.db")
    await added(runs.schedules, schedule(next_at=1.0))
    database = SqliteDatabase.open(tmp_path / "runs.db")
    plan = await database.fetch(f"EXPLAIN QUERY PLAN {query}", *arguments)
    (step,) = [row[3] for row in plan]  # no sort
    assert "INDEX schedules_by_next_time (next_at" in step
    await database.close()
    await runs.close()

    store = PostgresRunStore(postgres_uri)
    await added(store.schedules, schedule(next_at=1.0))
    postgres = PostgresDatabase.open(postgres_uri)
    await postgres.execute(
        "INSERT INTO schedules SELECT app_name, 'x' || n, user_id, 0, n, n % 256, n, 0, data"
        " FROM schedules, generate_series(1, 10000) AS n"
    )
    await postgres.execute("ANALYZE schedules")
    plan_text = "\n".join(row[0] for row in await postgres.fetch(f"EXPLAIN {query}", *arguments))
    assert "schedules_by_next_time" in plan_text, plan_text
    assert "Seq Scan" not in plan_text, plan_text
    await postgres.close()
    await store.close()
