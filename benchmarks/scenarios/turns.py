"""Turns per second and their cost, of an app that answers at once: POST /run, or /run_sse with its chunks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import calls
from benchmarks.bench import Bench, Pair, Tally
from benchmarks.ceiling import CHUNKS
from benchmarks.load import Expected, Outcome, RequestSeries, drive, prepare
from benchmarks.report import Figure, Table, Target
from benchmarks.servers import Server, Store

TURNS_PER_SESSION = 10
WARM_UP_TURNS = 16


@dataclass(frozen=True)
class Workload:
    """One app and how it is called. chunks: partial events per turn."""

    app: str
    title: str
    request: Callable[[str, str], bytes]
    expected: Expected
    chunks: int = 0


ECHO = Workload("echo", "/run, echo", calls.run, Expected(calls.MESSAGE.encode()))
TOOL = Workload("tool", "/run, one tool call", calls.run, Expected(b"looked up"))
STREAM = Workload(
    "stream", f"/run_sse, {CHUNKS} chunks", calls.run_sse, Expected(b"data: {", CHUNKS + 1), chunks=CHUNKS
)

RATE, CPU, MEDIAN, SLOWEST, FIRST = "rate", "cpu", "p50", "p99", "first"


async def run_turns(server: Server, workload: Workload, turns: int, concurrency: int) -> Outcome:
    per_session = min(TURNS_PER_SESSION, max(1, turns // concurrency))
    sessions = [calls.new_session_id() for _ in range(math.ceil(turns / per_session))]
    await prepare(server.port, [calls.create_session(workload.app, session) for session in sessions])
    series = [RequestSeries(workload.request(workload.app, session), per_session) for session in sessions]
    before = server.cpu_seconds()
    outcome = await drive(server.port, series, concurrency=concurrency, expected=workload.expected)
    outcome.server_cpu_seconds = server.cpu_seconds() - before
    return outcome


async def measure_turns(server: Server, workload: Workload, *, concurrency: int, seconds: float) -> Outcome:
    """As many turns as take about so many seconds, in new sessions of at most ten turns each, after a warm-up."""
    warm_up = await run_turns(server, workload, max(WARM_UP_TURNS, concurrency), concurrency)
    turns = max(WARM_UP_TURNS, 2 * concurrency, round(warm_up.completed / warm_up.seconds * seconds))
    return await run_turns(server, workload, turns, concurrency)


async def compare_turns(
    bench: Bench,
    pair: Pair,
    workload: Workload,
    store: Store,
    *,
    concurrencies: tuple[int, ...],
    targets: dict[str, Target] | None = None,
) -> Table:
    """targets: of the figures at concurrency 16."""
    tally = Tally()
    async with bench.both(pair, store) as servers:
        for server in servers:
            await run_turns(server, workload, WARM_UP_TURNS, 1)
        for concurrency in concurrencies:
            for _ in range(bench.scale.rounds):
                for server in servers:
                    outcome = await measure_turns(
                        server, workload, concurrency=concurrency, seconds=bench.scale.seconds
                    )
                    _add(tally, server, workload, concurrency, outcome)
        for server in servers:
            tally.count_locks(server)
    figures = [
        figure
        for concurrency in concurrencies
        for figure in _figures(tally, pair, workload, concurrency, (targets or {}) if concurrency == 16 else {})
    ]
    where = "in memory" if store == "memory" else "SQLite"
    table = Table(f"{workload.title}, {where}", figures, tally.notes())
    if pair.peer:
        table.peer_name = pair.peer.name
    return table


def _add(tally: Tally, server: Server, workload: Workload, concurrency: int, outcome: Outcome) -> None:
    tally.count_errors(server, outcome)
    if not outcome.completed:
        return
    units = outcome.completed * max(1, workload.chunks)
    tally.add(server, f"{RATE} {concurrency}", units / outcome.seconds)
    tally.add(server, f"{CPU} {concurrency}", outcome.server_cpu_seconds / units)
    tally.add(server, f"{MEDIAN} {concurrency}", outcome.percentile(50))
    tally.add(server, f"{SLOWEST} {concurrency}", outcome.percentile(99))
    tally.add(server, f"{FIRST} {concurrency}", outcome.body_delay_median())


def _figures(
    tally: Tally, pair: Pair, workload: Workload, concurrency: int, targets: dict[str, Target]
) -> list[Figure]:
    unit = "chunk" if workload.chunks else "turn"
    kinds = [
        (RATE, f"{unit}s per second", f"{unit}s/s", 1.0),
        (CPU, f"server CPU per {unit}", "µs", 1e6),
        (MEDIAN, "latency p50", "ms", 1e3),
        (SLOWEST, "latency p99", "ms", 1e3),
    ]
    if workload.chunks:
        kinds.append((FIRST, "first chunk after, p50", "ms", 1e3))
    return [
        Figure(
            f"concurrency {concurrency}: {label}",
            unit_shown,
            [value * factor for value in tally.of(pair.peer, f"{kind} {concurrency}")],
            [value * factor for value in tally.of(pair.ours, f"{kind} {concurrency}")],
            higher_is_better=kind == RATE,
            target=targets.get(kind),
        )
        for kind, label, unit_shown, factor in kinds
    ]


def turn_targets(store: Store) -> dict[str, Target]:
    times = Target(times_better=15 if store == "memory" else 20)
    return {RATE: times, CPU: times}


async def echo(bench: Bench, store: Store) -> list[Table]:
    return [await _against_adk(bench, ECHO, store, turn_targets(store))]


async def tool(bench: Bench, store: Store) -> list[Table]:
    return [await _against_adk(bench, TOOL, store, turn_targets(store))]


async def stream(bench: Bench, store: Store) -> list[Table]:
    return [await _against_adk(bench, STREAM, store, {CPU: Target(times_better=12)}, (1, 16))]


async def _against_adk(
    bench: Bench,
    workload: Workload,
    store: Store,
    targets: dict[str, Target],
    concurrencies: tuple[int, ...] | None = None,
) -> Table:
    concurrencies = concurrencies or bench.scale.concurrencies
    return await compare_turns(bench, bench.against_adk, workload, store, concurrencies=concurrencies, targets=targets)


async def tuned_adk(bench: Bench) -> list[Table]:
    """ADK's gain from the options that an operator can add to it."""
    pair = bench.against_tuned_adk
    tables = [await compare_turns(bench, pair, workload, "memory", concurrencies=(16,)) for workload in (ECHO, STREAM)]
    for table in tables:
        table.title = f"ADK tuned by hand: {table.title}"
    return tables


async def ceiling(bench: Bench) -> list[Table]:
    pair = bench.against_ceiling
    tables = [
        await compare_turns(bench, pair, ECHO, "memory", concurrencies=bench.scale.concurrencies),
        await compare_turns(bench, pair, STREAM, "memory", concurrencies=(1, 16)),
    ]
    for table in tables:
        table.title = f"Ceiling, an ASGI application that answers canned bytes: {table.title}"
    return tables
