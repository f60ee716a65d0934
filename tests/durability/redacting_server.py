"""A server of an app with rules of redaction: `python -m tests.durability.redacting_server FOLDER SOCKET`."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import uvicorn

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.records.content import FunctionCall
from greenroom.records.model_exchange import LlmRequest
from greenroom.redaction.rules import Redaction
from greenroom.server.application import create_app
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import Said, ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool

MAIL = "ada@example.com"
PHONE = "+49 30 901820"


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))

    async def look_up(who: str) -> str:
        """Looks a person up."""
        (folder / "begun").write_text("")
        while not (folder / "may-go-on").exists():
            await asyncio.sleep(0.01)
        return f"{who[::-1]}, and {PHONE}"  # backwards, since the rules don't find that

    tool = FunctionTool(look_up, on_interrupt="retry")
    agent = LlmAgent(name="desk", model=ScriptedModel(_reply), tools=[tool])
    app = App(name="desk", root_agent=agent, redaction=Redaction(patterns=["email", "phone"]))
    server = create_app(agents=[app], session_service=SqliteSessionService(folder / "greenroom.db"))
    uvicorn.Server(uvicorn.Config(server, lifespan="on", log_level="warning")).run(sockets=[listening])


def _reply(request: LlmRequest) -> Said:
    """Calls the tool, then answers with all that it sees, backwards."""
    parts = [part for content in request.contents for part in content.parts or ()]
    if parts[-1].function_response is None:
        return FunctionCall(name="look_up", args={"who": f"{parts[-1].text} <{MAIL}>"})
    return repr(parts)[::-1]


if __name__ == "__main__":
    main()
