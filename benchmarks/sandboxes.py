"""`python -m benchmarks.sandboxes [--only bubblewrap] [--image …]`: what sandboxes cost.

For each kind of sandbox that starts on this machine: the start, with the first output; one more execution, in a fresh
interpreter and in one that keeps variables, beside `exec` in this process; executions per second; and so many sandboxes
at once, of which each starts, computes, writes a file and ends. The kinds take turns. Medians; less than a minute for
each kind; nothing else should be running.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from greenroom.environments.bubblewrap import BubblewrapSandbox
from greenroom.environments.container import ContainerSandbox
from greenroom.environments.sandbox import Sandbox
from greenroom.environments.webassembly import WebAssemblySandbox
from greenroom.errors import MissingExtra, ToolError

KINDS = ("bubblewrap", "container", "webassembly")

CODE = "total = sum(number * number for number in range(1000))\nprint(total)\n"
OUTPUT = "332833500\n"
WORK = "with open('out.txt', 'w') as file:\n    file.write(str(sum(n * n for n in range(300_000))))\nprint('done')\n"

STARTS = 20
ROUNDS = 5


@dataclass
class Measured:
    """Seconds of each kind of operation, and the time of all at once."""

    start: list[float] = field(default_factory=list[float])
    fresh: list[float] = field(default_factory=list[float])
    kept: list[float] = field(default_factory=list[float])
    in_process: list[float] = field(default_factory=list[float])
    per_second: float = 0.0
    all_at_once: float = 0.0


async def main(only: str | None, image: str | None, executions: int, concurrent: int) -> None:
    kinds: dict[str, Callable[[], Sandbox]] = {
        "bubblewrap": BubblewrapSandbox,
        "container": lambda: ContainerSandbox(image=image),
        "webassembly": WebAssemblySandbox,
    }
    if only is not None:
        kinds = {only: kinds[only]}

    measured: dict[str, Measured] = {}
    for name, make in kinds.items():
        sandbox = make()
        try:
            await sandbox.initialize()
            measured[name] = Measured()
        except (ToolError, MissingExtra) as error:
            print(f"{name} is left out: {error}")
        await sandbox.close()

    for _ in range(ROUNDS):
        for name, of_kind in measured.items():
            await _starts(kinds[name], of_kind, max(STARTS // ROUNDS, 1))
            await _executions(kinds[name], of_kind, executions // ROUNDS)
    for name, of_kind in measured.items():
        await _throughput(kinds[name], of_kind, executions)
        await _all_at_once(kinds[name], of_kind, concurrent)

    _print(measured, concurrent)


async def _starts(make: Callable[[], Sandbox], measured: Measured, count: int) -> None:
    for _ in range(count):
        sandbox = make()
        measured.start.append(await _seconds(lambda sandbox=sandbox: _run(sandbox, keeps_variables=False)))
        await sandbox.close()


async def _executions(make: Callable[[], Sandbox], measured: Measured, count: int) -> None:
    sandbox = make()
    await _run(sandbox, keeps_variables=True)
    for _ in range(count):
        measured.fresh.append(await _seconds(lambda: _run(sandbox, keeps_variables=False)))
        measured.kept.append(await _seconds(lambda: _run(sandbox, keeps_variables=True)))
        measured.in_process.append(await _seconds(_exec))
    await sandbox.close()


async def _throughput(make: Callable[[], Sandbox], measured: Measured, count: int) -> None:
    """Two sandboxes at a time, as there are cores, which keep variables."""
    sandboxes = [make(), make()]
    for sandbox in sandboxes:
        await _run(sandbox, keeps_variables=True)

    async def repeat(sandbox: Sandbox) -> None:
        for _ in range(count):
            await _run(sandbox, keeps_variables=True)

    started_at = time.perf_counter()
    await asyncio.gather(*map(repeat, sandboxes))
    measured.per_second = len(sandboxes) * count / (time.perf_counter() - started_at)
    for sandbox in sandboxes:
        await sandbox.close()


async def _all_at_once(make: Callable[[], Sandbox], measured: Measured, count: int) -> None:
    async def use() -> None:
        sandbox = make()
        ran = await sandbox.run_python(WORK)
        assert (ran.stdout, ran.exit_code) == ("done\n", 0), ran
        files, _ = await sandbox.changed_files()
        assert [file.name for file in files] == ["out.txt"]
        await sandbox.close()

    started_at = time.perf_counter()
    await asyncio.gather(*(use() for _ in range(count)))
    measured.all_at_once = time.perf_counter() - started_at


async def _run(sandbox: Sandbox, *, keeps_variables: bool) -> None:
    ran = await sandbox.run_python(CODE, keeps_variables=keeps_variables)
    assert ran.stdout == OUTPUT, ran


async def _exec() -> None:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(CODE, {})
    assert output.getvalue() == OUTPUT


async def _seconds(call: Callable[[], Awaitable[None]]) -> float:
    started_at = time.perf_counter()
    await call()
    return time.perf_counter() - started_at


def _print(measured: dict[str, Measured], concurrent: int) -> None:
    def row(title: str, figure: Callable[[Measured], str]) -> None:
        print(f"| {title} | {' | '.join(map(figure, measured.values()))} |")

    def milliseconds(seconds: float) -> str:
        return f"{seconds * 1000:.1f} ms"

    print(f"| | {' | '.join(measured)} |")
    print(f"|---|{'--:|' * len(measured)}")
    row("start, to the first output", lambda one: milliseconds(statistics.median(one.start)))
    row("code in a fresh interpreter", lambda one: milliseconds(statistics.median(one.fresh)))
    row("code in a kept interpreter", lambda one: milliseconds(statistics.median(one.kept)))
    row("… over `exec` in the server", lambda one: milliseconds(_over_exec(one)))
    row("executions per second, two sandboxes", lambda one: f"{one.per_second:,.0f}")
    row(f"{concurrent} sandboxes at once, all have ended after", lambda one: f"{one.all_at_once:.1f} s")


def _over_exec(measured: Measured) -> float:
    return statistics.median(measured.kept) - statistics.median(measured.in_process)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--image", help="of containers; DOCKER_HOST says where the engine is")
    parser.add_argument("--executions", type=int, default=200)
    parser.add_argument("--concurrent", type=int, default=100)
    asyncio.run(main(**vars(parser.parse_args())))
