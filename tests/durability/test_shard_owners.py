"""Servers that share a database: killed, paused, stopped, and cut off from PostgreSQL while they write."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable

import pytest

from greenroom.errors import StoreInUse
from greenroom.postgres.database import Database
from greenroom.records.shard import SHARDS
from greenroom.runs.postgres_store import PostgresRunStore
from greenroom.sessions.postgres import PostgresSessionService
from tests.durability.shard_server import SESSIONS

_PATIENCE_SECONDS = 30.0
"""On a busy machine; times are measured by `make bench`."""

_AUTHORS = """
    SELECT sessions.id, json_extract(data, '$.author'), events.id, events.seq FROM events JOIN sessions ON number = session
    ORDER BY sessions.id, events.seq
"""


class Process:
    """A server process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.replica_id = ""

    @classmethod
    async def start(cls, uri: str, kind: str = "shared") -> Process:
        started = cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.durability.shard_server",
                uri,
                kind,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=2**24,
            )
        )
        started.replica_id = await started._line()
        assert started.replica_id
        return started

    async def _line(self) -> str:
        assert self._process.stdout is not None
        async with asyncio.timeout(30):
            return (await self._process.stdout.readline()).decode().strip()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def owned(self) -> int:
        """The number of shards that it owns, as it believes."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"owned\n")
        return int(await self._line())

    async def stop(self) -> None:
        """Returns when it has given its shards back."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"stop\n")
        assert await self._line() == "released"

    async def report(self) -> dict[str, list[str]]:
        """The outcomes of its writes, after it was stopped."""
        return json.loads(await self._line())

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


