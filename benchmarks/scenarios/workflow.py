"""Cost of a workflow: server CPU per node of a long chain, and the memory of many parallel workers."""

from __future__ import annotations

from benchmarks import calls
from benchmarks.bench import Bench, Tally
from benchmarks.load import Expected, RequestSeries, drive, prepare
from benchmarks.report import Figure, Table, Target
from benchmarks.servers import HERE, Server, Store

WORKFLOWS = HERE / "workflows"
"""Apart from the other apps: greenroom loads apps at its start, which the cold start would include."""

NODES = 1_000
"""In the apps `chain` and `fan`."""

END = Expected(b"reached the end")
CPU, SECONDS, PEAK = "cpu", "seconds", "peak"


async def _run(server: Server, app: str, tally: Tally) -> float:
    """Seconds of one run in a session of its own."""
    session = calls.new_session_id()
    await prepare(server.port, [calls.create_session(app, session)])
    outcome = await drive(server.port, [RequestSeries(calls.run(app, session))], concurrency=1, expected=END)
    tally.count_errors(server, outcome)
    return outcome.percentile(50)


async def workflow(bench: Bench, store: Store) -> list[Table]:
    tally, pair = Tally(), bench.against_adk
    for contender in pair.present():
        async with bench.server(contender, store, apps=WORKFLOWS) as server:
            await _run(server, "chain", tally)
            for _ in range(bench.scale.rounds):
                before = server.cpu_seconds()
                tally.add(server, SECONDS, await _run(server, "chain", tally))
                tally.add(server, CPU, (server.cpu_seconds() - before) / NODES * 1e6)
        async with bench.server(contender, store, apps=WORKFLOWS) as server:
            before = server.peak_memory_bytes()
            await _run(server, "fan", tally)
            tally.add(server, PEAK, (server.peak_memory_bytes() - before) / 1e6)
    figures = [
        Figure(label, unit, tally.of(pair.peer, figure), tally.of(pair.ours, figure), target=target)
        for figure, label, unit, target in (
            (CPU, "server CPU per node", "µs", Target(times_better=5)),
            (SECONDS, f"seconds for {NODES:,} nodes", "s", None),
            (PEAK, f"peak memory raised by {NODES:,} parallel workers", "MB", Target(at_most=100)),
        )
    ]
    where = "in memory" if store == "memory" else "SQLite"
    return [Table(f"Workflows, {where}", figures, tally.notes())]
