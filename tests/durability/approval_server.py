"""The server that is killed while a person is asked: `python -m tests.durability.approval_server FOLDER SOCKET`."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from pathlib import Path

import uvicorn

from greenroom.agents.llm_agent import LlmAgent
from greenroom.invocation.user_context import ToolContext
from greenroom.server.application import create_app
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import Said
from greenroom.tools.functions.function_tool import FunctionTool
from tests.durability.scripts import call, model_of

APP = "desk"


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    app = create_app(agents=[_desk(folder)], session_service=SqliteSessionService(folder / "greenroom.db"))
    uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning")).run(sockets=[listening])


def _desk(folder: Path) -> LlmAgent:
    async def do(name: str, tool_context: ToolContext) -> dict[str, str]:
        _note(folder, "begin", tool_context)
        while not (folder / "go on").exists():
            await asyncio.sleep(0.01)
        _note(folder, "end", tool_context)
        return {"done": name}

    async def pay(tool_context: ToolContext) -> dict[str, str]:
        """Pays."""
        return await do("pay", tool_context)

    async def look(tool_context: ToolContext) -> dict[str, str]:
        """Looks."""
        return await do("look", tool_context)

    tools = [
        FunctionTool(pay, require_confirmation=True),
        FunctionTool(look, require_confirmation=True, on_interrupt="retry"),
    ]
    return LlmAgent(name=APP, model=model_of(_calls, "That is all."), tools=tools)


def _calls(message: str) -> Said:
    """Calls the tool that the user names."""
    return call(message, "c-1")


def _note(folder: Path, phase: str, tool_context: ToolContext) -> None:
    line = {"phase": phase, "key": tool_context.idempotency_key, "process": os.getpid()}
    with (folder / "tools.jsonl").open("ab", buffering=0) as diary:
        diary.write(json.dumps(line).encode() + b"\n")
        os.fsync(diary.fileno())


if __name__ == "__main__":
    main()
