"""A server whose runs sleep: `python -m tests.durability.sleeping_server FOLDER SOCKET`, on SQLite or GREENROOM_URI."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import uvicorn

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflow.nodes import node
from greenroom.agents.workflow.workflow import Workflow
from greenroom.invocation.user_context import Context
from greenroom.records.content import FunctionCall
from greenroom.server.application import create_app
from greenroom.sessions.service import BaseSessionService
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import Said
from greenroom.tools.builtin.sleep import wait, wait_for
from tests.durability.scripts import model_of

APP = "desk"
FLOW = "flow"
"""An app whose node sleeps twice, for the seconds in the user's message."""
LAST = "Awake."


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    agent = LlmAgent(name=APP, model=model_of(_calls, LAST), tools=[wait, wait_for])
    flow = Workflow(name=FLOW, edges=[("START", node(_sleep_twice, rerun_on_resume=True, on_interrupt="retry"))])
    app = create_app(agents=[agent, flow], session_service=sessions_in(folder))
    uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning")).run(sockets=[listening])


def sessions_in(folder: Path) -> BaseSessionService:
    uri = os.environ.get("GREENROOM_URI")
    if uri:
        from greenroom.sessions.postgres import PostgresSessionService

        return PostgresSessionService(uri)
    return SqliteSessionService(folder / "greenroom.db")


async def _sleep_twice(ctx: Context, node_input: float) -> str:
    for _ in range(2):
        await ctx.sleep(node_input)
    return LAST


def _calls(message: str) -> Said:
    """Makes the call in the user's message: its name and its arguments as JSON. Answers a message without one."""
    name, _, args = message.partition(" ")
    if not args:
        return LAST
    return FunctionCall(name=name, args=json.loads(args))


if __name__ == "__main__":
    main()
