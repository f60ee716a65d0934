"""Both run stores keep the contract, and the SQLite one shares its file with the sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from greenroom.records.event import Event
from greenroom.records.run import Run, RunFilter, RunStatus
from greenroom.runs.memory_store import InMemoryRunStore
from greenroom.runs.sqlite_store import SqliteRunStore
from greenroom.runs.store import RunStore
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.contracts.run_store import *  # noqa: F403


@pytest.fixture(params=["memory", "sqlite"])
async def run_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunStore]:
    store = InMemoryRunStore() if request.param == "memory" else SqliteRunStore(tmp_path / "runs.db")
    yield store
    await store.close()


def _run(number: int, status: RunStatus = RunStatus.SUCCEEDED) -> Run:
    return Run(
        id=f"e-{number}",
        app_name="a",
        user_id="u",
        session_id="s",
        status=status,
        created_at=number,
        idempotency_key=f"k-{number}",
    )


async def test_in_memory_only_the_latest_finished_runs_are_kept() -> None:
    store = InMemoryRunStore(max_finished=3)
    await store.save(_run(0, RunStatus.RUNNING))
    for number in range(1, 6):
        await store.save(_run(number))
    kept = (await store.list_runs(RunFilter(app_names=["a"], user_id="u", session_id="s"))).runs
    assert [run.id for run in kept] == ["e-5", "e-4", "e-3", "e-0"]
    assert await store.get("e-1") is None
    assert await store.find_by_idempotency_key(app_name="a", user_id="u", key="k-2") is None


async def test_runs_are_there_after_reopening(tmp_path: Path) -> None:
    store = SqliteRunStore(tmp_path / "x.db")
    store.save(_run(1))
    await store.close()
    again = SqliteRunStore(tmp_path / "x.db")
    assert await again.get("e-1") == _run(1)
    await again.close()


async def test_a_run_saved_before_an_event_shares_its_commit(tmp_path: Path) -> None:
    sessions, runs = SqliteSessionService(tmp_path / "x.db"), SqliteRunStore(tmp_path / "x.db")
    session = await sessions.create_session(app_name="a", user_id="u", session_id="s")
    before = sessions.database_stats.commits
    runs.save(_run(1))
    await sessions.append(session, Event(author="u"))
    assert sessions.database_stats.commits == before + 1
    assert await runs.get("e-1") == _run(1)
    await sessions.close()
    await runs.close()
