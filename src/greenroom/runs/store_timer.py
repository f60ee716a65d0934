"""Waits for the earliest of the times that a store keeps."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from greenroom.errors import StorageError

_log = logging.getLogger("greenroom.runs")

LONGEST_SLEEP = 1.0
"""Seconds after which the clock is read again: it may have been set, and the machine may have been asleep."""

_NEVER = float("inf")


@dataclass(eq=False)
class StoreTimer:
    """One timer for all times of one kind. It is idle, and asks the store nothing, until the earliest time has come.

    The first call of `look_at` starts its task.
    """

    run_due: Callable[[], Awaitable[None]]
    """Does what is due, and calls `look_at` with the earliest time that is left."""

    subject: str
    """Of log messages when `run_due` fails: "waiting runs could not be continued"."""

    clock: Callable[[], float] = time.time
    """Returns Unix seconds."""

    def __post_init__(self) -> None:
        self._next = _NEVER
        """The earliest time that the store may have."""

        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def look_at(self, at: float) -> None:
        """Calls `run_due` at this time (Unix seconds), if no earlier one comes first."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        if at < self._next:
            self._next = at
            self._changed.set()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _run(self) -> None:
        while True:
            await self._wait()
            self._next = _NEVER
            try:
                await self.run_due()
            except Exception as error:  # whatever it is, the other times must not be forgotten
                if not isinstance(error, StorageError):
                    _log.exception(self.subject)
                self.look_at(self.clock() + LONGEST_SLEEP)

    async def _wait(self) -> None:
        """Returns when the earliest time has come."""
        while (left := self._next - self.clock()) > 0:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if self._next == _NEVER else min(left, LONGEST_SLEEP)):
                    await self._changed.wait()
