"""Tools that end the loop of their agent, or wait for the user."""

from __future__ import annotations

from typing import Any

from greenroom.invocation.user_context import ToolContext
from greenroom.tools.functions.function_tool import LongRunningFunctionTool


def exit_loop(tool_context: ToolContext) -> None:
    """Ends the loop you are working in. Call it only when its goal is reached or you were told to stop."""
    tool_context.actions.escalate = True
    tool_context.actions.skip_summarization = True


async def _get_user_choice(options: list[str], tool_context: ToolContext) -> None:
    """Shows the user some options and waits until one of them is chosen.

    Args:
        options: What the user can choose from, each in a few words.
    """
    tool_context.actions.skip_summarization = True


get_user_choice = LongRunningFunctionTool(
    _get_user_choice,
    name="get_user_choice",
    on_interrupt="retry",
)
get_user_choice_tool = get_user_choice


async def _request_input(message: str, response_schema: dict[str, Any] | None = None) -> None:
    """Asks the user for something you need to know and can't find out otherwise, and waits for the answer.

    Args:
        message: What the user is asked, as a complete question.
        response_schema: JSON Schema of the answer, when it has to have a certain form. Left out: free text.
    """


request_input = LongRunningFunctionTool(
    _request_input,
    name="adk_request_input",
    on_interrupt="retry",
)
