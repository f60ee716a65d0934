"""A server whose runs sleep: `python -m tests.durability.sleeping_server FOLDER SOCKET`, on SQLite or GREENROOM_URI."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import uvicorn

from greenroom.agents.llm_agent import LlmAgent
from greenroom.records.content import FunctionCall
from greenroom.server.application import create_app
from greenroom.sessions.service import BaseSessionService
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import Said
from greenroom.tools.builtin.sleep import wait, wait_for
from tests.durability.scripts import model_of

APP = "desk"
LAST = "Awake."


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    agent = LlmAgent(name=APP, model=model_of(_calls, LAST), tools=[wait, wait_for])
    app = create_app(agents=[agent], session_service=_sessions(folder))
    uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning")).run(sockets=[listening])


def _sessions(folder: Path) -> BaseSessionService:
    uri = os.environ.get("GREENROOM_URI")
    if uri:
        from greenroom.sessions.postgres import PostgresSessionService

        return PostgresSessionService(uri)
    return SqliteSessionService(folder / "greenroom.db")


def _calls(message: str) -> Said:
    """Makes the call in the user's message: its name and its arguments as JSON."""
    name, _, args = message.partition(" ")
    return FunctionCall(name=name, args=json.loads(args))


if __name__ == "__main__":
    main()
