"""A server with two workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import Generator

import httpx

from greenroom.records.session import SessionKey
from greenroom.records.shard import SHARDS, shard_of
from tests.processes import children_of
from tests.replicas.servers import USER, Server, Servers


async def started(servers: Servers, *options: str, grace_seconds: float = 0.2) -> tuple[Server, list[int]]:
    """A server with two workers, which share the sessions, and the ids of their processes."""
    server = await servers.start("--workers", "2", *options, grace_seconds=grace_seconds)
    await wait_until_shared(servers, 2)
    return server, children_of(server.process.pid)


async def wait_until_shared(servers: Servers, count: int) -> None:
    """Until so many workers own all shards, each its share."""
    shares: list[int] = []
    async with asyncio.timeout(20):
        while len(shares) != count or sum(shares) != SHARDS or max(shares) - min(shares) > count:
            await asyncio.sleep(0.05)
            shares = list(Counter((await servers.owners()).values()).values())


async def owner_and_other(servers: Servers, workers: list[int]) -> tuple[str, int]:
    """The address of a worker, and the process of the other one."""
    await wait_until_shared(servers, 2)
    [first, second] = sorted(set((await servers.owners()).values()))
    os.kill(workers[0], signal.SIGSTOP)
    try:
        async with httpx.AsyncClient(timeout=1) as http:
            await http.get(first + "/version")
    except httpx.TimeoutException:
        return second, workers[0]
    finally:
        os.kill(workers[0], signal.SIGCONT)
    return first, workers[0]


async def keys_of(servers: Servers, owner: str, *, app: str, prefix: str, count: int) -> list[SessionKey]:
    """Sessions that the worker with this address owns."""
    owners = await servers.owners()
    keys = (SessionKey(app, USER, f"{prefix}-{number}") for number in range(1000))
    return [key for key in keys if owners[shard_of(key)] == owner][:count]


@contextlib.contextmanager
def paused(process: int) -> Generator[None]:
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)
