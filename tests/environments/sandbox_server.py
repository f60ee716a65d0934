"""A server with an agent for each sandbox of this machine, which runs the code in the user's message:
`python -m tests.environments.sandbox_server FOLDER SOCKET`.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import uvicorn

from greenroom.agents.llm_agent import LlmAgent
from greenroom.code_executors.sandboxed import SandboxCodeExecutor
from greenroom.records.content import Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.server.application import create_app
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import ScriptedModel
from tests.environments.local_sandboxes import SANDBOXES

SECONDS = 5.0


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    agents = [
        LlmAgent(
            name=name,
            model=ScriptedModel(_reply),
            code_executor=SandboxCodeExecutor(make(), timeout_seconds=SECONDS),
        )
        for name, make in SANDBOXES.items()
    ]
    app = create_app(agents=agents, session_service=SqliteSessionService(folder / "greenroom.db"))
    uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning")).run(sockets=[listening])


def _reply(request: LlmRequest) -> Part | str:
    text = request.contents[-1].text()
    if text.startswith("```tool_output"):
        return "Done."
    return Part.from_executable_code(code=text)


if __name__ == "__main__":
    main()
