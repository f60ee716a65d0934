"""The contract of sandboxes: environments whose code can't reach the host."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, TypeAlias

from greenroom.environments.environment import BaseEnvironment
from greenroom.environments.files import File, FileStatus
from greenroom.environments.process import ExecutionResult
from greenroom.errors import ToolError

OutputListener: TypeAlias = Callable[[Literal["stdout", "stderr"], str], None]
"""Called with pieces of output as they come."""


@dataclass(frozen=True, kw_only=True)
class SandboxLimits:
    """Limits of the code in one sandbox, all of its processes together."""

    memory_bytes: int = 512 * 1024 * 1024
    """In RAM; files are extra."""

    processes: int = 64
    """Threads count as processes."""

    disk_bytes: int = 256 * 1024 * 1024
    """Of all files that it writes, those in /tmp included."""

    cpus: float = 1.0
    """Some sandboxes round this up to a whole number."""

    output_bytes: int = 100_000
    """Kept of each stream of a command; the rest is only counted."""

    def __post_init__(self) -> None:
        for name in ("memory_bytes", "processes", "disk_bytes", "cpus", "output_bytes"):
            if getattr(self, name) <= 0:
                raise ValueError(f"SandboxLimits: {name} must be more than 0")


class Sandbox(BaseEnvironment):
    """An environment whose commands can't reach the host: not its files, its variables, its
    processes or its network.

    Starts when it is first used, or by `initialize`. Calls of one sandbox wait for each other.

    Methods raise ToolError when the sandbox can't be started, or has ended unexpectedly; a sandbox
    that has ended starts again, empty, when it is used next. Code and commands that fail, are
    stopped or end their sandbox have a result that says so.
    """

    has_shell: bool = True
    """False: `execute` raises ToolError; there is only Python."""

    ends_background_processes: bool = True
    """False: what a command leaves in the background continues until the sandbox is closed."""

    limits: SandboxLimits

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """False before the first use and after `close`, and when the sandbox was found to have ended: its files and
        variables are gone, and the next use starts it again.
        """

    @abstractmethod
    def new(self) -> Self:
        """Returns another sandbox with the same settings, not started."""

    @abstractmethod
    async def execute(
        self, command: str, *, timeout: float | None = None, on_output: OutputListener | None = None
    ) -> ExecutionResult:
        """Runs a shell command in `working_dir`. Processes that it leaves running are killed, unless
        `ends_background_processes` is False.

        timeout: in seconds; then all its processes are killed, and files stay. The exit code of a
        process that a signal ended is 128 + the signal's number, as in a shell.
        """

    @abstractmethod
    async def run_python(
        self,
        code: str,
        *,
        timeout: float | None = None,
        keeps_variables: bool = False,
        on_output: OutputListener | None = None,
    ) -> ExecutionResult:
        """Runs code as the main module of Python, in `working_dir`.

        keeps_variables: in the interpreter of the last call with True, whose variables and imports
            it shares. A timeout ends that interpreter; the result says that variables are gone.
        """

    @abstractmethod
    async def write_files(self, files: Sequence[File]) -> None:
        """Creates or replaces files, and creates their folders.

        Raises ValueError for a name that isn't a safe relative path, ToolError if the disk is full.
        """

    @abstractmethod
    async def list_files(self) -> list[FileStatus]:
        """Lists the regular files below `working_dir` by name, at most 10,000."""

    @abstractmethod
    async def changed_files(self) -> tuple[list[File], list[str]]:
        """Returns the regular files below `working_dir` that code and commands have created or
        changed since the last call, and the names of those left out: more than 50 files, more than
        5 MiB each or 16 MiB in all, or with unsafe names.
        """

    async def write_file(self, path: str | Path, content: str | bytes) -> None:
        """Raises ValueError for a path that is neither absolute nor a safe relative one."""
        data = content.encode() if isinstance(content, str) else content
        await self.write_files([File(name=str(path), content=data)])

    async def remove_files(self, names: Sequence[str]) -> None:
        """Removes files below `working_dir`; those that don't exist are left out. Raises ToolError."""
        ran = await self.run_python(_REMOVE.format(names=list(names)), timeout=_SECONDS_TO_REMOVE)
        if ran.exit_code != 0:
            raise ToolError(f"Files can't be removed: {ran.stderr.strip()[-200:]}")


_SECONDS_TO_REMOVE = 30.0

_REMOVE = """\
import contextlib, os
for name in {names!r}:
    with contextlib.suppress(FileNotFoundError):
        os.remove(name)
"""
