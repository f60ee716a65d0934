"""Reports on the progress of a call to an MCP server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeAlias

from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject
from greenroom.records.event import Event


class Progress(Protocol):
    """A server's report on the progress of a call.

    total: None when it is unknown.
    """

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None: ...


ProgressFactory: TypeAlias = Callable[..., Progress | None]
"""Called with `tool_name` and `callback_context`; returns the callback for one call."""


@asynccontextmanager
async def partial_events(name: str, tool_context: ToolContext) -> AsyncGenerator[Progress]:
    """A callback that sends partial events, with `mcpProgress` in their metadata.

    While the run's reader is busy, only the newest waits, so a server can't send more than is read.
    """
    ctx = tool_context.invocation_context
    newest: asyncio.Queue[Event] = asyncio.Queue(1)

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        event = ctx.new_event()
        event.partial = True
        report: JsonObject = {
            "functionCallId": tool_context.function_call_id,
            "name": name,
            "progress": progress,
        }
        if total is not None:
            report["total"] = total
        if message is not None:
            report["message"] = message

        event.custom_metadata = {"mcpProgress": report}
        if newest.full():
            newest.get_nowait()

        newest.put_nowait(event)

    async def forward() -> None:
        while ctx.send is not None:
            await ctx.send(await newest.get())

    forwarding = asyncio.create_task(forward())
    try:
        yield progress
    finally:
        forwarding.cancel()
        await asyncio.wait([forwarding])
