"""The server that ends while answers are queued: `python -m tests.durability.queued_answers_server FOLDER SOCKET`.

The tools `wait` and `hold` make a file `NAME.entered`, and wait for the file `NAME.open`. The model calls `hold` after
an export of one row.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import uvicorn

from greenroom.agents.llm_agent import LlmAgent
from greenroom.records.content import FunctionCall, FunctionResponse, Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.server.application import create_app
from greenroom.server.settings import ServerSettings
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import Said, ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool, LongRunningFunctionTool


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    app = create_app(
        agents=[_desk(folder)],
        session_service=SqliteSessionService(folder / "greenroom.db"),
        settings=ServerSettings(grace_seconds=0),
    )
    uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning")).run(sockets=[listening])


def _desk(folder: Path) -> LlmAgent:
    async def pause(name: str) -> str:
        (folder / f"{name}.entered").touch()
        while not (folder / f"{name}.open").exists():
            await asyncio.sleep(0.01)
        return name

    async def wait() -> str:
        """Waits."""
        return await pause("wait")

    async def hold() -> str:
        """Waits, too."""
        return await pause("hold")

    tools = [FunctionTool(wait, on_interrupt="retry"), FunctionTool(hold, on_interrupt="retry")]
    return LlmAgent(name="desk", model=ScriptedModel(reply), tools=[*tools, LongRunningFunctionTool(export)])


def export() -> None:
    """Answers later."""


def reply(request: LlmRequest) -> Said:
    """Makes the calls that the newest message names, as in `export a, wait`, and ends the turn after a result."""
    responses = [response for content in request.contents for response in _responses(content.parts)]
    has_one_row = any((response.response or {}).get("rows") == 1 for response in responses)
    if has_one_row and not any(response.name == "hold" for response in responses):
        return FunctionCall(id="c-hold", name="hold", args={})

    for content in reversed(request.contents):
        if any(response.response for response in _responses(content.parts)):
            return "done"
        if content.role == "user" and content.text():
            calls = [entry.split() for entry in content.text().split(", ")]
            return [FunctionCall(id=f"c-{words[-1]}", name=words[0], args={}) for words in calls]
    return "nothing to do"


def _responses(parts: list[Part] | None) -> list[FunctionResponse]:
    return [part.function_response for part in parts or () if part.function_response is not None]


if __name__ == "__main__":
    main()
