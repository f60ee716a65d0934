"""Measures what turns cost on PostgreSQL, and writes `turn_costs.json` for `benchmarks.sizing`.

A real server on a real PostgreSQL, which writes to the disk (`fsync`). Statements of turns that follow one another are
counted in PostgreSQL's log; then, without it, CPU time, WAL and the growth of tables of many turns at once.
"""

from __future__ import annotations

import asyncio
import datetime
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec
import uvloop

from benchmarks import procfs, servers
from benchmarks.bench import Bench, Pair, Scale
from benchmarks.scenarios.turns import ECHO, STREAM, TOOL, Workload, run_turns
from benchmarks.servers import Server
from benchmarks.sizing import COSTS, TurnCost, TurnCosts, cost_rows, markdown
from greenroom.postgres.connection import Connection, connect
from tests.postgres.postgres_server import PostgresServer, started_server

COUNTED_TURNS = 200
CONCURRENCY = 32
ROUNDS = 5
TURNS = 2_000
"""Of each round."""

SETTLE_SECONDS = 2.5
"""Traces are written up to a second after a turn, and PostgreSQL's statistics a second later."""

IDLE_SECONDS = 5.0

_LINE = re.compile(r"^(\d+) LOG:  (?:execute [^:]*|statement): (.*)")
_WRITE = re.compile(r"\s*(INSERT|UPDATE|DELETE|WITH)\b", re.IGNORECASE)


class Statements(NamedTuple):
    total: int
    commits: int
    """Transactions that write."""
    notifies: int


def statements_in(log: str) -> Statements:
    """Counts what the log of PostgreSQL shows, without the connections that own shards or listen."""
    by_backend: dict[str, list[str]] = {}
    for backend, statement in _statements(log):
        by_backend.setdefault(backend, []).append(statement)

    counts = Counter[str]()
    for found in by_backend.values():
        if any("pg_locks" in statement or "LISTEN" in statement for statement in found):
            continue
        counts["total"] += len(found)
        counts["notifies"] += sum("notify" in statement.lower() for statement in found)
        is_open = has_written = False
        for statement in found:
            if statement.startswith("BEGIN"):
                is_open = True
                has_written = False
            elif statement.startswith(("COMMIT", "ROLLBACK")):
                counts["commits"] += has_written
                is_open = False
            elif _WRITE.match(statement):
                has_written = True
                counts["commits"] += not is_open
    return Statements(counts["total"], counts["commits"], counts["notifies"])


def _statements(log: str) -> Iterator[tuple[str, str]]:
    """Backends and their statements; those of several lines are joined."""
    backend = ""
    lines: list[str] = []
    for line in log.splitlines():
        found = _LINE.match(line)
        if line.startswith("\t"):
            lines.append(line.strip())
            continue
        if lines:
            yield backend, " ".join(lines).strip()
            lines = []
        if found:
            backend = found[1]
            lines = [found[2]]
    if lines:
        yield backend, " ".join(lines).strip()


