"""`python -m benchmarks`: measures everything we claim about speed and writes benchmarks/RESULTS.md.

About a quarter of an hour on two cores; `--quick` takes some minutes and `--only` picks scenarios, and both only print
unless `--output` says where to write.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

import uvloop

from benchmarks import peers, procfs, servers
from benchmarks.bench import QUICK, Bench, Pair, Scale
from benchmarks.method import METHOD
from benchmarks.report import Report, Table
from benchmarks.scenarios import (
    big_database,
    burst,
    databases,
    forwarding,
    gates,
    history,
    memory,
    memory_search,
    model_overhead,
    session_store,
    start,
    turns,
    workers,
    workflow,
)
from benchmarks.servers import STORES

RESULTS = Path(__file__).parent / "RESULTS.md"
Scenario = Callable[[Bench], Awaitable[list[Table]]]


def scenarios(adk_python: Path) -> dict[str, Scenario]:
    """By name, in the order in which they run."""

    async def import_time(bench: Bench) -> list[Table]:
        return await asyncio.to_thread(start.import_time, bench, adk_python)

    by_store = {
        "echo": turns.echo,
        "tool": turns.tool,
        "stream": turns.stream,
        "history": history.history,
        "workflow": workflow.workflow,
    }
    return {
        **{f"{name}-{store}": partial(run, store=store) for name, run in by_store.items() for store in STORES},
        "memory-sessions": memory.sessions,
        "memory-cached-sessions": memory.cached_sessions,
        "memory-waiting": memory.waiting_runs,
        "memory-open-runs": memory.open_runs,
        "memory-lasting": memory.lasting,
        **{f"burst-{store}": partial(burst.burst, store=store) for store in STORES},
        "appends": databases.appends,
        "turns-postgres": databases.turns,
        "memory-search": memory_search.memory_search,
        "session-store-sqlite": session_store.sqlite,
        "session-store-postgres": session_store.postgres,
        "big-database-sqlite": big_database.sqlite,
        "big-database-postgres": big_database.postgres,
        "model-overhead": model_overhead.model_overhead,
        "gates": gates.gates,
        "forwarding": forwarding.forwarding,
        "workers-echo": partial(workers.workers, workload=turns.ECHO),
        "workers-stream": partial(workers.workers, workload=turns.STREAM),
        "start": start.cold_start,
        "import": import_time,
        "ceiling": turns.ceiling,
        "tuned-adk": turns.tuned_adk,
    }


@dataclass(frozen=True)
class Options:
    quick: bool
    rounds: int | None
    only: list[str]
    skip: list[str]
    adk_executables: Path | None
    output: Path | None

    @property
    def scale(self) -> Scale:
        scale = QUICK if self.quick else Scale()
        return replace(scale, rounds=self.rounds, starts=self.rounds) if self.rounds else scale

    @property
    def results(self) -> Path | None:
        is_whole = not (self.quick or self.only or self.skip)
        return self.output or (RESULTS if is_whole else None)

    def wants(self, name: str) -> bool:
        return not self.only or any(fnmatch(name, pattern) for pattern in self.only)


def parse(arguments: list[str]) -> Options:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of little")
    parser.add_argument("--rounds", type=int, metavar="N", help="measure everything N times, the two servers in turn")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="like 'echo-*'; may be repeated")
    parser.add_argument("--skip", action="append", default=[], choices=["adk", "greenroom"], help="leave a server out")
    parser.add_argument(
        "--adk-executables", type=Path, metavar="DIR", help="bin directory of another environment with google-adk"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write the results")
    parser.add_argument("--list", action="store_true", help="print the names of the scenarios")
    given = parser.parse_args(arguments)
    if given.list:
        print("\n".join(scenarios(Path())))
        raise SystemExit(0)
    return Options(given.quick, given.rounds, given.only, given.skip, given.adk_executables, given.output)


def make_bench(options: Options, executables: Path, scratch: Path) -> Bench:
    ours = None if "greenroom" in options.skip else servers.greenroom()
    adk = tuned = None
    if "adk" not in options.skip:
        adk = servers.adk(executables)
        if options.wants("tuned-adk"):
            tuned = servers.tuned_adk(peers.tuned_adk_environment())
    return Bench(options.scale, scratch, Pair(adk, ours), Pair(tuned, ours), Pair(servers.ceiling(), ours))


def facts(options: Options, executables: Path) -> list[tuple[str, str]]:
    now = datetime.datetime.now(datetime.UTC)
    scale = options.scale
    return [
        ("Date", f"{now:%Y-%m-%d %H:%M} UTC"),
        ("Machine", procfs.machine()),
        ("greenroom", "left out" if "greenroom" in options.skip else peers.greenroom_versions()),
        ("ADK", "left out" if "adk" in options.skip else peers.adk_versions(executables)),
        (
            "Rounds",
            f"{scale.rounds}, of about {scale.seconds:g} s where turns are counted"
            + (" (quick)" if options.quick else ""),
        ),
    ]


async def measure(options: Options, bench: Bench, report: Report, chosen: dict[str, Scenario]) -> int:
    """The number of scenarios that failed. The report is written after each, so that a long run leaves what it has."""
    failed = 0
    company, own_facts = procfs.Company(), report.facts
    for name, scenario in chosen.items():
        began = time.monotonic()
        try:
            tables = await scenario(bench)
        except Exception as error:  # one scenario's failure must not take the others' figures with it
            traceback.print_exc()
            failed += 1
            tables = [
                Table(
                    f"{name}: failed",
                    notes=[f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"],
                )
            ]
        report.tables += tables
        report.facts = [*own_facts, ("Other processes", f"used {company.share():.0%} of the machine's CPU meanwhile")]
        for table in tables:
            print(f"\n{table.markdown()}\n", flush=True)
        print(f"[{name}: {time.monotonic() - began:.0f} s]", file=sys.stderr, flush=True)
        if options.results is not None:
            report.write(options.results)
    return failed


def main() -> int:
    options = parse(sys.argv[1:])
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    executables = Path()
    if "adk" not in options.skip:
        executables = options.adk_executables or peers.adk_environment()
    chosen = {name: run for name, run in scenarios(executables / "python").items() if options.wants(name)}
    report = Report("greenroom and ADK's server, measured", facts(options, executables), METHOD)
    servers.pin_generator()
    with (
        tempfile.TemporaryDirectory(prefix="greenroom-bench-") as scratch,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        failed = runner.run(measure(options, make_bench(options, executables, Path(scratch)), report, chosen))
    if options.results is not None:
        print(f"Written to {options.results}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
