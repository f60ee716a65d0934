"""A server whose runs fail until they are retried: `python -m tests.durability.retry_server FOLDER SOCKET`, on SQLite."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import uvicorn

from greenroom.agents.llm_agent import LlmAgent
from greenroom.invocation.user_context import ToolContext
from greenroom.records.content import FunctionCall
from greenroom.records.model_exchange import LlmRequest
from greenroom.server.application import create_app
from greenroom.server.settings import LimitSettings, ServerSettings
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import Said, ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool

APP = "desk"
LAST = "Done."
TOOL_SECONDS = 0.2


class _Tools:
    def __init__(self, diary: Path) -> None:
        self._diary = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def pay(self, tool_context: ToolContext) -> dict[str, str]:
        """Pays, and notes it on disk."""
        os.write(self._diary, f"{tool_context.session.id}\n".encode())
        await asyncio.sleep(TOOL_SECONDS)
        return {"paid": "5"}

    async def send(self, tool_context: ToolContext) -> dict[str, str]:
        """Fails until the run is retried."""
        await asyncio.sleep(TOOL_SECONDS)
        if not any(event.is_retry() for event in tool_context.session.events):
            raise ConnectionError("no route")
        return {"sent": "yes"}


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    tools = _Tools(folder / "payments.txt")
    agent = LlmAgent(
        name=APP,
        model=ScriptedModel(_says, delay=0.05),
        tools=[FunctionTool(tools.pay), FunctionTool(tools.send, on_interrupt="retry")],
    )
    app = create_app(
        agents=[agent],
        session_service=SqliteSessionService(folder / "greenroom.db"),
        settings=ServerSettings(grace_seconds=0.1, limits=LimitSettings(max_running_runs=20)),
    )
    uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning")).run(sockets=[listening])


def _says(request: LlmRequest) -> Said:
    """Pays and sends side by side, then ends."""
    if any(part.function_response is not None for part in request.contents[-1].parts or ()):
        return LAST
    return [FunctionCall(id=f"c-{name}", name=name, args={}) for name in ("pay", "send")]


if __name__ == "__main__":
    main()
