"""Requests to a server that is killed and started again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.durability.server_process import ServerProcess

_AT_ONCE = 50
"""Requests: httpx's pool of connections is slow with more."""


class PatientClient:
    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._at_once = asyncio.Semaphore(_AT_ONCE)

    async def send(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Sends a request until it is answered."""
        async with self._at_once, asyncio.timeout(60):
            while True:
                try:
                    return await self._http.request(method, path, **request)
                except httpx.TransportError:
                    await asyncio.sleep(0.05)

    async def wait_for_status(self, run: str, status: str, *, seconds: float, pause_seconds: float) -> None:
        async with asyncio.timeout(seconds):
            while (await self.send("GET", run)).json()["status"] != status:
                await asyncio.sleep(pause_seconds)


@asynccontextmanager
async def patient_client(server: ServerProcess) -> AsyncGenerator[PatientClient]:
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        yield PatientClient(http)


async def kill_repeatedly(server: ServerProcess, chance: random.Random, *, times: int) -> None:
    """Kills the server at random times, and starts it again."""
    for _ in range(times):
        await asyncio.sleep(chance.uniform(0.3, 1.0))
        await server.kill()
        await server.start(wait=False)
