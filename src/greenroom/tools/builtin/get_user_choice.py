"""Lets a model give the user a choice; the client answers the call with a function response."""

from __future__ import annotations

from greenroom.invocation.user_context import ToolContext
from greenroom.tools.functions.long_running_tool import LongRunningFunctionTool


async def _get_user_choice(options: list[str], tool_context: ToolContext) -> None:
    """Shows the user some options and waits until one of them is chosen.

    Args:
        options: What the user can choose from, each in a few words.
    """
    tool_context.actions.skip_summarization = True


get_user_choice = LongRunningFunctionTool(_get_user_choice, name="get_user_choice", on_interrupt="retry")
