"""All usage stores keep the contract; in a database it is the same for all processes, and after a restart."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from importlib import resources
from pathlib import Path

import pytest

from greenroom.postgres.connection import connect
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.run import Caller, Run, RunStatus
from greenroom.runs.postgres_store import PostgresRunStore
from greenroom.runs.sqlite_store import SqliteRunStore
from greenroom.sessions.postgres import PostgresSessionService
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.usage.in_memory import InMemoryUsageStore
from greenroom.usage.store import SECONDS_PER_DAY, Account, ModelDay, ModelUsage, UsageStore
from tests.usage.store_contract import *  # noqa: F403


def _sessions(address: str) -> SqliteSessionService | PostgresSessionService:
    return PostgresSessionService(address) if "://" in address else SqliteSessionService(address)


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The path of a file or the URI of a database, both empty."""
    return request.getfixturevalue("postgres_uri") if request.param == "postgres" else str(tmp_path / "x.db")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def usage_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[UsageStore]:
    if request.param == "memory":
        yield InMemoryUsageStore()
        return
    uri = request.getfixturevalue("postgres_uri") if request.param == "postgres" else str(tmp_path / "x.db")
    sessions = _sessions(uri)
    yield sessions.usage
    await sessions.close()


def _run(number: int) -> Run:
    return Run(
        id=f"e-{number}", app_name="a", user_id="u", session_id="s", status=RunStatus.SUCCEEDED, created_at=number
    )


async def test_usage_shares_the_transaction_of_the_run_that_is_saved_after_it(address: str) -> None:
    sessions = _sessions(address)
    runs = PostgresRunStore(address) if "://" in address else SqliteRunStore(address)
    await runs.save(_run(1))
    before = sessions.database_stats.commits
    sessions.usage.record(_run(1), {ModelDay("m", 1): ModelUsage()})
    await runs.save(_run(1))
    assert sessions.database_stats.commits == before + 1
    await sessions.close()
    await runs.close()


async def test_in_memory_only_the_latest_usage_is_kept() -> None:
    store = InMemoryUsageStore(max_rows=3)
    used = ModelUsage()
    used.calls = 1
    for number in range(5):
        await store.record(_run(number), {ModelDay("m", 1): used})
    found = await store.query_usage(app_name="a", group_by=["run"])
    assert [one.run_id for one in found.usage] == ["e-2", "e-3", "e-4"]


_RESERVE = """
import asyncio, sys
from greenroom.sessions.from_uri import session_service_from_uri
from greenroom.usage.store import Account, Amount, Ceiling, Reservation

async def main(uri, name):
    sessions = session_service_from_uri(uri)
    ceiling = Ceiling(Account("app", ("a",)), 100, None)
    holds = [Reservation("a", "u", "s", f"e-{name}-{n}", "", "m", "2026-01-31", Amount(10)) for n in range(10)]
    made = [await sessions.usage.reserve(hold, [ceiling], now=1.0) for hold in holds]
    await sessions.close()
    print(made.count(None))

asyncio.run(main(*sys.argv[1:]))
"""


def _reserve_in_processes(uri: str) -> int:
    command = [sys.executable, "-c", _RESERVE, uri]
    processes = [subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) for name in "ab"]
    return sum(int(process.communicate(timeout=60)[0]) for process in processes)


async def test_processes_that_share_a_database_keep_a_limit_together(address: str) -> None:
    uri = address if "://" in address else f"sqlite:///{address}"
    assert await asyncio.to_thread(_reserve_in_processes, uri) == 10
    sessions = _sessions(address)
    assert (await sessions.usage.balance(Account("app", ("a",)), now=1.0))[1].tokens == 100
    await sessions.close()


async def test_usage_of_runs_from_before_it_was_counted_is_carried_over(address: str) -> None:
    sessions = _sessions(address)
    runs = PostgresRunStore(address) if "://" in address else SqliteRunStore(address)
    day = 20_000 * SECONDS_PER_DAY
    used = GenerateContentResponseUsageMetadata(prompt_token_count=10, candidates_token_count=5, total_token_count=17)
    for number, status in enumerate((*RunStatus, RunStatus.SUCCEEDED)):
        run = _run(number)
        run.status = status
        run.created_at = day
        run.usage = used
        run.caller = Caller(user_id="u", key_id="k") if status is RunStatus.FAILED else None
        await runs.save(run, is_to_remember=status is RunStatus.CANCELLED)
    counted = _run(len(RunStatus))
    await sessions.usage.record(counted, {ModelDay("m", 20_000): ModelUsage(2, used)})
    without = _run(100)
    await runs.save(without)

    await _migrate(address, "usage_of_earlier_runs")
    await _migrate(address, "usage_of_earlier_runs")

    found = await sessions.usage.query_usage(app_name="a", group_by=["run", "model", "day"])
    ended = [
        f"e-{number}" for number, status in enumerate(RunStatus) if status.value in ("succeeded", "failed", "cancelled")
    ]
    assert [(one.run_id, one.model, one.calls) for one in found.usage] == [
        *((run_id, "unknown", 1) for run_id in ended),
        (counted.id, "m", 2),
    ]
    for one in found.usage[:-1]:
        assert (one.day, one.prompt_token_count, one.total_token_count) == ("2024-10-04", 10, 17)
        assert (one.cost, one.unpriced_token_count) == (None, 17)
    assert (await sessions.usage.balance(Account("key", ("k",)), now=0.0))[0].tokens == 17
    await sessions.close()
    await runs.close()


async def _migrate(address: str, name: str) -> None:
    """Applies a migration to a database that has it."""
    kind = "postgres" if "://" in address else "sqlite"
    (file,) = [one for one in (resources.files("greenroom") / kind / "migrations").iterdir() if name in one.name]
    if kind == "postgres":
        connection = await connect(address)
        await connection.execute(file.read_text("utf-8"))
        await connection.close()
    else:
        with closing(sqlite3.connect(address)) as connection, connection:
            connection.executescript(file.read_text("utf-8"))
