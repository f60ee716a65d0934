"""The server that is killed before a run is in memory: `python -m tests.durability.memory_server FOLDER SOCKET`.

Its memory service makes the file `held`, and waits for the file `continue`.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App, MemoryPolicy
from greenroom.memory.sqlite import SqliteMemoryService
from greenroom.records.event import Event
from greenroom.server.application import create_app
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import ScriptedModel


class HeldMemory(SqliteMemoryService):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "memory.db")
        self._folder = folder

    async def add_events_to_memory(
        self, *, app_name: str, user_id: str, session_id: str, events: Sequence[Event]
    ) -> None:
        with (self._folder / "calls").open("a") as calls:
            calls.write(",".join(event.content.text() for event in events if event.content) + "\n")
        (self._folder / "held").touch()
        while not (self._folder / "continue").exists():
            await asyncio.sleep(0.01)
        await super().add_events_to_memory(app_name=app_name, user_id=user_id, session_id=session_id, events=events)


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    agent = LlmAgent(name="a", model=ScriptedModel(["green tea"]))
    app = create_app(
        agents=[App(name="a", root_agent=agent, memory_policy=MemoryPolicy())],
        session_service=SqliteSessionService(folder / "greenroom.db"),
        memory_service=HeldMemory(folder),
    )
    uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    main()
