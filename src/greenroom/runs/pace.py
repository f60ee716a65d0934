"""When thousands of runs begin at once, whoever comes in is let in before those that are in go on."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque

AT_ONCE = 16


class Pace:
    """Lets a few runs begin in each turn of the event loop, users in turn, and each user's in the order in which they
    came; between them the loop reads requests, answers them, and carries on the runs that have begun."""

    __slots__ = ("_is_counting", "_left", "_waiting")

    def __init__(self) -> None:
        self._left = 0
        self._is_counting = False
        self._waiting = OrderedDict[str, deque[asyncio.Future[None]]]()

    @property
    def is_crowded(self) -> bool:
        return self._is_counting and not self._left

    def turn(self, user_id: str) -> asyncio.Future[None] | None:
        """None: begin. Else to be awaited before."""
        loop = asyncio.get_running_loop()
        if not self._is_counting:
            self._is_counting = True
            self._left = AT_ONCE
            loop.call_soon(self._next)
        if self._left and not self._waiting:
            self._left -= 1
            return None
        waiting = loop.create_future()
        self._waiting.setdefault(user_id, deque()).append(waiting)
        return waiting

    def _next(self) -> None:
        left = AT_ONCE
        while self._waiting and left:
            user_id, own = self._waiting.popitem(last=False)
            waiting = own.popleft()
            if own:
                self._waiting[user_id] = own
            if not waiting.done():  # else its run was stopped meanwhile
                waiting.set_result(None)
                left -= 1
        self._left = left
        self._is_counting = bool(self._waiting)
        if self._is_counting:
            asyncio.get_running_loop().call_soon(self._next)
