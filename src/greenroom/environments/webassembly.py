"""Sandboxes of WebAssembly, in which Python runs on every system, without root or a daemon."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Self

from greenroom.environments.guest_connection import GuestWriter
from greenroom.environments.guest_sandbox import GuestSandbox
from greenroom.environments.pyodide import deno_command, deno_variables, find_snapshot, pyodide_dir
from greenroom.environments.sandbox import SandboxLimits

WORKING_DIR = Path("/home/workspace")
MIN_MEMORY_BYTES = 128 * 2**20
MAX_COMPLAINT_BYTES = 2000


class WebAssemblySandbox(GuestSandbox):
    """Runs Python code in Pyodide, in a process of Deno that may read only Pyodide's files. Needs the
    extra `wasm` and, once, `greenroom sandbox pull-pyodide`.

    There is no shell, no process, no thread and no network; of packages there is only the standard
    library. Files are in memory. Code without variables of its own gets new variables, but the
    interpreter of earlier code: what that has changed in modules of the standard library stays.

    limits: memory_bytes is at least 128 MiB; processes means nothing here, and cpus are always one.
    """

    has_shell = False

    def __init__(self, *, limits: SandboxLimits | None = None) -> None:
        super().__init__(limits=limits)
        if self.limits.memory_bytes < MIN_MEMORY_BYTES:
            raise ValueError(f"WebAssemblySandbox needs at least {MIN_MEMORY_BYTES} bytes of memory")
        self._process: asyncio.subprocess.Process | None = None

    @property
    def working_dir(self) -> Path:
        return WORKING_DIR

    def new(self) -> Self:
        return type(self)(limits=self.limits)

    async def _start(self) -> tuple[asyncio.StreamReader, GuestWriter]:
        snapshot = await find_snapshot()
        process = await asyncio.create_subprocess_exec(
            *deno_command(
                "main.mjs",
                pyodide_dir().as_uri() + "/",
                snapshot.as_uri(),
                memory_bytes=self.limits.memory_bytes,
            ),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=deno_variables(),
            cwd=pyodide_dir(),
            start_new_session=True,
        )
        self._process = process
        assert process.stdout is not None
        assert process.stdin is not None
        return process.stdout, process.stdin

    async def _kill(self) -> str:
        process = self._process
        self._process = None
        if process is None:
            return ""

        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.stdin.close()

        complaint = await process.stderr.read(MAX_COMPLAINT_BYTES)
        for stream in (process.stderr, process.stdout):
            while await stream.read(MAX_COMPLAINT_BYTES):
                pass
        await process.wait()
        return complaint.decode(errors="replace").strip()
