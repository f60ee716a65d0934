"""Results and metadata of MCP tools, from the SDK's types to plain JSON."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from greenroom.records.base import JsonObject
from greenroom.records.content import Blob

if TYPE_CHECKING:
    from mcp.types import CallToolResult


_OF_PROTOCOL = "io.modelcontextprotocol/"


def to_map(result: CallToolResult) -> JsonObject:
    """The result of a call as the model sees it.

    It has `content` (a list of texts, images, sounds, resources and links to such), `isError`, and
    `structuredContent` and `meta` if the server sent them; the protocol's own entries of `meta` are
    left out. Images, sounds and binary resources are `Blob`s, which become parts of the function
    response. Source: ADK's MCP tool.
    """
    content = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    for block in content:
        if block["type"] == "resource":
            holder = block["resource"]
            key = "blob"
        else:
            holder = block
            key = "data"

        if key in holder:
            holder[key] = Blob(data=base64.b64decode(holder[key]), mime_type=holder.get("mimeType"))

    answer: JsonObject = {"content": content, "isError": result.is_error}
    if result.structured_content is not None:
        answer["structuredContent"] = result.structured_content

    meta = {name: value for name, value in (result.meta or {}).items() if not name.startswith(_OF_PROTOCOL)}
    if meta:
        answer["meta"] = meta

    return answer


def ui_resource(meta: Mapping[str, Any] | None) -> str | None:
    """The URI of a tool's user interface. Source: MCP Apps, `_meta.ui.resourceUri`."""
    ui: object = (meta or {}).get("ui")
    if not isinstance(ui, Mapping):
        return None

    uri = cast("Mapping[str, object]", ui).get("resourceUri")
    if isinstance(uri, str) and uri.startswith("ui://"):
        return uri

    return None
