"""Turns per second of two workers on PostgreSQL beside one process, and what a turn costs both."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass

from benchmarks import calls, procfs, servers
from benchmarks.bench import Bench
from benchmarks.load import RequestSeries, drive, prepare
from benchmarks.report import Figure, Table, Target, median
from benchmarks.scenarios.databases import postgres_server
from benchmarks.scenarios.turns import TURNS_PER_SESSION, Workload
from benchmarks.servers import CORES, Server
from greenroom.postgres.database import Database
from greenroom.records.shard import SHARDS
from tests.postgres.postgres_server import PostgresServer

COUNT = 2
CONCURRENCY = 32
SHARE_SECONDS = 20.0
BLOCKS = 8
"""Interleaved parts of a round, so that other work on the machine disturbs both sides alike."""

SPEED_UP = 1.7


@dataclass(frozen=True)
class _Part:
    """Turns of one contender. The CPU times are in seconds."""

    turns: int
    seconds: float
    server_cpu: float
    database_cpu: float
    generator_cpu: float

    @property
    def rate(self) -> float:
        return self.turns / self.seconds

    @property
    def rate_without_generator(self) -> float:
        """The rate if the load came from another machine, where the workers and PostgreSQL use up all cores."""
        work = self.server_cpu + self.database_cpu
        return self.rate * (work + self.generator_cpu) / work if len(CORES) <= COUNT else self.rate

    @property
    def cost(self) -> float:
        """CPU seconds of the servers per turn."""
        return self.server_cpu / self.turns


class _Side:
    """A contender with a database of its own."""

    def __init__(self, server: Server, database: PostgresServer) -> None:
        self.server = server
        self._database = database

    async def turn(self, workload: Workload, turns: int, *, is_pooled: bool) -> _Part:
        """is_pooled: each request is of another session than the last one on its connection, as behind a proxy."""
        count = max(-(-turns // TURNS_PER_SESSION), 2 * CONCURRENCY)
        sessions = [calls.new_session_id() for _ in range(count)]
        created = [calls.create_session(workload.app, session) for session in sessions]
        await prepare(self.server.port, created, concurrency=CONCURRENCY)
        requests = [workload.request(workload.app, session) for session in sessions]
        if is_pooled:
            series = [RequestSeries(request) for _ in range(TURNS_PER_SESSION) for request in _shuffled(requests)]
        else:
            series = [RequestSeries(request, TURNS_PER_SESSION) for request in requests]

        server_cpu = self.server.cpu_seconds()
        database_cpu = procfs.cpu_seconds(self._database.pid)
        outcome = await drive(self.server.port, series, concurrency=CONCURRENCY, expected=workload.expected)
        if outcome.errors:
            raise RuntimeError(f"{self.server.name}: {dict(outcome.errors)}")
        return _Part(
            turns=outcome.completed,
            seconds=outcome.seconds,
            server_cpu=self.server.cpu_seconds() - server_cpu,
            database_cpu=procfs.cpu_seconds(self._database.pid) - database_cpu,
            generator_cpu=outcome.generator_busy * outcome.seconds,
        )


def _shuffled(requests: list[bytes]) -> list[bytes]:
    """In an order that keeps the turns of one session apart."""
    half = len(requests) // 2
    first = requests[:half]
    second = requests[half:]
    random.shuffle(first)
    random.shuffle(second)
    return first + second


async def workers(bench: Bench, workload: Workload) -> list[Table]:
    with postgres_server() as postgres:
        os.sched_setaffinity(postgres.pid, CORES)
        uris = [postgres.make_database(f"workers_{count}") for count in (1, COUNT)]
        contenders = (servers.greenroom_on(uris[0], "one process"), servers.greenroom_workers(uris[1], COUNT))
        async with AsyncExitStack() as running:
            one, several = [
                _Side(await running.enter_async_context(bench.server(contender, "memory")), postgres)
                for contender in contenders
            ]
            await _wait_until_shared(uris[1])
            return [await _compare(bench, one, several, workload, is_pooled=is_pooled) for is_pooled in (False, True)]


async def _compare(bench: Bench, one: _Side, several: _Side, workload: Workload, *, is_pooled: bool) -> Table:
    warm_up_turns = CONCURRENCY * TURNS_PER_SESSION
    await one.turn(workload, warm_up_turns, is_pooled=is_pooled)
    warm_up = await several.turn(workload, warm_up_turns, is_pooled=is_pooled)

    turns = max(warm_up_turns, round(warm_up.rate * bench.scale.seconds / BLOCKS))
    ones: list[_Part] = []
    severals: list[_Part] = []
    for _ in range(bench.scale.rounds * BLOCKS):
        ones.append(await one.turn(workload, turns, is_pooled=is_pooled))
        severals.append(await several.turn(workload, turns, is_pooled=is_pooled))

    connections = "each request for another session" if is_pooled else "a conversation per connection"
    return Table(
        f"Workers: {workload.title}, {connections}",
        _figures(ones, severals, None if is_pooled else Target(times_better=SPEED_UP)),
        [
            f"{CONCURRENCY} connections to one port. One process has one core; the workers and PostgreSQL have all.",
            "PostgreSQL uses the same cores, so the workers gain less than by their own CPU: that counts where the "
            "database has its own cores.",
        ],
        peer_name=one.server.name,
        ours_name=several.server.name,
    )


def _figures(ones: list[_Part], severals: list[_Part], target: Target | None) -> list[Figure]:
    one_costs = [part.cost for part in ones]
    several_costs = [part.cost for part in severals]
    return [
        _rates("turns per second", [part.rate for part in ones], [part.rate for part in severals]),
        _rates(
            "the same, without the load generator's CPU",
            [part.rate for part in ones],
            [part.rate_without_generator for part in severals],
        ),
        _rates(
            f"turns per second of the servers' CPU, on 1 core and on {COUNT}",
            [1 / cost for cost in one_costs],
            [COUNT / cost for cost in several_costs],
            target,
        ),
        _microseconds("server CPU per turn", one_costs, several_costs),
        Figure("server CPU per turn, to one process's", "×", ours=[median(several_costs) / median(one_costs)]),
        _microseconds(
            "PostgreSQL's CPU per turn",
            [part.database_cpu / part.turns for part in ones],
            [part.database_cpu / part.turns for part in severals],
        ),
        _microseconds(
            "load generator's CPU per turn",
            [part.generator_cpu / part.turns for part in ones],
            [part.generator_cpu / part.turns for part in severals],
        ),
    ]


def _rates(label: str, one: list[float], several: list[float], target: Target | None = None) -> Figure:
    return Figure(label, "turns/s", one, several, higher_is_better=True, target=target)


def _microseconds(label: str, one: list[float], several: list[float]) -> Figure:
    return Figure(label, "µs", [value * 1e6 for value in one], [value * 1e6 for value in several])


async def _wait_until_shared(uri: str) -> None:
    database = Database.open(uri)
    try:
        async with asyncio.timeout(SHARE_SECONDS):
            while True:
                rows = await database.fetch("SELECT owner FROM shards JOIN replicas ON owner = id")
                shares = Counter(owner for (owner,) in rows).values()
                if len(shares) == COUNT and min(shares) == SHARDS // COUNT:
                    return
                await asyncio.sleep(0.1)
    finally:
        await database.close()
