"""The contract of a set of tools that is only known while running."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from greenroom.invocation.user_context import ReadonlyContext
from greenroom.records.auth import AuthConfig
from greenroom.tools.tool import BaseTool

ToolPredicate = Callable[[BaseTool, ReadonlyContext | None], bool]


class BaseToolset(ABC):
    """tool_filter: names, or a predicate; None or an empty list lets all tools through."""

    def __init__(self, *, tool_filter: Sequence[str] | ToolPredicate | None = None) -> None:
        self.tool_filter = tool_filter

    @abstractmethod
    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """The tools for this context. Asked before each request to a model: keep what takes long to find out."""

    def get_auth_config(self) -> AuthConfig | None:
        """What the toolset needs to list its tools. The user is asked for it, and `get_tools` is called when it is
        there: `readonly_context.get_auth_response(config)`."""
        return None

    def is_selected(self, tool: BaseTool, readonly_context: ReadonlyContext | None) -> bool:
        if callable(self.tool_filter):
            return self.tool_filter(tool, readonly_context)
        return not self.tool_filter or tool.name in self.tool_filter

    async def close(self) -> None:
        """Let go of connections and processes."""
