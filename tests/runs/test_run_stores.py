"""Both run stores keep the contract, and the SQLite one shares its file with the sessions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from greenroom.errors import StoreInUse
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


_SERVER = """
import asyncio, sys
from greenroom.runs.sqlite_store import SqliteRunStore

async def main(path):
    store = SqliteRunStore(path)
    await store.lock(wait_seconds=0)
    print("locked", flush=True)
    sys.stdin.readline()
    await store.close()
    print("released", flush=True)
    sys.stdin.readline()

asyncio.run(main(sys.argv[1]))
"""


def _server(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_store_belongs_to_one_server_until_it_ends(tmp_path: Path, is_killed: bool) -> None:
    path = tmp_path / "x.db"
    with _server(path) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "locked\n"
        store = SqliteRunStore(path)
        with pytest.raises(StoreInUse) as caught:
            await store.lock(wait_seconds=0)
        assert caught.value.process_id == process.pid
        assert str(process.pid) in caught.value.detail
        await store.save(
            Run(id="e-1", app_name="a", user_id="u", session_id="s", status=RunStatus.FAILED, created_at=1.0)
        )
        waiting = asyncio.create_task(store.lock(wait_seconds=60))
        await asyncio.sleep(0)
        if is_killed:
            process.kill()
        else:
            print(file=process.stdin, flush=True)
            assert await asyncio.to_thread(process.stdout.readline) == "released\n"
        async with asyncio.timeout(10):
            await waiting
        again = SqliteRunStore(path)
        await again.lock(wait_seconds=0)  # the engines of one process share it
        await store.close()
        await again.close()
        process.kill()
