"""uvicorn in the event loop of a test, that starts and stops without pauses.

It looks every tenth of a second whether it is to stop, and sleeps as long again once or twice while stopping: some
minutes, over all tests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from typing import Any

import uvicorn
import uvicorn.server

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
