"""A channel through which several tasks pass events to the one reader that stores them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeAlias

from greenroom.records.event import Event

_Sent: TypeAlias = tuple[Event, asyncio.Future[None]]


class EventChannel:
    """Passes events to the reader that stores them. A sending task waits until its event is stored, so at most one
    event per task is queued.
    """

    def __init__(self) -> None:
        self._ready: asyncio.Queue[_Sent | asyncio.Task[Any]] = asyncio.Queue()

    async def send(self, event: Event) -> None:
        """Returns when the reader has stored the event."""
        stored = asyncio.get_running_loop().create_future()
        self._ready.put_nowait((event, stored))
        await stored

    def put(self, event: Event) -> None:
        """Passes an event on without waiting until the reader has it."""
        self._ready.put_nowait((event, asyncio.get_running_loop().create_future()))

    async def run(self, *work: Coroutine[Any, Any, Any]) -> AsyncGenerator[Event]:
        """Runs each coroutine in a task and yields the events that they send, in the order of
        sending.

        Ends when all are done; the first error cancels the others and is raised, as leaving the
        stream does.
        """
        tasks = [asyncio.create_task(one) for one in work]
        for task in tasks:
            task.add_done_callback(self._ready.put_nowait)

        running = len(tasks)
        reason: tuple[Any, ...] = ()
        try:
            while running:
                item = await self._ready.get()
                if isinstance(item, tuple):
                    event, stored = item
                    yield event
                    if not stored.done():  # its sender was cancelled
                        stored.set_result(None)
                else:
                    item.result()
                    running -= 1
        except asyncio.CancelledError as error:
            reason = error.args
            raise
        finally:
            if running:
                for task in tasks:
                    task.cancel(*reason)
                await asyncio.gather(*tasks, return_exceptions=True)


class ToolCallPending(Exception):
    """Raised by a tool whose call can't be answered yet: an agent that it runs waits for somebody.

    The run halts; when it is resumed, the tool is called again.
    """
