"""A stream of a run's events that survives disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from greenroom.client.connection import Connection, TryAgain, path
from greenroom.client.problem import error_named
from greenroom.records.content import FunctionCall
from greenroom.records.event import Event
from greenroom.records.run import Run

_PAUSES = (0.1, 0.5, 1.0, 2.0, 5.0)


class RunStream:
    """Iterates over the run's events: each stored event exactly once, in order, across disconnects
    and restarts of the server. After a reconnect, partial events (if enabled) of an unfinished
    message may be repeated.

    run: its last received record. requests: for input, such as approvals, in the events read so far.
    """

    def __init__(self, connection: Connection, run: Run, *, after: int | None = None, with_user_events: bool) -> None:
        self.run = run
        self.requests: list[FunctionCall] = []
        self._connection = connection
        self._last_event_id = "" if after is None else str(after)
        self._with_user_events = with_user_events
        self._events = self._follow()

    @property
    def last_seq(self) -> int | None:
        """The sequence number up to which the log was read, with which `follow(after=…)` continues; None if nothing
        was.
        """
        return int(self._last_event_id) if self._last_event_id else None

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events

    async def wait(self) -> Run:
        """Reads to the end and returns the record. Raises the error that the run failed with."""
        async for _ in self._events:
            pass
        return self.run

    async def aclose(self) -> None:
        """Stops reading. The run continues."""
        await self._events.aclose()

    async def _follow(self) -> AsyncGenerator[Event]:
        events = path("runs", self.run.id, "events")
        breaks = 0
        while True:
            try:
                async with self._connection.stream(events, last_event_id=self._last_event_id) as frames:
                    async for frame in frames:
                        if frame.event == "end":
                            self.run = self._connection.read(frame.data.encode(), Run)
                            self._raise_failure()
                            return
                        if not frame.data:  # a stopping server only says when to reconnect
                            continue
                        event = self._connection.read(frame.data.encode(), Event)
                        self._last_event_id = frame.id or self._last_event_id
                        breaks = 0
                        self._note_requests(event)
                        if self._with_user_events or event.author != "user":
                            yield event
            except TryAgain:
                pass

            # A stopping server closes the stream without an end frame.
            await asyncio.sleep(_PAUSES[min(breaks, len(_PAUSES) - 1)])
            breaks += 1

    def _note_requests(self, event: Event) -> None:
        if not event.partial and event.long_running_tool_ids:
            pending = set(event.long_running_tool_ids)
            self.requests += [call for call in event.get_function_calls() if call.id in pending]

    def _raise_failure(self) -> None:
        error = self.run.error
        if error is not None and error.status is not None:
            raise error_named(error.code, error.message, error.status)
