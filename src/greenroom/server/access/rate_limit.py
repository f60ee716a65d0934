"""Limits the rate of requests per caller."""

from __future__ import annotations

import time
from collections.abc import Callable

from greenroom.errors import TooManyRequests

_SWEPT_AT_LEAST = 1024


class RequestRate:
    """A token bucket per caller: each request takes one token, and tokens are refilled at a constant rate.

    A bucket is stored as the time at which it will be full again (generic cell rate algorithm); full buckets are
    removed.
    """

    def __init__(self, *, per_second: float, at_once: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._pause = 1 / per_second
        self._most_owed = at_once * self._pause
        self._clock = clock
        self._full_at: dict[str, float] = {}
        self._sweep_at = _SWEPT_AT_LEAST

    def take(self, caller: str) -> None:
        """Raises TooManyRequests; a refused request takes nothing."""
        now = self._clock()
        owed = max(self._full_at.get(caller, now) - now, 0.0) + self._pause
        early_by = owed - self._most_owed
        if early_by > self._pause / 1000:  # a smaller value is a rounding error of the clock
            raise TooManyRequests("Too many requests", retry_after_seconds=early_by)
        self._full_at[caller] = now + owed
        if len(self._full_at) >= self._sweep_at:
            self._full_at = {caller_id: at for caller_id, at in self._full_at.items() if at > now}
            self._sweep_at = max(_SWEPT_AT_LEAST, 2 * len(self._full_at))
