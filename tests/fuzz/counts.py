"""Replies that a server has given during tests, and tasks that it still holds."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import httpx

COUNTS = "/-/counts"
NOT_COUNTED = "x-not-counted"
"""A header of requests that are none of a course's."""

PATIENCE_SECONDS = 30


async def answered(http: httpx.AsyncClient) -> Counter[str]:
    """Number of replies by status, when the server is idle."""
    return Counter((await _quiet(http))["answered"])


async def tasks(http: httpx.AsyncClient) -> int:
    """Number of tasks, when the server is idle."""
    return (await _quiet(http))["tasks"]


async def back_to(wanted: int, http: httpx.AsyncClient) -> None:
    """Wait until it holds no more tasks than so many. Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await tasks(http) > wanted:
            await asyncio.sleep(0.01)


async def _quiet(http: httpx.AsyncClient) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (counts := (await http.get(COUNTS)).json())["open"]:
            await asyncio.sleep(0.01)
    return counts
