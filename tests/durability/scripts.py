"""Scripts for models that survive a restart: what is said next is read from the request, and not counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from greenroom.records.content import FROM_OTHER_AGENTS, Content, FunctionCall
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing.scripted_model import Said, ScriptedModel

TurnOfMessage: TypeAlias = "Said | Callable[[str], Said]"
"""The reply, or a function of the user's message that it answers."""


def model_of(*turns: TurnOfMessage, delay: float = 0.0) -> ScriptedModel:
    """Says the first turn to a user's message, then one more after each of its own replies; the last one again."""

    def answer(request: LlmRequest) -> Said:
        message, replies = conversation(request)
        turn = turns[min(replies, len(turns) - 1)]
        return turn(message) if callable(turn) else turn

    return ScriptedModel(answer, delay=delay)


def conversation(request: LlmRequest) -> tuple[str, int]:
    """The user's newest message, and how often this model has replied since."""
    replies = 0
    for content in reversed(request.contents):
        if content.role == "model":
            replies += 1
        elif is_message(content):
            return content.text(), replies
    return "", replies


def is_message(content: Content) -> bool:
    """True for a user's message, as opposed to function responses, results of code, and texts and calls of other
    agents."""
    others = (FROM_OTHER_AGENTS, "```tool_output")
    return content.role == "user" and content.text() != "" and not content.text().startswith(others)


def call(name: str, call_id: str, **args: str | bool) -> FunctionCall:
    return FunctionCall(id=call_id, name=name, args=dict(args))
