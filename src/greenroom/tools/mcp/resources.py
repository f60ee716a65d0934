"""The resources of an MCP server, and a tool by which the model reads them."""

from __future__ import annotations

import base64
from functools import partial
from typing import TYPE_CHECKING, Any

from greenroom.errors import ToolError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.content import Blob, Content, Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.tools.builtin.artifact_contents import readable_part
from greenroom.tools.builtin.load_artifacts import LoadContentsTool
from greenroom.tools.mcp.connection import CallerSource, McpSessions, all_pages

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import Resource


class LoadMcpResourceTool(LoadContentsTool):
    """Lists the names of the server's resources in each request, and shows the requested ones.

    Source: ADK's tool of that name.
    """

    def __init__(self, sessions: McpSessions, caller: CallerSource) -> None:
        super().__init__(
            "load_mcp_resource",
            "Shows you the contents of resources of a tool server, for your next answer only.",
            contents="resources",
            status="The contents of those that exist follow, for this once; call again to see them later.",
        )
        self._sessions = sessions
        self._caller = caller

    async def process_llm_request(
        self,
        *,
        tool_context: ToolContext,
        llm_request: LlmRequest,
    ) -> None:
        await super().process_llm_request(tool_context=tool_context, llm_request=llm_request)
        caller = await self._caller(tool_context)

        names = await self._sessions.request(caller, resource_names, may_repeat=True)
        if not names:
            return

        listed = "\n".join(f"- {name}" for name in names)
        llm_request.append_instructions(
            [f"You can look into these resources by calling `{self.name}` with their names:\n{listed}"]
        )

        for name in self.requested_names(llm_request):
            if name not in names:
                continue

            parts = await self._sessions.request(
                caller,
                partial(read_resource, name),
                may_repeat=True,
            )
            shown = [Part(text=f"Resource {name} is:"), *(readable_part(name, part) for part in parts)]
            llm_request.contents.append(Content(role="user", parts=shown))


async def resource_names(client: Client) -> list[str]:
    return [resource.name for resource in await _resources(client)]


async def read_resource(name: str, client: Client) -> list[Part]:
    """Raises ToolError when there is none of that name."""
    match = next((resource for resource in await _resources(client) if resource.name == name), None)
    if match is None:
        raise ToolError(f"There is no resource {name!r}")
    return [_part(content) for content in (await client.read_resource(str(match.uri))).contents]


async def _resources(client: Client) -> list[Resource]:
    if client.server_capabilities.resources is None:
        return []
    return await all_pages(client.list_resources, lambda page: page.resources)


def _part(content: Any) -> Part:
    text: str | None = getattr(content, "text", None)
    if text is not None:
        return Part(text=text)
    return Part(inline_data=Blob(data=base64.b64decode(content.blob), mime_type=content.mime_type))
