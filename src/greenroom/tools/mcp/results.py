"""What an MCP server answers, as the map that a function response holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from greenroom.records.base import JsonObject

if TYPE_CHECKING:
    from mcp.types import CallToolResult


_OF_PROTOCOL = "io.modelcontextprotocol/"


def to_map(result: CallToolResult) -> JsonObject:
    """`content` (a list of texts, images, sounds, resources and links to such, each as it came), `isError`,
    `structuredContent` and `meta`, the last two if the server sent them; what the protocol puts into `meta` is left
    out. Source: ADK's MCP tool."""
    answer: JsonObject = {
        "content": [_plain(block) for block in result.content],
        "isError": result.is_error,
    }
    if result.structured_content is not None:
        answer["structuredContent"] = result.structured_content
    meta = {name: value for name, value in (result.meta or {}).items() if not name.startswith(_OF_PROTOCOL)}
    if meta:
        answer["meta"] = meta
    return answer


def _plain(block: Any) -> JsonObject:
    return cast("JsonObject", block.model_dump(mode="json", by_alias=True, exclude_none=True))


def ui_resource(meta: Mapping[str, Any] | None) -> str | None:
    """The user interface that a tool brings along. Source: MCP Apps, `_meta.ui.resourceUri`."""
    ui: object = (meta or {}).get("ui")
    uri = cast("Mapping[str, object]", ui).get("resourceUri") if isinstance(ui, Mapping) else None
    return uri if isinstance(uri, str) and uri.startswith("ui://") else None
