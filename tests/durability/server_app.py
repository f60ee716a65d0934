"""The server that is killed: `python -m tests.durability.server_app FOLDER LISTENING_SOCKET`.

What its model says is read from the conversation, so a new process continues where the killed one was.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from pathlib import Path

import uvicorn

from greenroom.agents.llm_agent import LlmAgent
from greenroom.invocation.user_context import ToolContext
from greenroom.records.content import FunctionCall, Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.server.application import create_app
from greenroom.server.settings import ServerSettings
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import Said, ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool
from tests.durability.scripts import call, conversation

APP = "desk"
KINDS = 4
"""Number of different conversations; the number in the message selects one."""

CHUNK_SECONDS = float(os.environ.get("CHUNK_SECONDS", "0.005"))
TOOL_SECONDS = float(os.environ.get("TOOL_SECONDS", "0.05"))
GRACE_SECONDS = float(os.environ.get("GRACE_SECONDS", "0.1"))


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    app = create_app(
        agents=[_desk(folder / "tools.jsonl")],
        session_service=SqliteSessionService(folder / "greenroom.db"),
        settings=ServerSettings(grace_seconds=GRACE_SECONDS, keep_alive_seconds=1.0),
    )
    config = uvicorn.Config(app, lifespan="on", log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listening])


def _desk(diary: Path) -> LlmAgent:
    tools = _Tools(diary)
    charge, lookup = FunctionTool(tools.charge), FunctionTool(tools.lookup, on_interrupt="retry")
    clerk = LlmAgent(name="clerk", model=_model(_clerk_says), tools=[lookup], output_key="receipt")
    return LlmAgent(name=APP, model=_model(_desk_says), tools=[charge, lookup], sub_agents=[clerk])


class _Tools:
    """Each call leaves a line on disk when it begins and one when it ends."""

    def __init__(self, diary: Path) -> None:
        self._diary = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def charge(self, order: str, tool_context: ToolContext) -> dict[str, str]:
        """Charges for an order."""
        self._note("begin", "charge", tool_context)
        await asyncio.sleep(TOOL_SECONDS)
        tool_context.state.setdefault("orders", []).append(order)
        tool_context.state[f"user:{tool_context.session.id}:{order}"] = "charged"
        self._note("end", "charge", tool_context)
        return {"charged": order}

    async def lookup(self, order: str, tool_context: ToolContext) -> dict[str, str]:
        """Looks an order up."""
        self._note("begin", "lookup", tool_context)
        await asyncio.sleep(TOOL_SECONDS * 0.7)
        tool_context.state[f"app:{tool_context.session.id}:{order}"] = "known"
        if "draft" in tool_context.state:
            del tool_context.state["draft"]
        else:
            tool_context.state["draft"] = {"order": order}
        self._note("end", "lookup", tool_context)
        return {"found": order}

    def _note(self, phase: str, tool: str, tool_context: ToolContext) -> None:
        line = {
            "phase": phase,
            "tool": tool,
            "session": tool_context.session.id,
            "call": tool_context.function_call_id,
            "key": tool_context.idempotency_key,
            "process": os.getpid(),
            "time": time.time(),
        }
        os.write(self._diary, json.dumps(line).encode() + b"\n")
        os.fsync(self._diary)


def _model(says: list[list[list[str]]]) -> ScriptedModel:
    """says: the replies of each kind of conversation; each a list of texts and names of tools to call."""

    def answer(request: LlmRequest) -> Said:
        order, replies = conversation(request)
        course = says[int(order) % KINDS]
        reply = course[min(replies, len(course) - 1)]
        return [_part(said, order, f"{replies}-{place}") for place, said in enumerate(reply)]

    return ScriptedModel(answer, delay=CHUNK_SECONDS)


def _part(said: str, order: str, where: str) -> Part | FunctionCall:
    if said in ("to clerk", "to desk"):
        return call("transfer_to_agent", f"{order}-{said}-{where}", agent_name=said.removeprefix("to "))
    if said.startswith("clerk:"):
        return call(said.removeprefix("clerk:"), f"{order}-clerk-{where}", order=order)
    if said in ("charge", "lookup"):
        return call(said, f"{order}-desk-{where}", order=order)
    return Part(text=said.format(order=order))


LAST_WORD = "This is all there is to say about {order}, and it takes a while to say it because chunks are slow."
_desk_says = [
    [[LAST_WORD]],
    [["I will see to {order} at once.", "charge"], [LAST_WORD]],
    [["charge", "lookup"], ["to clerk"]],
    [["lookup", "lookup"], ["Now the money for {order}.", "charge", "lookup", "charge"], ["charge"], [LAST_WORD]],
]
_clerk_says = [[["to desk"]], [["to desk"]], [["One moment please.", "clerk:lookup"], [LAST_WORD]], [["to desk"]]]


if __name__ == "__main__":
    main()
