"""Declarations of tools in MCP's form, for MCP servers that offer tools of this library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenroom.records.base import JsonObject
from greenroom.records.tool_declaration import FunctionDeclaration, Schema
from greenroom.tools.mcp.connection import check_installed
from greenroom.tools.tool import BaseTool

if TYPE_CHECKING:
    from mcp import types


def adk_to_mcp_tool_type(tool: BaseTool) -> types.Tool:
    """A tool as an MCP server lists it. A tool without a declaration takes no arguments. Raises
    MissingExtra.
    """
    check_installed()
    from mcp import types

    declaration = tool._get_declaration() or FunctionDeclaration()
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=declaration.json_schema(),
    )


def gemini_to_json_schema(gemini_schema: Schema) -> JsonObject:
    """A `types.Schema` as JSON Schema."""
    return FunctionDeclaration(parameters=gemini_schema).json_schema()
