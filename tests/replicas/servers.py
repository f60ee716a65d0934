"""Several `greenroom serve` on one PostgreSQL, each a process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from itertools import count
from pathlib import Path

import httpx

from greenroom.postgres.database import Database
from greenroom.records.session import SessionKey
from greenroom.records.shard import SHARDS, shard_of
from tests.processes import END_WITH_PARENT

REPOSITORY = Path(__file__).parents[2]
AGENTS = Path(__file__).parent / "agents"
APP = "desk"
USER = "ann"
START_SECONDS = 60
_URL = re.compile(r"(http://\S+)/docs")


class Server:
    """One process. Its shards are those of which `shards` has its address."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, folder: Path) -> None:
        self.process = process
        self.url = url
        self.folder = folder
        self.http = httpx.AsyncClient(base_url=url, timeout=30)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def stop(self) -> int:
        self.process.terminate()
        async with asyncio.timeout(30):
            return await self.process.wait()

    def log(self) -> str:
        return (self.folder / "log").read_text()

    async def close(self) -> None:
        await self.kill()
        await self.http.aclose()


class Servers:
    """The servers of a database."""

    def __init__(self, uri: str, folder: Path) -> None:
        self.uri = uri
        self.folder = folder
        self.database = Database.open(uri)
        self.started: list[Server] = []
        self._numbers = count()
        self._folders = count()

    async def start(
        self, *options: str, agents: Path = AGENTS, grace_seconds: float = 0.2, **environment: str
    ) -> Server:
        folder = self.folder / f"server-{next(self._folders)}"
        folder.mkdir()
        with (folder / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *END_WITH_PARENT, sys.executable, "-m", "greenroom", "serve", str(agents), "--port", "0",
                "--session-service", self.uri, "--artifact-service", f"file://{self.folder}/artifacts",
                "--grace-seconds", str(grace_seconds), *options,
                cwd=REPOSITORY, env={**os.environ, **environment}, stdout=asyncio.subprocess.PIPE, stderr=log,
            )  # fmt: skip
        server = Server(process, await _url_of(process, folder), folder)
        self.started.append(server)
        return server

    async def owners(self) -> dict[int, str]:
        """The address of the owner of each shard."""
        rows = await self.database.fetch("SELECT shard, address FROM shards JOIN replicas ON owner = id")
        return dict(rows)

    async def wait_until_shared(self, *servers: Server, seconds: float = 15) -> None:
        """Until these own all shards, each its share."""
        wanted = {server.url for server in servers}
        owners: dict[int, str] = {}
        try:
            async with asyncio.timeout(seconds):
                while True:
                    owners = await self.owners()
                    shares = [list(owners.values()).count(url) for url in wanted]
                    is_balanced = max(shares) - min(shares) <= len(wanted)
                    if is_balanced and set(owners.values()) == wanted and len(owners) == SHARDS:
                        return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"after {seconds} s: {Counter(owners.values())}") from None

    async def key_of(self, server: Server, *, app: str = APP, prefix: str = "s") -> SessionKey:
        """The key of a new session that the server owns."""
        owners = await self.owners()
        while True:
            key = SessionKey(app, USER, f"{prefix}-{next(self._numbers)}")
            if owners.get(shard_of(key)) == server.url:
                return key

    async def close(self) -> None:
        for server in self.started:
            await server.close()
        await self.database.close()


async def _url_of(process: asyncio.subprocess.Process, folder: Path) -> str:
    assert process.stdout is not None
    text = ""
    async with asyncio.timeout(START_SECONDS):
        while not (found := _URL.search(text)):
            line = await process.stdout.readline()
            assert line, f"the server ended: {(folder / 'log').read_text()}"
            text += line.decode()
    return found[1]


@contextlib.asynccontextmanager
async def servers_on(uri: str, folder: Path) -> AsyncGenerator[Servers]:
    servers = Servers(uri, folder)
    try:
        yield servers
    finally:
        await servers.close()