class Replicas:
    """A database with its servers."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.database = Database.open(uri)
        self.started: list[Process] = []

    async def start(self, kind: str = "shared") -> Process:
        process = await Process.start(self.uri, kind)
        self.started.append(process)
        return process

    async def owned(self) -> dict[str, int]:
        """Shards by replica that were taken last by it, and are locked."""
        rows = await self.database.fetch("SELECT owner, count(*) FROM shards GROUP BY owner")
        return dict(rows)

    async def wait_for(self, is_wanted: Callable[[dict[str, int]], bool]) -> None:
        owned: dict[str, int] = {}
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while not is_wanted(owned := await self.owned()):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            pytest.fail(f"after {_PATIENCE_SECONDS} s: {owned}")

    async def wait_until_written(self, process: Process) -> None:
        """Until it has written to all sessions, since now."""
        (before,) = await self.database.fetch("SELECT coalesce(max(timestamp), 0) FROM events")
        query = (
            "SELECT count(DISTINCT session) FROM events WHERE timestamp > ? AND json_extract(data, '$.author') LIKE ?"
        )
        async with asyncio.timeout(20):
            while await self.database.fetch(query, before[0], f"% {process.replica_id}") != [(len(SESSIONS),)]:
                await asyncio.sleep(0.02)

    async def check(self) -> None:
        """In each log, no event of an epoch comes after one of a later epoch, and an epoch has one owner."""
        logs: dict[str, list[tuple[int, str, int]]] = {}
        for session_id, author, _, seq in await self.database.fetch(_AUTHORS):
            epoch, owner = author.split()
            logs.setdefault(session_id, []).append((int(epoch), owner, seq))
        for session_id, log in logs.items():
            epochs = [epoch for epoch, _, _ in log]
            assert epochs == sorted(epochs), session_id
            assert len({(epoch, owner) for epoch, owner, _ in log}) == len(set(epochs)), session_id
            assert [seq for _, _, seq in log] == list(range(1, len(log) + 1)), session_id

    async def check_reports(self, *processes: Process) -> None:
        """Acknowledged events are stored once, refused ones not at all."""
        stored = [event_id for _, _, event_id, _ in await self.database.fetch(_AUTHORS)]
        assert len(stored) == len(set(stored))
        for process in processes:
            report = await process.report()
            assert set(report["stored"]) <= set(stored)
            assert not set(report["refused"]) & set(stored) - set(report["stored"])

    async def close(self) -> None:
        for process in self.started:
            await process.kill()
        await self.database.close()


@pytest.fixture
async def replicas(empty_postgres_uri: str) -> AsyncIterator[Replicas]:
    sessions = PostgresSessionService(empty_postgres_uri)
    for key in SESSIONS:
        await sessions.create_session(**key._asdict())
    await sessions.close()
    replicas = Replicas(empty_postgres_uri)
    yield replicas
    await replicas.close()


async def _two(replicas: Replicas) -> tuple[Process, Process]:
    """Two servers that have the half each."""
    first = await replicas.start()
    assert await replicas.owned() == {first.replica_id: SHARDS}
    second = await replicas.start()
    half = {first.replica_id: SHARDS // 2, second.replica_id: SHARDS // 2}
    await replicas.wait_for(lambda owned: owned == half)
    return first, second


async def test_the_shards_of_a_killed_server_are_taken_over(replicas: Replicas) -> None:
    first, second = await _two(replicas)
    second.signal(signal.SIGKILL)
    await replicas.wait_for(lambda owned: owned == {first.replica_id: SHARDS})
    await replicas.wait_until_written(first)
    await first.stop()
    await replicas.check()
    await replicas.check_reports(first)


async def test_the_shards_of_a_server_that_stops_are_taken_over(replicas: Replicas) -> None:
    first, second = await _two(replicas)
    await second.stop()
    await replicas.wait_for(lambda owned: owned == {first.replica_id: SHARDS})
    await replicas.wait_until_written(first)
    await first.stop()
    await replicas.check()
    await replicas.check_reports(first, second)


async def test_a_paused_server_writes_nothing_when_it_continues(replicas: Replicas) -> None:
    first, second = await _two(replicas)
    second.signal(signal.SIGSTOP)
    await replicas.wait_for(lambda owned: owned == {first.replica_id: SHARDS})
    await replicas.wait_until_written(first)
    second.signal(signal.SIGCONT)
    half = {first.replica_id: SHARDS // 2, second.replica_id: SHARDS // 2}
    await replicas.wait_for(lambda owned: owned == half)
    await first.stop()
    await replicas.wait_for(lambda owned: owned == {second.replica_id: SHARDS})
    await replicas.wait_until_written(second)
    await second.stop()
    await replicas.check()
    await replicas.check_reports(first, second)


async def test_servers_whose_connections_are_cut_continue(replicas: Replicas) -> None:
    first, second = await _two(replicas)
    cut = """
        SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()
    """
    for _ in range(5):
        await replicas.database.fetch(cut)
        await replicas.wait_for(lambda owned: set(owned) <= {first.replica_id, second.replica_id})
    half = {first.replica_id: SHARDS // 2, second.replica_id: SHARDS // 2}
    await replicas.wait_for(lambda owned: owned == half)
    await second.stop()
    await replicas.wait_for(lambda owned: owned == {first.replica_id: SHARDS})
    await replicas.wait_until_written(first)
    await first.stop()
    await replicas.check()
    await replicas.check_reports(first, second)


async def test_a_third_server_gets_its_share_and_the_two_others_take_it_over(replicas: Replicas) -> None:
    await _two(replicas)
    third = await replicas.start()
    await replicas.wait_for(lambda owned: sorted(owned.values()) in ([84, 86, 86], [85, 85, 86]))
    await third.stop()
    await replicas.wait_for(lambda owned: list(owned.values()) == [SHARDS // 2] * 2)
    await replicas.check()


async def test_a_second_server_waits_until_the_first_one_is_paused_for_longer_than_the_lease(
    replicas: Replicas,
) -> None:
    """As `greenroom serve` does: it shares its database with no other server."""
    first = await replicas.start("exclusive")
    await replicas.wait_until_written(first)
    store = PostgresRunStore(replicas.uri)
    with pytest.raises(StoreInUse):
        await store.lock(wait_seconds=0)
    await store.close()

    starting = asyncio.create_task(replicas.start("exclusive"))
    first.signal(signal.SIGSTOP)
    async with asyncio.timeout(_PATIENCE_SECONDS):
        second = await starting
    assert await replicas.owned() == {second.replica_id: SHARDS}
    await replicas.wait_until_written(second)
    first.signal(signal.SIGCONT)
    async with asyncio.timeout(5):
        while await first.owned():
            await asyncio.sleep(0.02)

    await replicas.wait_until_written(second)
    await second.stop()
    assert await first.owned() == 0  # the other one may have resumed its runs
    await first.stop()
    await replicas.check()
    await replicas.check_reports(first, second)
