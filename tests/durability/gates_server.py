"""The server that is killed while clients of gates wait: `python -m tests.durability.gates_server FOLDER SOCKET`."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn

from greenroom import FunctionTool, LlmAgent
from greenroom.records.content import FunctionCall
from greenroom.records.model_exchange import LlmRequest
from greenroom.server.application import create_app
from greenroom.server.settings import ServerSettings
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import ScriptedModel

APP = "desk"


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    app = create_app(
        agents=[_desk(folder)],
        session_service=SqliteSessionService(folder / "greenroom.db"),
        settings=ServerSettings(gates=("a2a", "ag_ui", "openai")),
    )
    uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning")).run(sockets=[listening])


def _desk(folder: Path) -> LlmAgent:
    async def book() -> str:
        with (folder / "begun").open("a") as begun:
            begun.write("book\n")
        while not (folder / "go").exists():
            await asyncio.sleep(0.02)
        return "booked"

    def say(request: LlmRequest) -> Any:
        parts = request.contents[-1].parts or []
        return "It is booked." if parts[0].function_response else FunctionCall(name="book", args={})

    tool = FunctionTool(book, on_interrupt="retry")
    return LlmAgent(name=APP, model=ScriptedModel(say), tools=[tool])


if __name__ == "__main__":
    main()
