"""The server that is killed in the midst of a live conversation: `python -m tests.durability.live_server FOLDER SOCKET`."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import uvicorn

from greenroom.agents.llm_agent import LlmAgent
from greenroom.records.content import Content, FunctionCall
from greenroom.server.application import create_app
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing import Says, ScriptedLiveModel
from greenroom.testing.scripted_live_model import Heard, LiveItem


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    desk = LlmAgent(name="desk", model=ScriptedLiveModel(_answer), tools=[work])
    app = create_app(agents=[desk], session_service=SqliteSessionService(folder / "greenroom.db"))
    uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning")).run(sockets=[listening])


async def work() -> str:
    """Never ends."""
    await asyncio.Event().wait()
    return ""


def _answer(heard: Heard) -> LiveItem:
    text = heard.text() if isinstance(heard, Content) else ""
    return FunctionCall(id="c-1", name="work", args={}) if text == "work" else Says(f"You said {text}")


if __name__ == "__main__":
    main()
