"""A server whose runs are steered: `python -m tests.durability.steered_server FOLDER SOCKET`, on SQLite or
GREENROOM_URI."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import uvicorn

from greenroom.agents.llm_agent import LlmAgent
from greenroom.records.content import FunctionCall
from greenroom.records.model_exchange import LlmRequest
from greenroom.server.application import create_app
from greenroom.sessions.service import BaseSessionService
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import Said, ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool

APP = "desk"
CALLS = 6
"""Number of calls of the tool after a message `go`."""


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    agent = LlmAgent(name=APP, model=ScriptedModel(_reply), tools=[FunctionTool(work, on_interrupt="retry")])
    app = create_app(agents=[agent], session_service=_sessions(folder))
    uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning")).run(sockets=[listening])


def _sessions(folder: Path) -> BaseSessionService:
    uri = os.environ.get("GREENROOM_URI")
    if uri:
        from greenroom.sessions.postgres import PostgresSessionService

        return PostgresSessionService(uri)
    return SqliteSessionService(folder / "greenroom.db")


async def work() -> str:
    """Takes a moment."""
    await asyncio.sleep(0.05)
    return "done"


def _reply(request: LlmRequest) -> Said:
    calls = 0
    for content in reversed(request.contents):
        if content.role == "user" and content.text() == "go":
            break
        if content.role == "model":
            if content.text():  # the turn of that message is over: this is the turn of another one
                return "read"
            calls += 1
    return FunctionCall(name="work", args={}) if calls < CALLS else "worked"


if __name__ == "__main__":
    main()
