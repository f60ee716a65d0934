"""The base of toolsets whose tools are functions over Google's REST APIs."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.invocation.user_context import ReadonlyContext
from greenroom.tools.google_cloud.google_tool import GoogleTool
from greenroom.tools.google_cloud.rest_api import GoogleRestApi
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset, ToolPredicate


class GoogleCloudToolset(BaseToolset):
    """apis: closed with the toolset."""

    def __init__(
        self,
        tools: Sequence[GoogleTool],
        apis: Sequence[GoogleRestApi],
        *,
        tool_filter: Sequence[str] | ToolPredicate | None,
        tool_name_prefix: str | None,
    ) -> None:
        super().__init__(tool_filter=tool_filter, tool_name_prefix=tool_name_prefix)
        self._tools = tools
        self._apis = apis

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        return [tool for tool in self._tools if self.is_selected(tool, readonly_context)]

    async def close(self) -> None:
        for api in self._apis:
            await api.aclose()
