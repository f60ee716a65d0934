"""The arguments of `McpToolset`: which of the ways to a server, and whether a file may start a process.

Source: ADK's YAML files; in Python a bare server may be given, in Java servers are `serverParams`, and the path of an
SSE server stands beside its address.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, TypeGuard
from urllib.parse import urljoin

from greenroom.apps.yaml_config.document import Node
from greenroom.apps.yaml_config.keys import known_entries
from greenroom.apps.yaml_config.reader import Reader
from greenroom.tools.mcp.connection_params import (
    ConnectionParams,
    SseConnectionParams,
    StdioConnectionParams,
    StdioServerParameters,
    StreamableHTTPConnectionParams,
)

if TYPE_CHECKING:
    from greenroom.tools.mcp.toolset import McpToolset

ALLOW_STDIO = "ADK_ALLOW_CONFIG_STDIO_MCP_SERVERS"

_CONNECTIONS: dict[str, type[Any]] = {
    "stdio_server_params": StdioServerParameters,
    "stdio_connection_params": StdioConnectionParams,
    "sse_connection_params": SseConnectionParams,
    "sse_server_params": SseConnectionParams,
    "streamable_http_connection_params": StreamableHTTPConnectionParams,
}
_JAVAS_ENDPOINT = "sse"


def is_mcp_toolset(tool: object) -> TypeGuard[type[McpToolset]]:
    home = sys.modules.get("greenroom.tools.mcp.toolset")  # without which there is no such class yet
    return home is not None and isinstance(tool, type) and issubclass(tool, home.McpToolset)


def mcp_toolset(cls: type[McpToolset], args: Node, reader: Reader) -> McpToolset:
    connections, others = known_entries(args, _CONNECTIONS, what="of McpToolset")
    if len(connections) != 1:
        given = f", not {' and '.join(connections)}" if connections else ""
        raise args.error(f"McpToolset needs exactly one of {', '.join(_CONNECTIONS)}{given}")
    ((key, entry),) = connections.items()
    if key.startswith("stdio") and os.environ.get(ALLOW_STDIO, "").lower() not in ("1", "true"):
        raise entry.error(f"would start a process on this machine; set {ALLOW_STDIO}=1 where files may do that")
    rest = args.with_entries(others)
    given_already = {"connection_params": _connection(key, entry, reader)}
    return cls(**reader.read_arguments(rest, cls, what="of McpToolset", given=given_already))


def _connection(key: str, entry: Node, reader: Reader) -> ConnectionParams | StdioServerParameters:
    record, what = _CONNECTIONS[key], f"of {key}"
    given: dict[str, Any] = {}
    if key == "stdio_connection_params":
        servers, others = known_entries(entry, ["server_params"], what=what)
        if "server_params" in servers:
            given["server_params"] = reader.read_record(
                servers["server_params"], StdioServerParameters, what="of server_params"
            )
        entry = entry.with_entries(others)
    if key == "sse_server_params":
        paths, others = known_entries(entry, ["sse_endpoint"], what=what)
        path = paths["sse_endpoint"].text if "sse_endpoint" in paths else _JAVAS_ENDPOINT
        connection = record(**reader.read_arguments(entry.with_entries(others), record, what=what))
        connection.url = urljoin(connection.url, path)
        return connection
    return record(**reader.read_arguments(entry, record, what=what, given=given))
