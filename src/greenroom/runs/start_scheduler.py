"""Starts runs a few at a time, so that a burst of them doesn't keep requests waiting."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable

MAX_STARTS_PER_TICK = 16
"""Maximum number of runs that start in one iteration of the event loop."""


class StartScheduler:
    """Under bursts, admits new requests before starting queued runs, a few per iteration of the event loop.

    Users take turns; the runs of one user start in the order of their requests. Between two iterations the loop reads
    and answers requests, and continues the runs that have started.
    """

    __slots__ = ("_is_scheduled", "_left", "_queued")

    def __init__(self) -> None:
        self._left = 0
        self._is_scheduled = False
        self._queued = OrderedDict[str, deque[Callable[[], None]]]()

    @property
    def is_saturated(self) -> bool:
        return self._is_scheduled and not self._left

    def start(self, user_id: str, begin: Callable[[], None]) -> None:
        """Calls `begin`, now or in a later iteration."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._left = MAX_STARTS_PER_TICK
            asyncio.get_running_loop().call_soon(self._tick)
        if self._left and not self._queued:
            self._left -= 1
            begin()
        else:
            self._queued.setdefault(user_id, deque()).append(begin)

    def _tick(self) -> None:
        self._left = MAX_STARTS_PER_TICK
        while self._queued and self._left:
            self._left -= 1
            user_id, own = self._queued.popitem(last=False)
            begin = own.popleft()
            if own:
                self._queued[user_id] = own
            begin()
        self._is_scheduled = bool(self._queued)
        if self._is_scheduled:
            asyncio.get_running_loop().call_soon(self._tick)
