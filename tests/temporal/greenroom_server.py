"""The server that is killed under an activity: `python -m tests.temporal.greenroom_server FOLDER SOCKET`."""

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
from greenroom.server.application import create_app
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import Said
from greenroom.tools.functions.function_tool import FunctionTool
from tests.durability.scripts import model_of

APP = "desk"
LAST = "It is done."


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    app = create_app(agents=[_desk(folder)], session_service=SqliteSessionService(folder / "greenroom.db"))
    uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning")).run(sockets=[listening])


def _desk(folder: Path) -> LlmAgent:
    async def work(name: str, seconds: float, tool_context: ToolContext) -> dict[str, str]:
        """Works for some seconds; for 0, until the test says that it is done."""
        with (folder / f"{name}.begun").open("ab", buffering=0) as diary:
            diary.write(f"{tool_context.idempotency_key}\n".encode())
            os.fsync(diary.fileno())
        await asyncio.sleep(seconds)
        while not seconds and not (folder / f"{name}.done").exists():
            await asyncio.sleep(0.01)
        return {"done": name}

    def calls(message: str) -> Said:
        name, _, seconds = message.partition(" ")
        return FunctionCall(id="c-1", name="work", args={"name": name, "seconds": float(seconds or 0)})

    return LlmAgent(name=APP, model=model_of(calls, LAST), tools=[FunctionTool(work, on_interrupt="retry")])


if __name__ == "__main__":
    main()
