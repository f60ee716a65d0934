"""Time to the first answer, and time of imports."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from benchmarks import calls
from benchmarks.bench import Bench, Tally
from benchmarks.connection import connect
from benchmarks.report import Figure, Table, Target
from benchmarks.servers import Contender, plain_environment

IMPORTS = {
    "the package": ("import google.adk", "import greenroom"),
    "agent and runner": (
        "from google.adk.agents import LlmAgent; from google.adk.runners import Runner",
        "from greenroom import LlmAgent, Runner",
    ),
}


async def _seconds_to_first_answer(bench: Bench, contender: Contender) -> float:
    server = bench.server(contender, "memory")
    session = calls.new_session_id()
    started = time.perf_counter()
    try:
        server.spawn()
        await server.accepting()
        connection = await connect(server.port)
        for request in (calls.create_session("echo", session), calls.run("echo", session)):
            reply = await connection.exchange(request)
            if reply.status != 200:
                raise RuntimeError(f"{server.name}: HTTP {reply.status}\n{server.log_tail()}")
        connection.close()
        return time.perf_counter() - started
    finally:
        server.stop()


async def cold_start(bench: Bench) -> list[Table]:
    tally, pair = Tally(), bench.against_adk
    for number in range(-1, bench.scale.starts):
        for contender in pair.present():
            seconds = await _seconds_to_first_answer(bench, contender)
            if number >= 0:
                tally.values[contender.name, "start"].append(seconds)
    figure = Figure(
        "process start to first /run answer",
        "s",
        tally.of(pair.peer, "start"),
        tally.of(pair.ours, "start"),
        target=Target(times_better=5),
    )
    note = "A new process each time, creating the session included; one start before these left its bytecode behind."
    return [Table("Cold start", [figure], [note])]


def _seconds(python: Path, code: str) -> float:
    started = time.perf_counter()
    subprocess.run([str(python), "-c", code], check=True, stdin=subprocess.DEVNULL, env=plain_environment())
    return time.perf_counter() - started


def import_time(bench: Bench, adk_python: Path) -> list[Table]:
    values: dict[tuple[str, int], list[float]] = {}
    pythons = (adk_python, Path(sys.executable))
    present = (bench.against_adk.peer, bench.against_adk.ours)
    for number in range(-1, bench.scale.starts):
        for label, statements in IMPORTS.items():
            for side, (python, statement) in enumerate(zip(pythons, statements, strict=True)):
                if present[side] is not None:
                    milliseconds = (_seconds(python, statement) - _seconds(python, "pass")) * 1e3
                    if number >= 0:
                        values.setdefault((label, side), []).append(milliseconds)
    figures = [Figure(label, "ms", values.get((label, 0), []), values.get((label, 1), [])) for label in IMPORTS]
    notes = [f"{label}: `{adk}` and `{ours}`" for label, (adk, ours) in IMPORTS.items()]
    return [Table("Import time", figures, ["Wall time less that of an empty program.", *notes])]
