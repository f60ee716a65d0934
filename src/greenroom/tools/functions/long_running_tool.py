"""A function whose real answer comes later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from greenroom.records.base import JsonObject
from greenroom.tools.confirmation import ConfirmationPredicate
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.tool import OnInterrupt


class LongRunningFunctionTool(FunctionTool):
    """The function only starts the work. What it returns is a first word for the model; nothing leaves the call open.

    The result is sent later by a client, as a function response with the call's id.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        *,
        require_confirmation: bool | ConfirmationPredicate = False,
        on_interrupt: OnInterrupt = "report",
        name: str | None = None,
        description: str | None = None,
        custom_metadata: JsonObject | None = None,
    ) -> None:
        super().__init__(
            func,
            require_confirmation=require_confirmation,
            on_interrupt=on_interrupt,
            name=name,
            description=description,
            custom_metadata=custom_metadata,
            is_long_running=True,
        )
