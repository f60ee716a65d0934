"""Lets a model ask the user for input of any form; the client answers the call with a function response."""

from __future__ import annotations

from typing import Any

from greenroom.tools.functions.long_running_tool import LongRunningFunctionTool


async def _request_input(message: str, response_schema: dict[str, Any] | None = None) -> None:
    """Asks the user for something you need to know and can't find out otherwise, and waits for the answer.

    Args:
        message: What the user is asked, as a complete question.
        response_schema: JSON Schema of the answer, when it has to have a certain form. Left out: free text.
    """


request_input = LongRunningFunctionTool(_request_input, name="adk_request_input", on_interrupt="retry")
