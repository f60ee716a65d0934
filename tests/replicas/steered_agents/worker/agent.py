"""Calls its tool as often as the message `work N` says, then repeats what it was told since."""

from __future__ import annotations

import asyncio

from greenroom import FunctionTool, LlmAgent, LlmRequest
from greenroom.records.content import FunctionCall
from greenroom.testing.scripted_model import Said, ScriptedModel


async def step() -> str:
    """Takes a moment."""
    await asyncio.sleep(0.1)
    return "done"


def _reply(request: LlmRequest) -> Said:
    calls = 0
    told: list[str] = []
    for content in reversed(request.contents):
        text = content.text()
        if content.role == "model" and text:  # the turn of `work N` is over
            return f"You said {told[0]}"
        if text.startswith("work "):
            return FunctionCall(name="step", args={}) if calls < int(text[5:]) else f"told {' '.join(reversed(told))}"
        if content.role == "model":
            calls += 1
        elif text:
            told.append(text)
    return "nothing"


root_agent = LlmAgent(
    name="worker", model=ScriptedModel(_reply), tools=[FunctionTool(step, on_interrupt="retry")], instruction="Work."
)
