"""Sandboxes as the test servers of E2B and Daytona run them: processes of this machine, each sandbox with its own."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4


@dataclass
class Sandbox:
    env: dict[str, str]
    seconds: float
    """Until it ends without use."""
    id: str = field(default_factory=lambda: uuid4().hex)
    processes: dict[int, Process] = field(default_factory=dict)

    async def start(self, *command: str, merge: bool = False) -> Process:
        """merge: standard error goes to standard output."""
        env = {"PATH": os.environ["PATH"], "HOME": "/", **self.env}
        process = await asyncio.create_subprocess_exec(
            *command,
            env=env,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=asyncio.subprocess.STDOUT if merge else PIPE,
            start_new_session=True,
        )
        self.processes[process.pid] = process
        return process

    def read(self, path: str) -> bytes:
        """Raises FileNotFoundError, IsADirectoryError."""
        return Path(path).read_bytes()

    def status(self, path: str) -> tuple[bool, int]:
        """Whether it is a folder, and its size. Raises FileNotFoundError."""
        return Path(path).is_dir(), Path(path).stat().st_size

    def write(self, path: str, content: bytes) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(content)

    async def end(self) -> None:
        """Kills the processes with all that they started."""
        for pid in self.running():
            os.kill(pid, signal.SIGKILL)
        for process in self.processes.values():
            await process.wait()

    def running(self) -> list[int]:
        """Processes of the sandbox's sessions that have not ended."""
        found: list[int] = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, _, session = status.read_text().rpartition(")")[2].split()[:4]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(session) in self.processes and state != "Z":
                found.append(int(status.parent.name))
        return found
