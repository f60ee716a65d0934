"""A runner for scripts and notebooks: a run without an event loop, and lines to print."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator

from greenroom.records import wire
from greenroom.records.event import Event


def in_thread(run: Callable[[], AsyncIterator[Event]]) -> Iterator[Event]:
    """Yields the events of a run in an event loop of its own, in another thread. Raises the run's errors."""
    events: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()

    async def read() -> None:
        async for event in run():
            events.put(event)

    def work() -> None:
        try:
            asyncio.run(read())
        except BaseException as error:  # raised where the events are read
            events.put(error)
        else:
            events.put(None)

    threading.Thread(target=work, daemon=True).start()
    while (event := events.get()) is not None:
        if isinstance(event, BaseException):
            raise event
        yield event


def shown_lines(event: Event, verbose: bool) -> Iterator[str]:
    """The text of a final response; with `verbose` function calls and their responses, too."""
    if verbose:
        for call in event.get_function_calls():
            yield f"{call.name}({wire.encode(call.args or {}).decode()})"
        for response in event.get_function_responses():
            yield f"{response.name} -> {wire.encode(response.response).decode()}"
    if event.is_final_response() and event.content is not None and (text := event.content.text()):
        yield text
