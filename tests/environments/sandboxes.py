"""Sandboxes as the test servers of services run them: processes of this machine, each sandbox with its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from tests.server.serving import until

PROGRAM_FOLDER = re.compile(r"/tmp/greenroom-[0-9a-f]{32}")


@dataclass
class Sandbox:
    env: dict[str, str]
    seconds: float
    """Until it ends without use."""

    private_folder: Path | None = None
    """A folder that has other files in each sandbox. The rest of the file system is this machine's. Needs bubblewrap."""

    id: str = field(default_factory=lambda: uuid4().hex)
    processes: dict[int, Process] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    """To remove when the sandbox ends, as its file system would be."""

    def __post_init__(self) -> None:
        self._own_files = Path(tempfile.mkdtemp(prefix="sandbox-"))

    async def start(self, *command: str, merge: bool = False) -> Process:
        """merge: standard error goes to standard output."""
        self.folders.update(PROGRAM_FOLDER.findall(" ".join(command)))
        if self.private_folder is not None:
            self.private_folder.mkdir(parents=True, exist_ok=True)
            own = ("--bind", str(self._own_files), str(self.private_folder))
            command = ("bwrap", "--dev-bind", "/", "/", *own, "--", *command)

        env = {"PATH": os.environ["PATH"], "HOME": "/", "SANDBOX": self.id, **self.env}
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
        return self._path(path).read_bytes()

    def status(self, path: str) -> tuple[bool, int]:
        """Whether it is a folder, and its size. Raises FileNotFoundError."""
        return self._path(path).is_dir(), self._path(path).stat().st_size

    def write(self, path: str, content: bytes) -> None:
        self.folders.update(PROGRAM_FOLDER.findall(path))
        self._path(path).parent.mkdir(parents=True, exist_ok=True)
        self._path(path).write_bytes(content)

    async def end(self) -> None:
        """Kills the processes with all that they started."""
        await until(self._kill_all)
        for process in self.processes.values():
            await process.wait()
        for folder in [*self.folders, self._own_files]:
            shutil.rmtree(folder, ignore_errors=True)

    def _path(self, path: str) -> Path:
        if self.private_folder is not None and Path(path).is_relative_to(self.private_folder):
            return self._own_files / Path(path).relative_to(self.private_folder)
        return Path(path)

    def _kill_all(self) -> bool:
        """True if there was no process."""
        running = self._running()
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not running

    def _running(self) -> list[int]:
        """Processes with the sandbox's variables that have not ended."""
        found: list[int] = []
        for variables in Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"SANDBOX={self.id}\0".encode() in variables.read_bytes():
                    found.append(int(variables.parent.name))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
        return found
