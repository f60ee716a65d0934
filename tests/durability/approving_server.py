"""A server whose calls others approve: `python -m tests.durability.approving_server FOLDER SOCKET`, on SQLite or
GREENROOM_URI, with an audit trail if GREENROOM_AUDIT_KEY names a key."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import uvicorn

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.records.approval_policy import ApprovalPolicy
from greenroom.records.content import FunctionCall
from greenroom.server.application import create_app
from greenroom.server.settings import AuditSettings, ServerSettings
from greenroom.testing.scripted_model import Said
from greenroom.tools.functions.function_tool import FunctionTool
from tests.durability.scripts import model_of
from tests.durability.sleeping_server import sessions_in

APP = "till"
LAST = "Done."
PAID = "paid.txt"
"""The file in the server's folder that has a line for each call."""
TWO = ApprovalPolicy(users=["bob", "carol", "dave"], required=2)
BY_DEADLINE = ApprovalPolicy(users=["bob", "carol", "dave"], required=3, deadline_seconds=5.0, default="approve")


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))

    def pay(number: int) -> dict[str, int]:
        """Pays."""
        with (folder / PAID).open("a") as file:
            file.write(f"{number}\n")
        return {"paid": number}

    def who_approves(number: int) -> ApprovalPolicy:
        return BY_DEADLINE if number % 4 == 3 else TWO

    agent = LlmAgent(
        name=APP, model=model_of(_calls, LAST), tools=[FunctionTool(pay, require_confirmation=who_approves)]
    )
    settings = ServerSettings(audit=AuditSettings(key=os.environ.get("GREENROOM_AUDIT_KEY"), sign_seconds=1.0))
    apps = [App(name=APP, root_agent=agent)]
    app = create_app(agents=apps, session_service=sessions_in(folder), settings=settings)
    uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning")).run(sockets=[listening])


def _calls(message: str) -> Said:
    """Pays the number in the user's message. Answers a message without one."""
    return FunctionCall(name="pay", args={"number": int(message)}) if message.isdecimal() else LAST


if __name__ == "__main__":
    main()
