"""A server with an agent of another framework: `python -m tests.durability.hosted_server FOLDER SOCKET`, of
GREENROOM_FRAMEWORK.

In each turn the model calls a tool twice at once, then once more, then one that a person must approve, and then says how
many texts it has seen. The tools append a line to a file before and after their work.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import uvicorn

from greenroom.server.application import create_app
from greenroom.sessions.sqlite import SqliteSessionService
from tests.agents.frameworks.contract import Framework, Step
from tests.agents.talk import call

APP = "desk"
EFFECTS = "effects.txt"
STEPS = ("a", "b", "c", "pay")
"""The calls of a turn, in order; the first two at once."""


def framework_named(name: str) -> Framework:
    made: Framework = import_module(f"tests.agents.frameworks.{name}_agents").make()
    return made


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    effects = os.open(folder / EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def work(label: str) -> str:
        """Does some work."""
        os.write(effects, f"{label} begin\n".encode())
        await asyncio.sleep(0.02)
        os.write(effects, f"{label} end\n".encode())
        return f"worked {label}"

    async def pay(label: str) -> str:
        """Pays."""
        return await work(label)

    agent = framework_named(os.environ["GREENROOM_FRAMEWORK"]).agent(reply, tools=[work, pay], asks={"pay"})
    app = create_app(agents=[agent], session_service=SqliteSessionService(folder / "greenroom.db"))
    uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning")).run(sockets=[listening])


def reply(texts: Sequence[str]) -> Step:
    """The model's reply to the texts of a conversation. A user's message is the label of its turn."""
    begin = max(index for index, text in enumerate(texts) if text.startswith("turn "))
    label = texts[begin]
    done = len(texts) - begin - 1
    if done == 0:
        return [call("work", f"{label} {step}", label=f"{label} {step}") for step in STEPS[:2]]
    if done == 2:
        return call("work", f"{label} c", label=f"{label} c")
    if done == 3:
        return call("pay", f"{label} pay", label=f"{label} pay")
    return f"I have seen {len(texts)} texts."


if __name__ == "__main__":
    main()
