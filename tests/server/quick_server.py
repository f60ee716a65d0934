"""uvicorn in the event loop of a test, that starts and stops without pauses.

It looks every tenth of a second whether it is to stop, and sleeps as long again once or twice while stopping: some
minutes, over all tests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator
from typing import Any

import uvicorn
import uvicorn.server
from starlette.applications import Starlette
from starlette.routing import Route

TICK_SECONDS = 0.005


class _ShortSleeps:
    """asyncio, but for the length of its sleeps."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, TICK_SECONDS))


uvicorn.server.asyncio = _ShortSleeps()  # pyright: ignore[reportAttributeAccessIssue, reportPrivateImportUsage]


class QuickServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield  # Ctrl-C belongs to pytest


@contextlib.asynccontextmanager
async def serving_routes(*routes: Route) -> AsyncGenerator[str]:
    """Serves the routes on a free port; gives the address."""
    config = uvicorn.Config(Starlette(routes=routes), port=0, log_level="critical", lifespan="off")
    server = QuickServer(config)
    task = asyncio.create_task(server.serve())
    async with asyncio.timeout(5):
        while not server.started:
            await asyncio.sleep(TICK_SECONDS)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
