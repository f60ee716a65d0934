"""Limits the rate of requests per caller, also over several servers.

Each server limits the requests that it gets, and notifies the others twice a second how many it has accepted of whom;
they count these as their own. So a caller has its whole rate on one server, and about the same on several together:
more only by what it sends to several within half a second.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from greenroom.errors import StorageError, TooManyRequests
from greenroom.records import wire
from greenroom.runs.ownership import Messages

_log = logging.getLogger("greenroom.server")

EXCHANGE_SECONDS = 0.5
_CHANNEL = "greenroom_rates"
_MAX_SHARED_LENGTH = 1000
"""Callers with longer names are limited by each server: they don't fit in a message."""

_SWEPT_AT_LEAST = 1024

_decode_taken = wire.decoder(tuple[str, int])


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
        self._taken: Counter[str] | None = None
        """Tokens that callers took since they were read; None while nobody reads them."""

    def take(self, caller: str) -> None:
        """Raises TooManyRequests; a refused request takes nothing."""
        now = self._clock()
        owed = max(self._full_at.get(caller, now) - now, 0.0) + self._pause
        early_by = owed - self._most_owed
        if early_by > self._pause / 1000:  # a smaller value is a rounding error of the clock
            raise TooManyRequests("Too many requests", retry_after_seconds=early_by)
        self._full_at[caller] = now + owed
        if self._taken is not None:
            self._taken[caller] += 1
        if len(self._full_at) >= self._sweep_at:
            self._full_at = {caller_id: at for caller_id, at in self._full_at.items() if at > now}
            self._sweep_at = max(_SWEPT_AT_LEAST, 2 * len(self._full_at))

    def read_taken(self) -> Mapping[str, int]:
        """Returns the tokens that callers took since the last call; the first call begins to count."""
        taken = self._taken or Counter()
        self._taken = Counter()
        return taken

    def add_taken(self, caller: str, tokens: int) -> None:
        """Takes tokens that another server has granted."""
        now = self._clock()
        self._full_at[caller] = max(self._full_at.get(caller, now), now) + tokens * self._pause


class SharedRate:
    """Exchanges with the other servers of a store what callers took."""

    def __init__(self, rate: RequestRate, messages: Messages) -> None:
        self._rate = rate
        self._messages = messages
        self._stop_listening: Callable[[], None] | None = None
        self._sending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._rate.read_taken()
        self._stop_listening = await self._messages.listen(_CHANNEL, self._received)
        self._sending = asyncio.create_task(self._send())

    async def close(self) -> None:
        if self._stop_listening is not None:
            self._stop_listening()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])

    def _received(self, messages: Sequence[str] | None) -> None:
        """Counts them; what was missed, as after a lost connection, isn't limited."""
        for message in messages or ():
            self._rate.add_taken(*_decode_taken(message.encode()))

    async def _send(self) -> None:
        while True:
            await asyncio.sleep(EXCHANGE_SECONDS)
            taken = self._rate.read_taken()
            messages = [wire.encode(one).decode() for one in taken.items() if len(one[0]) <= _MAX_SHARED_LENGTH]
            if not messages:
                continue
            try:
                await self._messages.notify(_CHANNEL, messages)
            except StorageError as error:
                _log.warning("other servers could not be notified of accepted requests: %s", error)
