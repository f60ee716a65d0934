"""Sessions in SQLite and PostgreSQL: durable appends against ADK's service, and what a turn costs on each."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from benchmarks import peers, servers
from benchmarks.bench import Bench, Pair
from benchmarks.report import Figure, Table, Target, median
from benchmarks.scenarios.turns import ECHO, compare_turns
from benchmarks.servers import Contender
from tests.postgres.postgres_server import PostgresServer, started_server

PROGRAM = Path(__file__).parents[1] / "append_events.py"
WRITERS = (1, 50)
PLACES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


@contextmanager
def postgres_server() -> Generator[PostgresServer]:
    """One of the benchmark's own."""
    server = started_server()
    try:
        yield server
    finally:
        server.remove()


def _appended(python: str, kit: str, uri: str, writers: int, seconds: float) -> float:
    command = [python, str(PROGRAM), kit, uri, str(writers), str(seconds)]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


async def appends(bench: Bench) -> list[Table]:
    kits = {"greenroom": sys.executable}
    if bench.against_adk.peer is not None:
        kits["adk"] = str(await asyncio.to_thread(peers.adk_database_environment) / "python")
    rates: dict[tuple[str, str, int], list[float]] = {}
    with postgres_server() as server:
        for _ in range(bench.scale.rounds):
            for where in PLACES:
                for writers in WRITERS:
                    for kit, python in kits.items():
                        name = f"bench_{uuid4().hex}"
                        if where == "sqlite":
                            uri = f"sqlite+aiosqlite:///{bench.scratch / name}.db"
                        else:
                            uri = server.make_database(name).replace("postgresql:", "postgresql+asyncpg:")
                        rate = await asyncio.to_thread(_appended, python, kit, uri, writers, bench.scale.seconds)
                        rates.setdefault((kit, where, writers), []).append(rate)
    figures = [
        Figure(
            f"{label}: {writers} at once" if writers > 1 else f"{label}: one writer",
            "events/s",
            rates.get(("adk", where, writers), []),
            rates[("greenroom", where, writers)],
            higher_is_better=True,
            target=Target(times_better=10),
        )
        for where, label in PLACES.items()
        for writers in WRITERS
    ]
    notes = [
        "`DatabaseSessionService.append_event` in one process, each writer in a session of its own; on a new database."
    ]
    return [Table("Durable appends", figures, notes)]


async def turns(bench: Bench) -> list[Table]:
    """The server's CPU, without the database's own."""
    ours = servers.greenroom()
    with postgres_server() as database:
        postgres = servers.greenroom_on(database.make_database("turns"), PLACES["postgres"])
        pair = Pair(Contender(PLACES["sqlite"], ours.command), postgres)
        table = await compare_turns(bench, pair, ECHO, "sqlite", concurrencies=bench.scale.concurrencies)
    for figure in [figure for figure in table.figures if "CPU" in figure.label]:
        ratio = [median(figure.ours) / median(figure.peer)]
        table.figures.append(Figure(f"{figure.label}, to SQLite's", "×", [], ratio, target=Target(at_most=2)))
    table.title, table.ours_name = "/run, echo: greenroom on SQLite and PostgreSQL", PLACES["postgres"]
    return [table]
