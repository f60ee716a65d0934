"""How an agent in a live sequence says that it is done, since its connection has no end of its own."""

from __future__ import annotations

from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.tool import BaseTool

TASK_COMPLETED = "task_completed"


class TaskCompletedTool(BaseTool):
    """Source of the name: ADK's sequential agent."""

    instruction = (
        f"When you have done what you are for, and the user has nothing more for you, call `{TASK_COMPLETED}` so that "
        "the next agent can begin. Write no text beside the call."
    )

    def __init__(self) -> None:
        super().__init__(name=TASK_COMPLETED, description="Says that this agent is done.", on_interrupt="retry")

    def _get_declaration(self) -> FunctionDeclaration:
        return FunctionDeclaration(name=self.name, description=self.description)

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        return {"result": "The next agent takes over."}
