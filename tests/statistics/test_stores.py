"""All stores of statistics keep the contract: what is counted, once, is in the answers, before and after it is folded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from greenroom.errors import InvalidRequest
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.event import Event
from greenroom.records.run import Run, RunStatus
from greenroom.records.statistics import Statistics
from greenroom.runs.memory_store import InMemoryRunStore
from greenroom.runs.postgres_store import PostgresRunStore
from greenroom.runs.sqlite_store import SqliteRunStore
from greenroom.runs.store import RunStore
from greenroom.statistics.figures import OTHER
from greenroom.statistics.rollups import MAX_NAMES
from greenroom.statistics.run_figures import Kind, RunFigures
from greenroom.statistics.store import ALL_APPS, LoadSample, Retention, StatisticsQuery, period_of
from greenroom.usage.prices import default_prices

NOW = 1_800_000_000.0
DAY = 86400


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def runs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunStore]:
    if request.param == "memory":
        store: RunStore = InMemoryRunStore()
    elif request.param == "sqlite":
        store = SqliteRunStore(tmp_path / "runs.db")
    else:
        store = PostgresRunStore(request.getfixturevalue("postgres_uri"))
    yield store
    await store.close()


def ended(number: int, *, app: str = "desk", user: str = "ann", ended_at: float = NOW, tool: str = "") -> RunFigures:
    """A run that has ended, with a call of a tool if it is given."""
    run = Run(
        id=f"r-{number}", app_name=app, user_id=user, session_id="s", status=RunStatus.SUCCEEDED,
        created_at=ended_at - 1, ended_at=ended_at,
    )  # fmt: skip
    events: list[Event] = []
    if tool:
        content = Content(role="model", parts=[Part(function_call=FunctionCall(id="c", name=tool))])
        events = [Event(author="desk", invocation_id=run.id, timestamp=ended_at, content=content)]
    RUNS[run.id] = run
    return RunFigures(run, events, has_ended=True, prices=default_prices())


RUNS: dict[str, Run] = {}


async def count(runs: RunStore, *figures: RunFigures) -> None:
    await asyncio.gather(*(runs.save(RUNS[one.run_id], figures=(one,)) for one in figures))


async def ask(runs: RunStore, **options: Any) -> Statistics:
    return await runs.statistics.query(StatisticsQuery(**options), currency="USD", now=NOW + 60)


async def total_of(runs: RunStore, **options: Any) -> int:
    return sum((await ask(runs, **options)).groups[0].total.runs.values())


async def test_groups_are_ordered_by_runs_and_the_rest_is_summed(runs: RunStore) -> None:
    figures = [ended(n, app=app) for n, app in enumerate(["a", "b", "b", "c", "c", "c"])]
    await count(runs, *figures)
    await runs.statistics.fold()
    await count(runs, ended(6, app="c"))
    answer = await ask(runs, group_by="app", limit=2)
    assert [(group.key, group.total.runs) for group in answer.groups] == [
        ("c", {"succeeded": 4}),
        ("b", {"succeeded": 2}),
    ]
    assert answer.others is not None
    assert answer.others.total.runs == {"succeeded": 1}
    assert answer.other_groups == 1
    assert await total_of(runs) == 7
    assert await total_of(runs, app_names=["a", "b"]) == 3
    assert await total_of(runs, app_names=[]) == 0


async def test_all_steps_have_the_same_sums(runs: RunStore) -> None:
    await count(runs, *(ended(n, ended_at=NOW - 400 * n) for n in range(100)))
    for _ in range(2):
        for step in (60, 300, 3600, DAY):
            answer = await ask(runs, start=NOW - 50_000, step=step)
            assert answer.groups[0].total.runs == {"succeeded": 100}
            assert all(point.time % step == 0 for point in answer.groups[0].points)
        await runs.statistics.fold()


async def test_the_number_of_sums_does_not_depend_on_the_number_of_runs(runs: RunStore) -> None:
    async def number_of_sums() -> int:
        kinds: list[Kind] = ["run", "model", "tool", "user"]
        periods = [period_of(NOW - 3600, NOW + 60, step, now=NOW) for step in (60, 3600, DAY)]
        return sum(
            [len(await runs.statistics.rows(kind, p, app_names=None, name=None)) for kind in kinds for p in periods]
        )

    sums: list[int] = []
    for round_number in range(3):
        for n in range(60):
            await count(runs, ended(1000 * round_number + n, ended_at=NOW - 30 * n, tool="pay", user=f"user-{n % 3}"))
        await runs.statistics.fold()
        sums.append(await number_of_sums())
    assert sums[0] == sums[1] == sums[2] > 60


async def test_users_have_sums_by_day_which_are_deleted_with_them(runs: RunStore) -> None:
    await count(runs, ended(1), ended(2, user="bob"), ended(3, app="shop"), ended(4, ended_at=NOW - 2 * DAY))
    by_user = {group.key: group.total.runs["succeeded"] for group in (await ask(runs, group_by="user")).groups}
    assert by_user == {"ann": 3, "bob": 1}
    assert await total_of(runs, user_id="ann", app_names=["desk"]) == 2
    await runs.statistics.delete_user("desk", "ann")
    assert await total_of(runs, user_id="ann") == 1
    assert await total_of(runs, start=NOW - 3 * DAY) == 4


async def test_made_up_names_of_tools_are_summed_beyond_a_limit(runs: RunStore) -> None:
    await count(runs, *(ended(n, tool=f"tool-{n}") for n in range(MAX_NAMES - 1)))
    await runs.statistics.fold()
    await count(runs, *(ended(1000 + n, tool=f"odd\0\ud800-{n}") for n in range(20)), ended(2000, tool="tool-7"))
    await runs.statistics.fold()
    answer = await ask(runs, group_by="tool", limit=2)
    assert [(group.key, group.total.tool_calls) for group in answer.groups] == [(OTHER, 19), ("tool-7", 2)]
    assert answer.other_groups == MAX_NAMES - 1


async def test_old_sums_are_deleted_and_those_of_longer_steps_stay(runs: RunStore) -> None:
    await count(runs, ended(1), ended(2, ended_at=NOW - 2 * DAY))
    await runs.statistics.fold()
    await runs.statistics.add_load(int(NOW - 2 * DAY), {ALL_APPS: LoadSample(1)})
    await runs.statistics.prune(NOW, Retention(minutes=1, hours=10))
    assert await total_of(runs, start=NOW - 3 * DAY, step=300) == 1
    assert await total_of(runs, start=NOW - 3 * DAY, step=3600) == 2
    period = period_of(NOW - 3 * DAY, NOW, 300, now=NOW)
    assert (await runs.statistics.query_load(period, app_names=None)).points == []
    period = period_of(NOW - 3 * DAY, NOW, 3600, now=NOW)
    assert len((await runs.statistics.query_load(period, app_names=None)).points) == 1


async def test_one_sample_of_the_load_counts_for_each_minute(runs: RunStore) -> None:
    start = int(NOW // 3600) * 3600
    for minute, running in enumerate((4, 0, 2)):
        sample = {ALL_APPS: LoadSample(running, 1, 3, 2)}
        if running:
            sample["desk"] = LoadSample(running - 1, 1)
        await runs.statistics.add_load(start + 60 * minute, sample)
        await runs.statistics.add_load(start + 60 * minute, {ALL_APPS: LoadSample(99, 99, 99, 99)})
    period = period_of(start, start + 3600, 3600, now=NOW)
    (point,) = (await runs.statistics.query_load(period, app_names=None)).points
    assert (point.running.average, point.running.maximum, point.queued.average) == (2, 4, 1)
    assert point.replicas is not None
    assert point.replicas.maximum == 2
    (point,) = (await runs.statistics.query_load(period, app_names=["desk"])).points
    assert (point.running.average, point.running.maximum, point.replicas) == (4 / 3, 3, None)
    period = period_of(start, start + 3600, 60, now=NOW)
    points = (await runs.statistics.query_load(period, app_names=["desk", "shop"])).points
    assert [point.running.maximum for point in points] == [3, 0, 1]


async def test_queries_that_the_sums_cannot_answer_are_refused(runs: RunStore) -> None:
    refused: list[dict[str, Any]] = [
        {"group_by": "model", "user_id": "ann"},
        {"model": "a", "tool": "b"},
        {"start": NOW, "end": NOW},
        {"start": NOW - 7 * DAY, "step": 60},
        {"user_id": "ann", "step": 3600},
        {"group_by": "app", "step": 60, "limit": 50},
    ]
    for options in refused:
        with pytest.raises(InvalidRequest):
            await ask(runs, **options)


async def test_figures_are_counted_once_though_the_connection_was_lost_after_the_commit(postgres_uri: str) -> None:
    runs = PostgresRunStore(postgres_uri)
    figures = [ended(1), ended(2)]
    await count(runs, *figures)
    await count(runs, *figures)  # a second try, since nobody knew the outcome of the first
    await count(runs, ended(3), figures[0])
    assert await total_of(runs) == 3
    await runs.statistics.fold()
    await count(runs, *figures)
    assert await total_of(runs) == 3
    await runs.close()


async def test_two_servers_fold_at_once_without_loss(postgres_uri: str) -> None:
    runs = PostgresRunStore(postgres_uri)
    separator = "&" if "?" in postgres_uri else "?"
    other = PostgresRunStore(f"{postgres_uri}{separator}application_name=another")  # with connections of its own
    for number in range(10):
        figures = [ended(100 * number + n) for n in range(20)]
        await asyncio.gather(
            count(runs, *figures[:10]),
            runs.statistics.fold(),
            other.statistics.fold(),
            count(other, *figures[10:]),
        )
    assert await total_of(runs) == await total_of(other) == 200
    await other.close()
    await runs.close()
