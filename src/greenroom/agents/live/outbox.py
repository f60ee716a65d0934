"""Events of several tasks, for the one reader that stores them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from greenroom.records.event import Event


class Outbox:
    """No more events wait in here than there are tasks that write: each waits for its own."""

    def __init__(self) -> None:
        self._ready: asyncio.Queue[tuple[Event, asyncio.Future[None]] | None] = asyncio.Queue()

    async def put(self, event: Event) -> None:
        """Returns when the event is stored and shown."""
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ready.put_nowait((event, taken))
        await taken

    def end(self) -> None:
        self._ready.put_nowait(None)

    async def events(self) -> AsyncIterator[Event]:
        while (item := await self._ready.get()) is not None:
            event, taken = item
            yield event
            if not taken.done():  # its writer was cancelled
                taken.set_result(None)
