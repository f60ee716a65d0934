"""`greenroom mcp`: serves agents as MCP tools over standard input and output."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from greenroom.cli.parameters import AgentsDir
from greenroom.cli.serving import app_loader, app_of_folder, read_configuration

if TYPE_CHECKING:
    from greenroom.server.application import GreenroomApp


def mcp(agents_dir: AgentsDir, /, *, session_service: str | None = None) -> None:
    """Serve the agents in a folder as MCP tools, over standard input and output.

    Each agent is one tool. The MCP client starts this command. A server that was started with `--gates mcp` offers the
    same at `/mcp`.

        greenroom mcp examples

    Parameters
    ----------
    session_service
        The session store, as for `greenroom serve`. Use `memory://` while another process uses the folder's database.
    """
    from greenroom.cli.server_log import set_up_log

    flags = {} if session_service is None else {"session_service": session_service}
    settings = read_configuration(agents_dir, None, flags).settings
    settings = replace(settings, gates=("mcp",))
    set_up_log(settings)
    with contextlib.closing(app_loader(agents_dir, settings)) as loader:
        app, _ = app_of_folder(agents_dir, loader, settings)
        asyncio.run(_serve(app))


async def _serve(app: GreenroomApp) -> None:
    from greenroom.gates.mcp.endpoints import serve_stdio

    async with _running(app):
        await serve_stdio(app.settings)


@contextlib.asynccontextmanager
async def _running(app: GreenroomApp) -> AsyncGenerator[None]:
    """Starts and stops the application with ASGI's lifespan events."""
    events = asyncio.Queue[Any]()
    started = asyncio.Event()

    async def send(event: Any) -> None:
        if event["type"] == "lifespan.startup.complete":
            started.set()

    task = asyncio.create_task(app({"type": "lifespan", "state": {}}, events.get, send))
    await events.put({"type": "lifespan.startup"})
    starting = asyncio.create_task(started.wait())
    await asyncio.wait((task, starting), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        starting.cancel()
        await task

    try:
        yield
    finally:
        await events.put({"type": "lifespan.shutdown"})
        await task
