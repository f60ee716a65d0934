"""The server that is killed while a workflow waits: `python -m tests.durability.workflow_server FOLDER SOCKET`."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import uvicorn

from greenroom.agents.workflow.workflow import Workflow
from greenroom.records.human_requests import RequestInput
from greenroom.server.application import create_app
from greenroom.sessions.sqlite import SqliteSessionService

APP = "desk"


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    app = create_app(agents=[_desk(folder)], session_service=SqliteSessionService(folder / "greenroom.db"))
    uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning")).run(sockets=[listening])


def _desk(folder: Path) -> Workflow:
    def order(node_input: str) -> str:
        return node_input.upper()

    def ask(node_input: str) -> RequestInput:
        return RequestInput(interrupt_id="q-1", message=f"Take {node_input}?", response_schema=int)

    def book(node_input: int) -> dict[str, int]:
        with (folder / "booked").open("a") as diary:
            diary.write(f"{node_input}\n")
        return {"guests": node_input}

    return Workflow(name=APP, edges=[("START", order, ask, book)])


if __name__ == "__main__":
    main()
