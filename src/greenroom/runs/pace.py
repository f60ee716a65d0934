"""When thousands of runs begin at once, whoever comes in is let in before those that are in go on."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable

AT_ONCE = 16


class Pace:
    """Lets a few runs begin in each turn of the event loop, users in turn, and each user's in the order in which they
    came; between them the loop reads requests, answers them, and carries on the runs that have begun."""

    __slots__ = ("_is_counting", "_left", "_waiting")

    def __init__(self) -> None:
        self._left = 0
        self._is_counting = False
        self._waiting = OrderedDict[str, deque[Callable[[], None]]]()

    @property
    def is_crowded(self) -> bool:
        return self._is_counting and not self._left

    def start(self, user_id: str, begin: Callable[[], None]) -> None:
        """Call `begin`, now or when it is its turn."""
        if not self._is_counting:
            self._is_counting = True
            self._left = AT_ONCE
            asyncio.get_running_loop().call_soon(self._next)
        if self._left and not self._waiting:
            self._left -= 1
            begin()
        else:
            self._waiting.setdefault(user_id, deque()).append(begin)

    def _next(self) -> None:
        self._left = AT_ONCE
        while self._waiting and self._left:
            self._left -= 1
            user_id, own = self._waiting.popitem(last=False)
            begin = own.popleft()
            if own:
                self._waiting[user_id] = own
            begin()
        self._is_counting = bool(self._waiting)
        if self._is_counting:
            asyncio.get_running_loop().call_soon(self._next)
