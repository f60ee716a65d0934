"""`python -m benchmarks.instructions`: how many instructions the server executes per turn.

Unlike times, the counts hardly depend on what else the machine does, so that one commit can be compared with another:
`--executables` names the bin directories of environments to compare. Counted with `perf stat` where the processor's
counter can be read, else with valgrind, under which a server takes a minute to start.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from benchmarks import calls
from benchmarks.load import RequestSeries, drive, prepare
from benchmarks.scenarios.turns import ECHO, STREAM, TOOL, TURNS_PER_SESSION, Workload
from benchmarks.servers import HOST, STORES, Contender, Server, Store

SESSIONS, SESSIONS_OF_STREAMS = 10, 1
START_SECONDS = 600.0
_CALLGRIND = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
_COUNT = ["perf", "stat", "-x,", "-e", "instructions:u"]

Counts = list[int]
Counter = Callable[[Server], AbstractAsyncContextManager[Counts]]
"""Counts what the server executes inside the context, and adds it to the list at the end."""


@asynccontextmanager
async def with_perf(server: Server) -> AsyncGenerator[Counts]:
    counts: Counts = []
    perf = await asyncio.create_subprocess_exec(*_COUNT, "-p", str(server.pid), stderr=subprocess.PIPE)
    await asyncio.sleep(0.5)  # perf doesn't say when it has attached itself
    yield counts
    perf.send_signal(signal.SIGINT)
    _, written = await perf.communicate()
    counts.append(int(written.split(b",", 1)[0]))


@asynccontextmanager
async def with_callgrind(server: Server) -> AsyncGenerator[Counts]:
    counts: Counts = []
    await _control("--instr=on", server)
    await _control("--zero", server)
    yield counts
    await _control("--dump", server)
    await _control("--instr=off", server)
    dumps = sorted(server.directory.glob("callgrind.out.*"), key=lambda path: path.stat().st_mtime)
    counts.append(int(re.findall(r"^totals: (\d+)", dumps[-1].read_text(), re.MULTILINE)[-1]))


async def _control(command: str, server: Server) -> None:
    arguments = ["callgrind_control", command, str(server.pid)]
    await asyncio.to_thread(subprocess.run, arguments, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def counter() -> tuple[Counter, list[str]] | None:
    """Returns the counter that works here, and the words before the server's command; None when none does."""
    if shutil.which("perf") is not None:
        tried = subprocess.run([*_COUNT, "true"], capture_output=True, text=True, check=False)
        if tried.returncode == 0 and tried.stderr.split(",", 1)[0].isdigit():
            return with_perf, []
    if shutil.which("valgrind") is not None and shutil.which("callgrind_control") is not None:
        return with_callgrind, _CALLGRIND
    return None


def contender(executables: Path, prefix: list[str]) -> Contender:
    def command(port: int, sessions: str, apps: Path) -> list[str]:
        program = [*prefix, str(executables / "python"), str(executables / "greenroom"), "serve"]
        return [
            *program,
            str(apps / "greenroom"),
            "--host",
            HOST,
            "--port",
            str(port),
            "--session-service",
            sessions,
        ]

    return Contender(str(executables), command, {"PYTHONHASHSEED": "0"})


async def per_turn(server: Server, workload: Workload, count: Counter) -> int:
    sessions = [calls.new_session_id() for _ in range(2 * (SESSIONS_OF_STREAMS if workload.chunks else SESSIONS))]
    await prepare(server.port, [calls.create_session(workload.app, session) for session in sessions])
    series = [RequestSeries(workload.request(workload.app, session), TURNS_PER_SESSION) for session in sessions]
    half = len(series) // 2
    await drive(server.port, series[:half], concurrency=1, expected=workload.expected)
    async with count(server) as counts:
        outcome = await drive(server.port, series[half:], concurrency=1, expected=workload.expected)
    if outcome.errors:
        raise RuntimeError(f"{workload.title}: {outcome.errors}\n{server.log_tail()}")
    return counts[0] // outcome.completed


async def measure(executables: Path, store: Store, count: Counter, prefix: list[str]) -> dict[str, int]:
    with tempfile.TemporaryDirectory(prefix="greenroom-bench-") as scratch:
        server = Server(contender(executables, prefix), Path(scratch), store=store, start_seconds=START_SECONDS)
        async with server:
            return {
                f"{workload.title}, {store}": await per_turn(server, workload, count)
                for workload in (ECHO, TOOL, STREAM)
            }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.add_argument("--executables", type=Path, action="append", metavar="DIR", help="default: this environment's")
    parser.add_argument("--store", choices=STORES, action="append", help="default: all")
    given = parser.parse_args()
    found = counter()
    if found is None:
        print("Skipped: instructions can't be counted here. Needs `perf stat -e instructions`, or valgrind.")
        return 0
    environments: list[Path] = given.executables or [Path(sys.executable).parent]
    columns: list[dict[str, int]] = []
    for executables in environments:
        began, column = time.monotonic(), dict[str, int]()
        for store in given.store or STORES:
            column |= asyncio.run(measure(executables.absolute(), store, *found))
        columns.append(column)
        print(f"[{executables}: {time.monotonic() - began:.0f} s]", file=sys.stderr, flush=True)
    print(f"Instructions per turn in user mode, counted with {'perf' if found[0] is with_perf else 'callgrind'}\n")
    print("| |" + "".join(f" {path} |" for path in environments) + "\n|---|" + "--:|" * len(environments))
    for title in columns[0]:
        print(f"| {title} |" + "".join(f" {column[title]:,} |" for column in columns))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