class Database:
    """A database, and the server whose statistics and log are read."""

    def __init__(self, postgres: PostgresServer, connection: Connection) -> None:
        self.postgres = postgres
        self.connection = connection
        pid = (postgres.folder / "data" / "postmaster.pid").read_text().splitlines()[0]
        self._pid = int(pid)

    def cpu_seconds(self) -> float:
        return procfs.cpu_seconds(self._pid)

    def log_size(self) -> int:
        return (self.postgres.folder / "log").stat().st_size

    def log_since(self, offset: int) -> str:
        with (self.postgres.folder / "log").open("rb") as log:
            log.seek(offset)
            return log.read().decode(errors="replace")

    async def wal_bytes(self) -> float:
        return float(await self.connection.fetchval("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))

    async def commits(self) -> int:
        """Transactions that have written, of the whole server."""
        return await self.connection.fetchval("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")

    async def stored_bytes(self) -> int:
        return await self.connection.fetchval(
            "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class"
            " WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname <> 'spans'"
        )


async def _count_statements(database: Database, server: Server, workload: Workload) -> Statements:
    await run_turns(server, workload, COUNTED_TURNS, 1)
    await asyncio.sleep(SETTLE_SECONDS)
    offset = database.log_size()
    await run_turns(server, workload, COUNTED_TURNS, 1)
    await asyncio.sleep(SETTLE_SECONDS)
    return statements_in(database.log_since(offset))


async def _idle_statements(database: Database) -> float:
    offset = database.log_size()
    await asyncio.sleep(IDLE_SECONDS)
    return sum(1 for _ in _statements(database.log_since(offset))) / IDLE_SECONDS


class _Sums(NamedTuple):
    """Of all rounds."""

    turns: int
    server_seconds: float
    postgres_seconds: float
    wal_bytes: float
    stored_bytes: float
    commits: int


async def _measure_together(database: Database, server: Server, workload: Workload) -> _Sums:
    await run_turns(server, workload, TURNS, CONCURRENCY)
    await asyncio.sleep(SETTLE_SECONDS)
    postgres_seconds = database.cpu_seconds()
    wal_bytes = await database.wal_bytes()
    stored_bytes = await database.stored_bytes()
    commits = await database.commits()
    server_seconds = server.cpu_seconds()
    completed = 0
    for _ in range(ROUNDS):
        outcome = await run_turns(server, workload, TURNS, CONCURRENCY)
        if outcome.errors:
            raise RuntimeError(f"{workload.title}: {dict(outcome.errors)}")
        completed += outcome.completed
    await asyncio.sleep(SETTLE_SECONDS)
    return _Sums(
        completed,
        server.cpu_seconds() - server_seconds,
        database.cpu_seconds() - postgres_seconds,
        await database.wal_bytes() - wal_bytes,
        await database.stored_bytes() - stored_bytes,
        await database.commits() - commits,
    )


async def _open(stack: AsyncExitStack, postgres: PostgresServer, name: str) -> Database:
    connection = await connect(postgres.make_database(name))
    stack.push_async_callback(connection.close)
    return Database(postgres, connection)


async def measure(scratch: Path) -> TurnCosts:
    """Takes some minutes."""
    options = ("log_min_messages=log", "log_line_prefix=%p ", "log_checkpoints=off", "autovacuum=off")
    ours = servers.greenroom()
    bench = Bench(Scale(), scratch, Pair(None, ours), Pair(None, ours), Pair(None, ours))
    workloads = {"echo": ECHO, "tool": TOOL, "stream": STREAM}
    postgres = await asyncio.to_thread(started_server, *options)
    try:
        async with AsyncExitStack() as stack:
            database = await _open(stack, postgres, "counted")
            await database.connection.execute("ALTER DATABASE counted SET log_statement = 'all'")
            counted: dict[str, Statements] = {}
            async with bench.server(servers.greenroom_on(postgres.uri("counted")), "memory") as server:
                for name, workload in workloads.items():
                    counted[name] = await _count_statements(database, server, workload)
                idle_statements = await _idle_statements(database)

        async with AsyncExitStack() as stack:
            database = await _open(stack, postgres, "alone")
            sums: dict[str, _Sums] = {}
            async with bench.server(servers.greenroom_on(postgres.uri("alone")), "memory") as server:
                for name, workload in workloads.items():
                    sums[name] = await _measure_together(database, server, workload)
            version = await database.connection.fetchval("SHOW server_version")
            forwarding_ms = await _forwarding_ms(bench, postgres)
    finally:
        await asyncio.to_thread(postgres.remove)

    turns = [
        TurnCost(
            name=name,
            statements=counted[name].total / COUNTED_TURNS,
            commits=counted[name].commits / COUNTED_TURNS,
            notifies=counted[name].notifies / COUNTED_TURNS,
            stored_bytes=one.stored_bytes / one.turns,
            wal_bytes=one.wal_bytes / one.turns,
            server_ms=1000 * one.server_seconds / one.turns,
            postgres_ms=1000 * one.postgres_seconds / one.turns,
            commits_at_once=one.commits / one.turns,
        )
        for name, one in sums.items()
    ]
    return TurnCosts(
        date=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        machine=procfs.machine(),
        postgres=version,
        concurrency=CONCURRENCY,
        idle_statements_per_second=idle_statements,
        forwarding_ms=forwarding_ms,
        turns=turns,
    )


async def _forwarding_ms(bench: Bench, postgres: PostgresServer) -> float:
    """CPU time of two servers for the turns of sessions of which the half belongs to the other one, beyond that of one
    server for its own."""
    postgres.make_database("together")
    contender = servers.greenroom_on(postgres.uri("together"))
    async with bench.server(contender, "memory") as first:
        await run_turns(first, ECHO, TURNS, CONCURRENCY)
        before = first.cpu_seconds()
        outcome = await run_turns(first, ECHO, TURNS * ROUNDS, CONCURRENCY)
        own_ms = 1000 * (first.cpu_seconds() - before) / outcome.completed
        async with bench.server(contender, "memory") as second:
            await asyncio.sleep(SETTLE_SECONDS)  # until the second has its share
            await run_turns(first, ECHO, TURNS, CONCURRENCY)
            before = first.cpu_seconds() + second.cpu_seconds()
            outcome = await run_turns(first, ECHO, TURNS * ROUNDS, CONCURRENCY)
            both_ms = 1000 * (first.cpu_seconds() + second.cpu_seconds() - before) / outcome.completed
    return 2 * (both_ms - own_ms)


def main() -> int:
    servers.pin_generator()
    with (
        tempfile.TemporaryDirectory(prefix="greenroom-bench-") as scratch,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        costs = runner.run(measure(Path(scratch)))
    COSTS.write_bytes(msgspec.json.format(msgspec.json.encode(costs), indent=2) + b"\n")
    print(markdown(cost_rows(costs)))
    print(f"Written to {COSTS}; `make docs-tables` writes the tables of docs/scaling.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
