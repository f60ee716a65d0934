"""All usage stores keep the contract; in a database it is the same for all processes, and after a restart."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from greenroom.records.run import Run, RunStatus
from greenroom.runs.postgres_store import PostgresRunStore
from greenroom.runs.sqlite_store import SqliteRunStore
from greenroom.sessions.postgres import PostgresSessionService
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.usage.in_memory import InMemoryUsageStore
from greenroom.usage.store import Account, ModelDay, ModelUsage, UsageStore
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
    store, used = InMemoryUsageStore(max_rows=3), ModelUsage()
    used.calls = 1
    for number in range(5):
        await store.record(_run(number), {ModelDay("m", 1): used})
    found = await store.query_usage(app_name="a", group_by=["run"])
    assert [one.run_id for one in found.usage] == ["e-2", "e-3", "e-4"]


_RESERVE = """
import asyncio, sys
from greenroom.sessions.from_uri import session_service_from_uri
from greenroom.usage.store import Account, Amount, Ceiling, Hold

async def main(uri, name):
    sessions = session_service_from_uri(uri)
    ceiling = Ceiling(Account("app", ("a",)), 100, None)
    holds = [Hold("a", "u", "s", f"e-{name}-{n}", "", "m", "2026-01-31", Amount(10)) for n in range(10)]
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
