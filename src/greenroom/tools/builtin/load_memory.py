"""A tool by which the model searches the memory of earlier conversations."""

from __future__ import annotations

from greenroom.invocation.user_context import ToolContext
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.listings import LoadMemoryResponse
from greenroom.records.model_exchange import LlmRequest
from greenroom.tools.functions.function_tool import FunctionTool


async def _load_memory(query: str, tool_context: ToolContext) -> JsonObject:
    """Searches the memory of earlier conversations with this user.

    Args:
        query: Words that the wanted memories contain.
    """
    found = await tool_context.search_memory(query)
    return wire.to_plain(LoadMemoryResponse(memories=found.memories))


class LoadMemoryTool(FunctionTool):
    """Can also be called from other tools: `await load_memory("query", tool_context)`."""

    def __init__(self) -> None:
        super().__init__(_load_memory, name="load_memory", on_interrupt="retry")

    @property
    def load_memory_tool(self) -> LoadMemoryTool:
        """The tool itself, for code that expects ADK's module of this name."""
        return self

    @property
    def LoadMemoryTool(self) -> type[LoadMemoryTool]:  # noqa: N802
        """The class, for code that takes the name for ADK's module."""
        return LoadMemoryTool

    async def __call__(self, query: str, tool_context: ToolContext) -> JsonObject:
        return await _load_memory(query, tool_context)

    async def process_llm_request(
        self,
        *,
        tool_context: ToolContext,
        llm_request: LlmRequest,
    ) -> None:
        await super().process_llm_request(tool_context=tool_context, llm_request=llm_request)
        llm_request.append_instructions(
            [
                "You remember earlier conversations with this user. When an answer may depend on something that is "
                f"not in this conversation, look for it first: call `{self.name}` with the words to search for."
            ]
        )


load_memory = LoadMemoryTool()
load_memory_tool = load_memory
"""ADK's name, which is also that of the module that holds the tool; both uses work."""
