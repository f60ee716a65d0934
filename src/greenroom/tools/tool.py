"""The contract of a tool."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.tool_declaration import FunctionDeclaration

OnInterrupt = Literal["report", "retry"]
"""What becomes of a call that was cut off by a crash, so that nobody knows whether it had its effect: the model is told
so, or the call is made again with the same idempotency key."""


class BaseTool(ABC):
    """Something that an agent's model can call.

    is_long_running: the real answer comes in a later message; what `run_async` returns is only a first word.
    custom_metadata: JSON that is carried along for whoever lists tools.
    """

    def __init__(
        self,
        *,
        name: str,
        description: str,
        is_long_running: bool = False,
        on_interrupt: OnInterrupt = "report",
        custom_metadata: JsonObject | None = None,
    ) -> None:
        self.name = name
        self.description = description
        self.is_long_running = is_long_running
        self.on_interrupt: OnInterrupt = on_interrupt
        self.custom_metadata: JsonObject = custom_metadata or {}

    def _get_declaration(self) -> FunctionDeclaration | None:
        """What the model is shown; None for a tool that only edits requests. Raises ToolDeclarationError."""
        return None

    @abstractmethod
    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        """Do the work. Whatever isn't a JSON object is wrapped as `{"result": value}`.

        A long-running tool that returns nothing leaves its call open.
        """

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        """Make the tool known to the model: by default, add its declaration."""
        declaration = self._get_declaration()
        if declaration is not None:
            llm_request.add_declaration(declaration, self)
