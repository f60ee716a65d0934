"""The contract of environments, in which an agent runs commands and edits files.

Source of names and arguments: ADK's environments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from greenroom.environments.process import ExecutionResult


class BaseEnvironment(ABC):
    """Paths are relative to `working_dir`, or absolute."""

    is_initialized: bool = False
    """Kept by the toolsets that use it."""

    async def initialize(self) -> None:
        """Called before the first use, and again after `close`."""

    async def close(self) -> None:
        """Releases what `initialize` acquired."""

    @property
    @abstractmethod
    def working_dir(self) -> Path: ...

    @abstractmethod
    async def execute(self, command: str, *, timeout: float | None = None) -> ExecutionResult:
        """Runs a shell command in `working_dir`. timeout: in seconds; then the command is stopped."""

    @abstractmethod
    async def read_file(self, path: str | Path) -> bytes:
        """Raises FileNotFoundError."""

    @abstractmethod
    async def write_file(self, path: str | Path, content: str | bytes) -> None:
        """Creates or replaces a file, and creates its folders."""
