"""Numbers of runs over several servers, at their limits and when requests or the database fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from greenroom.errors import StorageError
from greenroom.postgres.database import Database
from greenroom.postgres.ownership import take
from greenroom.runs.limits import RunCounter
from greenroom.runs.postgres_counts import PostgresRunCounts

LIMIT = 3
ANN = [RunCounter("user", "ann", LIMIT), RunCounter("app", "desk", 100)]


@pytest.fixture
async def database(postgres_uri: str) -> AsyncIterator[Database]:
    database = Database.open(postgres_uri)
    for shard, replica in enumerate(("one", "two")):
        await database.submit(partial(take, shards=[shard], owner=replica))
        await database.execute("INSERT INTO replicas (id, version, started, heartbeat) VALUES (?, '1', 0, 0)", replica)
    yield database
    await database.close()


@pytest.fixture
async def servers(database: Database) -> AsyncIterator[tuple[PostgresRunCounts, PostgresRunCounts]]:
    servers = PostgresRunCounts(database, replica_id="one"), PostgresRunCounts(database, replica_id="two")
    yield servers
    for server in servers:
        await server.close()


async def acquire(server: PostgresRunCounts, counters: list[RunCounter] = ANN) -> bool:
    return await server.acquire(counters, may_exceed=False) is None


async def written(database: Database) -> dict[str, int]:
    query = "SELECT replica, sum(count) FROM run_counts WHERE owner LIKE 'user %' GROUP BY replica"
    rows = await database.fetch(query)
    return dict(rows)


async def until_written(database: Database, expected: dict[str, int]) -> None:
    found: dict[str, int] = {}
    try:
        async with asyncio.timeout(5):
            while (found := await written(database)) != expected:
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(found) from None


async def test_two_servers_count_to_the_limit(
    database: Database, servers: tuple[PostgresRunCounts, PostgresRunCounts]
) -> None:
    counted = await asyncio.gather(*(acquire(server) for server in servers * 10))
    assert counted.count(True) == LIMIT
    assert sum((await written(database)).values()) == LIMIT
    assert await acquire(servers[0], [RunCounter("user", "ben", LIMIT)])
    assert await servers[1].acquire(ANN, may_exceed=True) is None
    assert sum((await written(database)).values()) == LIMIT + 2


async def test_a_release_on_one_server_lets_the_other_start_a_run(
    servers: tuple[PostgresRunCounts, PostgresRunCounts],
) -> None:
    one, two = servers
    for _ in range(LIMIT):
        assert await acquire(one)
    for _ in range(20):
        one.release(ANN)
        assert await acquire(two)
        two.release(ANN)
        assert await acquire(one)


async def test_runs_of_a_server_that_owns_nothing_do_not_count(
    database: Database, servers: tuple[PostgresRunCounts, PostgresRunCounts]
) -> None:
    one, two = servers
    for _ in range(LIMIT):
        assert await acquire(one)
    assert not await acquire(two)
    await database.submit(lambda connection: take(connection, [0], "two"))
    assert await acquire(two)


@pytest.mark.parametrize("iterations", range(0, 12, 2))
async def test_a_cancelled_request_does_not_count(
    database: Database, servers: tuple[PostgresRunCounts, PostgresRunCounts], iterations: int
) -> None:
    requests = [asyncio.ensure_future(acquire(servers[0])) for _ in range(LIMIT)]
    for _ in range(iterations):
        await asyncio.sleep(0)
    requests[0].cancel()
    await asyncio.wait(requests)
    await until_written(database, {"one": LIMIT - requests[0].cancelled()})
    assert await acquire(servers[1]) == requests[0].cancelled()


async def test_counts_are_written_when_the_database_works_again(
    database: Database, servers: tuple[PostgresRunCounts, PostgresRunCounts]
) -> None:
    one, two = servers
    for _ in range(2):
        assert await acquire(one)
    await database.execute("ALTER TABLE run_counts RENAME TO lost_counts")
    with pytest.raises(StorageError):
        await acquire(one)
    one.release(ANN)
    await asyncio.sleep(0)
    await database.execute("ALTER TABLE lost_counts RENAME TO run_counts")
    await until_written(database, {"one": 1})
    counted = [await acquire(two) for _ in range(LIMIT)]
    assert counted == [True, True, False]


async def test_any_id_is_counted(database: Database, servers: tuple[PostgresRunCounts, PostgresRunCounts]) -> None:
    for owner in ("", "\0", "\ud800", "x" * 10_000):
        assert await acquire(servers[0], [RunCounter("user", owner, 1)])
        assert not await acquire(servers[1], [RunCounter("user", owner, 1)])
