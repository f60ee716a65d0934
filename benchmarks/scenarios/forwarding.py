"""Cost of requests to a server that forwards them, beside the same requests to the owner of their session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

from benchmarks import calls, servers
from benchmarks.bench import Bench
from benchmarks.connection import connect_many
from benchmarks.load import Expected, RequestSeries, drive, prepare
from benchmarks.report import Figure, Table, Target, median
from benchmarks.scenarios.databases import postgres_server
from benchmarks.scenarios.turns import ECHO, STREAM, TURNS_PER_SESSION, WARM_UP_TURNS, Workload
from benchmarks.servers import Server
from greenroom.postgres.database import Database
from greenroom.records.session import SessionKey
from greenroom.records.shard import SHARDS, shard_of

ECHO_STREAM = Workload("echo", "/run_sse, echo", calls.run_sse, Expected(calls.MESSAGE.encode()))
CONCURRENCY = 16
WAITING = "slow"
SHARE_SECONDS = 20.0
BLOCKS = 12
"""Interleaved parts of a round, so that other work on the machine disturbs both sides alike."""

TARGETS = {ECHO: 1.6, ECHO_STREAM: 1.6, STREAM: 3.0}


class _Pair:
    """Two servers on one database, of which the first one owns the sessions."""

    def __init__(self, owner: Server, other: Server, owned_shards: frozenset[int]) -> None:
        self.owner = owner
        self.other = other
        self._owned_shards = owned_shards

    def session_ids(self, app: str) -> Iterator[str]:
        while True:
            session_id = calls.new_session_id()
            if shard_of(SessionKey(app, calls.USER, session_id)) in self._owned_shards:
                yield session_id

    def cpu_seconds(self) -> float:
        return self.owner.process_seconds() + self.other.process_seconds()

    async def cost(self, server: Server, workload: Workload, turns: int) -> float:
        """CPU seconds of both servers for each turn that this one is asked for."""
        ids = self.session_ids(workload.app)
        sessions = [next(ids) for _ in range(-(-turns // TURNS_PER_SESSION))]
        await prepare(self.owner.port, [calls.create_session(workload.app, session) for session in sessions])
        series = [RequestSeries(workload.request(workload.app, session), TURNS_PER_SESSION) for session in sessions]
        before = self.cpu_seconds()
        outcome = await drive(server.port, series, concurrency=CONCURRENCY, expected=workload.expected)
        if outcome.errors:
            raise RuntimeError(f"{workload.title}: {dict(outcome.errors)}")
        return (self.cpu_seconds() - before) / outcome.completed


async def forwarding(bench: Bench) -> list[Table]:
    with postgres_server() as postgres:
        uri = postgres.make_database("forwarding")
        contenders = (servers.greenroom_on(uri, "owner"), servers.greenroom_on(uri, "other"))
        async with AsyncExitStack() as running:
            owner, other = [
                await running.enter_async_context(bench.server(contender, "memory", {"BENCH_SLOW_SECONDS": "600"}))
                for contender in contenders
            ]
            pair = _Pair(owner, other, await _shards_of(owner, uri))
            figures = [figure for workload in TARGETS for figure in await _compare(bench, pair, workload)]
            figures += await _with_streams(bench, pair)

    notes = ["Two servers on PostgreSQL, without its CPU. The peer is the owner of the session, asked directly."]
    return [Table("A request that is forwarded", figures, notes, peer_name="direct", ours_name="forwarded")]


async def _with_streams(bench: Bench, pair: _Pair) -> list[Figure]:
    """A turn while many forwarded streams are open, which wait for their model, beside a turn without."""
    ids = pair.session_ids(WAITING)
    sessions = [next(ids) for _ in range(bench.scale.forwarded_streams)]
    await prepare(pair.owner.port, [calls.create_session(WAITING, session) for session in sessions], concurrency=16)
    turns = CONCURRENCY * TURNS_PER_SESSION
    without = [await pair.cost(pair.other, ECHO, turns) for _ in range(BLOCKS)]
    connections = await connect_many(pair.other.port, len(sessions))
    streams = [
        asyncio.create_task(connection.exchange(calls.run_sse(WAITING, session)))
        for connection, session in zip(connections, sessions, strict=True)
    ]
    while pair.owner.open_files() < len(sessions):
        await asyncio.sleep(0.2)
    within = [await pair.cost(pair.other, ECHO, turns) for _ in range(BLOCKS)]
    if any(stream.done() for stream in streams):
        raise RuntimeError("some streams ended before the measurement")
    for stream, connection in zip(streams, connections, strict=True):
        stream.cancel()
        connection.close()

    label = f"/run, echo, with {len(sessions):,} open streams"
    costs = [cost * 1e6 for cost in within]
    ratio = median(within) / median(without)
    return [
        Figure(f"{label}: CPU of both servers per turn", "µs", ours=costs),
        Figure(f"{label}: to none", "×", ours=[ratio], target=Target(at_most=1.2)),
    ]


async def _compare(bench: Bench, pair: _Pair, workload: Workload) -> list[Figure]:
    chunks = max(1, workload.chunks)
    for server in (pair.owner, pair.other):
        warm_up = await pair.cost(server, workload, WARM_UP_TURNS * CONCURRENCY)
    turns = max(CONCURRENCY * TURNS_PER_SESSION, round(bench.scale.seconds / warm_up / BLOCKS))
    costs: dict[Server, list[float]] = {pair.owner: [], pair.other: []}
    for _ in range(bench.scale.rounds * BLOCKS):
        for server, values in costs.items():
            values.append(await pair.cost(server, workload, turns) / chunks)

    direct, forwarded = costs.values()
    unit = "chunk" if workload.chunks else "turn"
    ratio = median(forwarded) / median(direct)
    return [
        Figure(
            f"{workload.title}: CPU of both servers per {unit}",
            "µs",
            [cost * 1e6 for cost in direct],
            [cost * 1e6 for cost in forwarded],
        ),
        Figure(f"{workload.title}: to direct", "×", ours=[ratio], target=Target(at_most=TARGETS[workload])),
    ]


async def _shards_of(server: Server, uri: str) -> frozenset[int]:
    """Waits until two servers have the half of the shards each."""
    database = Database.open(uri)
    try:
        async with asyncio.timeout(SHARE_SECONDS):
            while True:
                rows = await database.fetch("SELECT shard, address FROM shards JOIN replicas ON owner = id")
                shards = frozenset(shard for shard, address in rows if address.endswith(f":{server.port}"))
                if len(rows) == SHARDS and len(shards) == SHARDS // 2:
                    return shards
                await asyncio.sleep(0.1)
    finally:
        await database.close()
