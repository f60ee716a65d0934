"""A folder of this machine as an environment."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

from greenroom.environments.environment import BaseEnvironment
from greenroom.environments.process import ExecutionResult, run_process


class LocalEnvironment(BaseEnvironment):
    """Runs commands as processes of greenroom's own user, with its environment variables: they can
    read and delete what greenroom can. Only `read_file` and `write_file` are confined to
    `working_dir`. Processes that a command leaves in the background are stopped with it. Not on
    Windows.

    working_dir: created if missing; None: a temporary folder, deleted by `close`.
    env_vars: additional variables.
    """

    def __init__(
        self,
        *,
        working_dir: Path | str | None = None,
        env_vars: dict[str, str] | None = None,
    ) -> None:
        if working_dir is not None:
            self._given_dir = Path(working_dir)
        else:
            self._given_dir = None
        self._working_dir: Path | None = None
        self._env_vars = env_vars or {}

    @property
    def working_dir(self) -> Path:
        """Raises RuntimeError before `initialize`."""
        if self._working_dir is None:
            raise RuntimeError("LocalEnvironment: call initialize() first")
        return self._working_dir

    async def initialize(self) -> None:
        if self._given_dir is None:
            self._working_dir = self._working_dir or Path(tempfile.mkdtemp(prefix="adk_workspace_"))
        else:
            self._given_dir.mkdir(parents=True, exist_ok=True)
            self._working_dir = self._given_dir

    async def close(self) -> None:
        working_dir = self._working_dir
        self._working_dir = None
        if working_dir is not None and self._given_dir is None:
            await asyncio.to_thread(shutil.rmtree, working_dir, ignore_errors=True)

    async def execute(self, command: str, *, timeout: float | None = None) -> ExecutionResult:
        env = {**os.environ, **self._env_vars}
        return await run_process(
            "/bin/sh",
            "-c",
            command,
            cwd=self.working_dir,
            env=env,
            timeout_seconds=timeout,
        )

    async def read_file(self, path: str | Path) -> bytes:
        """Raises ValueError for a path that leads out of `working_dir`."""
        return await asyncio.to_thread(self._resolve(path).read_bytes)

    async def write_file(self, path: str | Path, content: str | bytes) -> None:
        """Raises ValueError for a path that leads out of `working_dir`."""
        data = content.encode() if isinstance(content, str) else content
        await asyncio.to_thread(_write, self._resolve(path), data)

    def _resolve(self, path: str | Path) -> Path:
        root = self.working_dir.resolve()
        resolved = (root / path).resolve()
        if not resolved.is_relative_to(root):
            raise ValueError(f"The path {str(path)!r} leads out of the working directory")
        return resolved


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
