"""Lets a model end the loop that its agent runs in."""

from __future__ import annotations

from greenroom.invocation.user_context import ToolContext


def exit_loop(tool_context: ToolContext) -> None:
    """Ends the loop you are working in. Call it only when its goal is reached or you were told to stop."""
    tool_context.actions.escalate = True
    tool_context.actions.skip_summarization = True
