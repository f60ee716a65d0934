"""A way out for the events of agents that run inside a tool call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Generic, TypeVar

from greenroom.records.event import Event

T = TypeVar("T")


class CallStaysOpen(Exception):
    """Raised by a tool whose call can't be answered yet: an agent below it waits for somebody.

    The run halts; when it is taken up, the tool is called again.
    """


class Relay(Generic[T]):
    """Runs work beside a stream of the events that it sends."""

    def __init__(self) -> None:
        self._ready: asyncio.Queue[tuple[Event, asyncio.Future[None]] | None] = asyncio.Queue()
        self.result: T

    async def send(self, event: Event) -> None:
        """Returns when whoever reads the stream has taken the event, which is stored then."""
        taken = asyncio.get_running_loop().create_future()
        self._ready.put_nowait((event, taken))
        await taken

    async def run(self, work: Coroutine[Any, Any, T]) -> AsyncIterator[Event]:
        """`result` is there when the stream has ended. Leaving the stream cancels the work."""
        task = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._ready.put_nowait(None))
        try:
            while (item := await self._ready.get()) is not None:
                event, taken = item
                yield event
                if not taken.done():
                    taken.set_result(None)
            self.result = task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
