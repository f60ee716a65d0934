"""`python -m benchmarks.statistics_cost [--rounds 15] [--turns 2000]`: what the statistics cost a turn.

Two servers on each store, one with statistics and one without, are driven in turn by the same requests. Prints the
median of the rounds' ratios of CPU time per turn: what else the machine does hits both.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.scenarios.databases import postgres_server
from benchmarks.scenarios.turns import ECHO, TOOL, Workload, run_turns
from benchmarks.servers import Contender, Server, greenroom, greenroom_on

CONCURRENCY = 16


def _without(contender: Contender) -> Contender:
    return Contender("off", contender.command, {**contender.environment, "GREENROOM_STATISTICS_ENABLED": "false"})


async def compare(name: str, on: Contender, off: Contender, *, store: str, rounds: int, turns: int) -> None:
    async with AsyncExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="greenroom-bench-")))
        counting = await running.enter_async_context(
            Server(on, scratch / "on", store="sqlite" if store == "sqlite" else "memory")
        )
        plain = await running.enter_async_context(
            Server(off, scratch / "off", store="sqlite" if store == "sqlite" else "memory")
        )
        for workload in (ECHO, TOOL):
            for server in (counting, plain):
                await _per_turn(server, workload, turns)
            ratios: list[float] = []
            costs: list[tuple[float, float]] = []
            for number in range(rounds):
                pair = (counting, plain) if number % 2 else (plain, counting)
                measured = {server: await _per_turn(server, workload, turns) for server in pair}
                costs.append((measured[counting], measured[plain]))
                ratios.append(measured[counting] / measured[plain])
            with_statistics, without = (statistics.median(column) for column in zip(*costs, strict=True))
            print(
                f"{name}, {workload.title}: {without * 1e6:.0f} µs without, {with_statistics * 1e6:.0f} µs with; "
                f"median of {rounds} ratios {statistics.median(ratios):.4f}",
                flush=True,
            )


async def _per_turn(server: Server, workload: Workload, turns: int) -> float:
    """CPU seconds of a turn."""
    outcome = await run_turns(server, workload, turns, CONCURRENCY)
    if outcome.errors:
        raise RuntimeError(f"{workload.title}: {outcome.errors}\n{server.log_tail()}")
    return outcome.server_cpu_seconds / outcome.completed


async def main(stores: list[str], rounds: int, turns: int) -> None:
    for store in stores:
        if store == "postgres":
            with postgres_server() as database:
                on = greenroom_on(database.make_database("counting"))
                off = _without(greenroom_on(database.make_database("plain")))
                await compare(store, on, off, store=store, rounds=rounds, turns=turns)
        else:
            await compare(store, greenroom(), _without(greenroom()), store=store, rounds=rounds, turns=turns)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.statistics_cost", description=__doc__)
    parser.add_argument("--store", action="append", choices=("memory", "sqlite", "postgres"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--turns", type=int, default=2000)
    given = parser.parse_args()
    asyncio.run(main(given.store or ["memory", "sqlite", "postgres"], given.rounds, given.turns))
