"""Lets a model look into the resources of an MCP server."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from greenroom.errors import ToolError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Blob, Content, Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.builtin.artifact_contents import readable_part
from greenroom.tools.mcp.pool import McpSessions
from greenroom.tools.tool import BaseTool

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import Resource

    from greenroom.tools.mcp.tool import HeaderSource

_NAME = "load_mcp_resource"


class LoadMcpResourceTool(BaseTool):
    """Each request lists the resources' names; what the model asked for is shown in the request that follows its call.

    Source: ADK's tool of that name.
    """

    def __init__(self, sessions: McpSessions, headers: HeaderSource) -> None:
        super().__init__(
            name=_NAME,
            description="Shows you the contents of resources of a tool server, for your next answer only.",
            on_interrupt="retry",
        )
        self._sessions = sessions
        self._headers = headers

    def _get_declaration(self) -> FunctionDeclaration:
        names = {
            "type": "array",
            "items": {"type": "string"},
            "description": "Names of the resources to look into, as they are listed in your instructions.",
        }
        return FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema={"type": "object", "properties": {"resource_names": names}},
        )

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        given: object = args.get("resource_names") or []
        if not isinstance(given, list) or not all(isinstance(name, str) for name in cast("list[object]", given)):
            return {
                "error": "resource_names must be a list of names, each a text.",
                "error_code": "INVALID_ARGUMENTS",
            }
        status = "The contents of those that exist follow, for this once; call again to see them later."
        return {"resource_names": cast("list[str]", given), "status": status}

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        await super().process_llm_request(tool_context=tool_context, llm_request=llm_request)
        headers = await self._headers(tool_context)
        names = await self._sessions.request(headers, resource_names, may_repeat=True)
        if not names:
            return
        listed = "\n".join(f"- {name}" for name in names)
        llm_request.append_instructions(
            [f"You can look into these resources by calling `{self.name}` with their names:\n{listed}"]
        )
        for name in self._asked_for(llm_request):
            if name not in names:
                continue
            parts = await self._sessions.request(headers, _reading(name), may_repeat=True)
            shown = [Part(text=f"Resource {name} is:"), *(readable_part(name, part) for part in parts)]
            llm_request.contents.append(Content(role="user", parts=shown))

    def _asked_for(self, llm_request: LlmRequest) -> list[str]:
        last = llm_request.contents[-1] if llm_request.contents else Content()
        names: list[str] = []
        for part in last.parts or ():
            response = part.function_response
            if response is not None and response.name == self.name:
                names += cast("list[str]", (response.response or {}).get("resource_names") or [])
        return list(dict.fromkeys(names))


async def resource_names(client: Client) -> list[str]:
    return [resource.name for resource in await _resources(client)]


async def read_resource(client: Client, name: str) -> list[Part]:
    """Raises ToolError when there is none of that name."""
    found = next((resource for resource in await _resources(client) if resource.name == name), None)
    if found is None:
        raise ToolError(f"There is no resource {name!r}")
    return list(_parts((await client.read_resource(str(found.uri))).contents))


def _reading(name: str) -> Any:
    async def read(client: Client) -> list[Part]:
        return await read_resource(client, name)

    return read


async def _resources(client: Client) -> list[Resource]:
    if client.server_capabilities.resources is None:
        return []
    found: list[Resource] = []
    cursor: str | None = None
    while True:
        page = await client.list_resources(cursor=cursor)
        found += page.resources
        cursor = page.next_cursor
        if cursor is None:
            return found


def _parts(contents: Iterable[Any]) -> Iterable[Part]:
    for one in contents:
        text: str | None = getattr(one, "text", None)
        if text is not None:
            yield Part(text=text)
        else:
            yield Part(inline_data=Blob(data=base64.b64decode(one.blob), mime_type=one.mime_type))
