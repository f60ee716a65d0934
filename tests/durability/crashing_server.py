"""A server that one kind of message ends: `python -m tests.durability.crashing_server FOLDER SOCKET`.

The model ends the process at the message "crash", and answers any other after half a second.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import uvicorn

from greenroom.agents.llm_agent import LlmAgent
from greenroom.records.model_exchange import LlmRequest
from greenroom.server.application import create_app
from greenroom.server.settings import ServerSettings
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import ScriptedModel
from tests.durability.scripts import conversation


async def _answer(request: LlmRequest) -> str:
    message, _ = conversation(request)
    if message == "crash":
        os._exit(3)
    await asyncio.sleep(0.5)
    return f"heard {message}"


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    app = create_app(
        agents=[LlmAgent(name="a", model=ScriptedModel(_answer))],
        session_service=SqliteSessionService(folder / "greenroom.db"),
        settings=ServerSettings(grace_seconds=0.1),
    )
    uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    main()
