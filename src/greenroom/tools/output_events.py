"""Output of a running tool, sent to the run's reader while the tool runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal

from greenroom.environments.sandbox import OutputListener
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject
from greenroom.records.event import Event

MAX_CHARACTERS = 100_000
"""Of all output of one call that is sent while it runs. The result of the call has its own limit."""


@asynccontextmanager
async def output_events(name: str, tool_context: ToolContext) -> AsyncGenerator[OutputListener]:
    """Yields a listener that sends what it hears as partial events, with `toolOutput` in their metadata:
    `functionCallId`, `name`, and the new pieces of `stdout` and `stderr`.

    While the run's reader is busy, pieces are joined, so that a command can't send more events than are read.
    """
    sender = _OutputSender(name, tool_context)
    sending = asyncio.create_task(sender.run())
    try:
        yield sender.hear
    finally:
        sending.cancel()
        await asyncio.wait([sending])


class _OutputSender:
    def __init__(self, name: str, tool_context: ToolContext) -> None:
        self._name = name
        self._tool_context = tool_context
        self._waiting: dict[str, str] = {}
        self._left = MAX_CHARACTERS
        self._has_output = asyncio.Event()

    def hear(self, stream: Literal["stdout", "stderr"], text: str) -> None:
        text = text[: self._left]
        self._left -= len(text)
        if text:
            self._waiting[stream] = self._waiting.get(stream, "") + text
            self._has_output.set()

    async def run(self) -> None:
        send = self._tool_context.invocation_context.send
        while send is not None:
            await self._has_output.wait()
            self._has_output.clear()
            await send(self._next_event())

    def _next_event(self) -> Event:
        event = self._tool_context.invocation_context.new_event()
        event.partial = True
        output: JsonObject = {"functionCallId": self._tool_context.function_call_id, "name": self._name}
        event.custom_metadata = {"toolOutput": {**output, **self._waiting}}
        self._waiting = {}
        return event
