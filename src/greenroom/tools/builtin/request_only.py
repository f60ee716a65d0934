"""What tools have in common that a model never calls."""

from __future__ import annotations

from greenroom.errors import ToolError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.tools.tool import BaseTool


class RequestOnlyTool(BaseTool):
    """Declares nothing; its work is `process_llm_request`."""

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        raise ToolError(f"{self.name} only prepares requests; it can't be called")
