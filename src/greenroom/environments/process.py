"""Processes that are stopped with all they have started, and whose output is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

MAX_OUTPUT_BYTES = 100_000

_SECONDS_TO_STOP = 5.0
_SECONDS_TO_DRAIN = 1.0


@dataclass(frozen=True)
class ExecutionResult:
    exit_code: int = 0
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False


def cut(output: str) -> str:
    """The first 100,000 bytes of what a process elsewhere printed, with a note on the rest."""
    data = output.encode(errors="replace")
    if len(data) <= MAX_OUTPUT_BYTES:
        return output
    return f"{data[:MAX_OUTPUT_BYTES].decode(errors='ignore')}… ({len(data)} bytes in all)"


async def run_process(
    *command: str,
    cwd: Path,
    env: Mapping[str, str],
    timeout_seconds: float | None,
    stdin: IO[bytes] | None = None,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
) -> ExecutionResult:
    """Runs a command to its end, or until its time is up; then kills its process group. Not on
    Windows.

    stdin: an open file; None: there is nothing to read. max_output_bytes: kept of each output
    stream. Raises OSError if the command can't be started.
    """
    process = _Process(max_output_bytes)
    starting = asyncio.ensure_future(
        asyncio.get_running_loop().subprocess_exec(
            lambda: process,
            *command,
            cwd=cwd,
            env=env,
            stdin=asyncio.subprocess.DEVNULL if stdin is None else stdin,
            start_new_session=True,
        )
    )
    try:
        transport, _ = await asyncio.shield(starting)
    except asyncio.CancelledError:  # asyncio would kill the command, but not its child processes
        await _kill((await starting)[0], process)
        raise

    is_late = False
    try:
        async with asyncio.timeout(timeout_seconds):
            await process.exited.wait()
    except TimeoutError:
        is_late = True
        with contextlib.suppress(TimeoutError):
            _signal(transport.get_pid(), signal.SIGTERM)
            async with asyncio.timeout(_SECONDS_TO_STOP):
                await process.exited.wait()
    finally:
        await _kill(transport, process)

    return ExecutionResult(
        transport.get_returncode() or 0,
        process.text(1),
        process.text(2),
        is_late,
    )


class _Process(asyncio.SubprocessProtocol):
    """Keeps the beginning of a process's output.

    exited: the process is over.
    drained: so is everybody who can print.
    """

    def __init__(self, max_output_bytes: int) -> None:
        self._max_output_bytes = max_output_bytes
        self.exited = asyncio.Event()
        self.drained = asyncio.Event()
        self._kept = {1: bytearray(), 2: bytearray()}
        self._sizes = {1: 0, 2: 0}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._sizes[fd] += len(data)
        self._kept[fd] += data[: self._max_output_bytes - len(self._kept[fd])]

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.drained.set()

    def text(self, fd: int) -> str:
        data = self._kept[fd]
        if self._sizes[fd] > len(data):
            cut = f"… ({self._sizes[fd]} bytes in all)"
        else:
            cut = ""
        return data.decode(errors="replace") + cut


async def _kill(transport: asyncio.SubprocessTransport, process: _Process) -> None:
    """Kills the process and its group, and waits for its output."""
    _signal(transport.get_pid(), signal.SIGKILL)

    try:
        await process.exited.wait()
        # A process that has left the group may still hold a pipe open; nobody waits for that.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SECONDS_TO_DRAIN):
                await process.drained.wait()
    finally:
        transport.close()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
