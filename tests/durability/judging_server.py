"""The server that is killed while its judge works: `python -m tests.durability.judging_server FOLDER SOCKET`.

The judge's model notes each question in the file `asked`, and waits for the file `continue`.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import uvicorn

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.run_judge import RunJudge
from greenroom.server.application import create_app
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import ScriptedModel


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))

    async def judged(request: LlmRequest) -> str:
        with (folder / "asked").open("a") as asked:
            asked.write("once\n")
        while not (folder / "continue").exists():
            await asyncio.sleep(0.01)
        return '{"reasoning": "fine", "score": 1}'

    options = {"judge_model": ScriptedModel(judged), "num_samples": 1}
    judge = RunJudge(
        metric="safety_v1", criterion={"judge_model_options": options}, share=1, max_tokens_per_day=1_000_000
    )
    agent = LlmAgent(name="a", model=ScriptedModel(lambda _: "green tea"))
    app = create_app(
        agents=[App(name="a", root_agent=agent, judges=[judge])],
        session_service=SqliteSessionService(folder / "greenroom.db"),
    )
    uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    main()
