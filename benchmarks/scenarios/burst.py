"""Thousands of runs at the same moment, each waiting five seconds for its model."""

from __future__ import annotations

from benchmarks import calls
from benchmarks.bench import Bench, Tally
from benchmarks.load import Expected, RequestSeries, drive, prepare
from benchmarks.report import Figure, Table, Target
from benchmarks.servers import Contender, Store

EXPECTED = Expected(b"thought about it")
MODEL_SECONDS = 5
P99_SECONDS = 5.6
FIRST_BYTE_SECONDS = 1.0
SETTLING_RUNS = 20


async def burst(bench: Bench, store: Store) -> list[Table]:
    tally, pair, count = Tally(), bench.against_adk, bench.scale.concurrent_runs
    for number in range(bench.scale.rounds):
        for contender in pair.present():
            if contender is not pair.peer or number == 0:
                await _send_burst(bench, tally, contender, store, count)
    completed = tally.of(pair.ours, "completed")
    where = "in memory" if store == "memory" else "SQLite"
    figures = [
        Figure(
            "completed, fewest of the rounds",
            "runs",
            tally.of(pair.peer, "completed"),
            [min(completed)] if completed else [],
            higher_is_better=True,
            target=Target(at_least=count),
        ),
        Figure(
            "first byte, p99",
            "s",
            tally.of(pair.peer, "first"),
            tally.of(pair.ours, "first"),
            target=Target(at_most=FIRST_BYTE_SECONDS),
        ),
        Figure("p50", "s", tally.of(pair.peer, "p50"), tally.of(pair.ours, "p50")),
        Figure("p99", "s", tally.of(pair.peer, "p99"), tally.of(pair.ours, "p99"), target=Target(at_most=P99_SECONDS)),
        Figure("slowest", "s", tally.of(pair.peer, "slowest"), tally.of(pair.ours, "slowest")),
        Figure("server CPU, all runs", "s", tally.of(pair.peer, "cpu"), tally.of(pair.ours, "cpu")),
    ]
    notes = [
        f"{count:,} /run_sse requests sent at once over connections that were open before, each to its own session.",
        "ADK was asked once only; its percentiles are of the runs it completed.",
        *tally.notes(),
    ]
    return [Table(f"{count:,} concurrent runs of a {MODEL_SECONDS} s model, {where}", figures, notes)]


async def _send_burst(bench: Bench, tally: Tally, contender: Contender, store: Store, count: int) -> None:
    async with bench.server(contender, store, {"BENCH_SLOW_SECONDS": str(MODEL_SECONDS)}) as server:
        sessions = [calls.new_session_id() for _ in range(count + SETTLING_RUNS)]
        await prepare(server.port, [calls.create_session("slow", session) for session in sessions])
        series = [RequestSeries(calls.run_sse("slow", session)) for session in sessions]
        await drive(server.port, series[count:], concurrency=SETTLING_RUNS, expected=EXPECTED)
        before = server.cpu_seconds()
        outcome = await drive(server.port, series[:count], concurrency=count, expected=EXPECTED)
        tally.count_errors(server, outcome)
        tally.count_locks(server)
        tally.add(server, "cpu", server.cpu_seconds() - before)
        tally.add(server, "completed", outcome.completed)
        tally.add(server, "first", outcome.first_byte_percentile(99))
        for figure, percent in (("p50", 50), ("p99", 99), ("slowest", 100)):
            tally.add(server, figure, outcome.percentile(percent))
