"""A server in a process of its own, that can be killed and started again at the same address."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx

from tests.processes import END_WITH_PARENT

REPOSITORY = Path(__file__).parents[2]


class ServerProcess:
    """The listening socket belongs to the test: while no server lives, who connects waits for the next one."""

    def __init__(self, folder: Path, *, module: str = "tests.durability.server_app", **settings: str) -> None:
        """settings: environment of the server, see server_app.py."""
        self._module = module
        self.folder = folder
        self.restarts = -1
        self._settings = settings
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._process: asyncio.subprocess.Process | None = None
        self._errors = (folder / "server.log").open("ab")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    @property
    def process_id(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self, *, wait: bool = True) -> None:
        fd = self._listening.fileno()
        self._process = await asyncio.create_subprocess_exec(
            *END_WITH_PARENT, sys.executable, "-m", self._module, str(self.folder), str(fd),
            cwd=REPOSITORY, pass_fds=(fd,), env={**os.environ, **self._settings}, stderr=self._errors,
        )  # fmt: skip
        self.restarts += 1
        if wait:
            await self.wait_until_it_answers()

    async def wait_until_it_answers(self) -> None:
        async with asyncio.timeout(60), httpx.AsyncClient(base_url=self.url, timeout=60) as http:
            assert (await http.get("/health")).status_code == 200

    async def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    async def stop(self, signal_number: int) -> int:
        """Ask it to end; returns its exit status."""
        assert self._process is not None
        self._process.send_signal(signal_number)
        async with asyncio.timeout(30):
            return await self._process.wait()

    async def close(self) -> None:
        if self._process is not None and self._process.returncode is None:
            await self.kill()
        self._listening.close()
        self._errors.close()

    def log(self) -> str:
        return (self.folder / "server.log").read_text()


@contextlib.asynccontextmanager
async def server_in(
    folder: Path, *, module: str = "tests.durability.server_app", **settings: str
) -> AsyncGenerator[ServerProcess]:
    server = ServerProcess(folder, module=module, **settings)
    try:
        yield server
    finally:
        await server.close()
