"""The arguments of `McpToolset`: which of the ways to a server, and whether a file may start a process.

Source: ADK's YAML files; in Python a bare server may be given, in Java servers are `serverParams`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from greenroom.apps.yaml_config.document import Node
from greenroom.apps.yaml_config.fields import parameters_of
from greenroom.apps.yaml_config.keys import known_entries
from greenroom.apps.yaml_config.reader import Reader
from greenroom.tools.toolset import BaseToolset

ALLOW_STDIO = "ADK_ALLOW_CONFIG_STDIO_MCP_SERVERS"

_CONNECTIONS = {
    "stdio_server_params": "StdioServerParameters",
    "stdio_connection_params": "StdioConnectionParams",
    "sse_connection_params": "SseConnectionParams",
    "sse_server_params": "SseConnectionParams",
    "streamable_http_connection_params": "StreamableHTTPConnectionParams",
}
"""By key, the class beside McpToolset that it is read as."""


def is_mcp_toolset(tool: object) -> bool:
    return isinstance(tool, type) and tool.__name__ == "McpToolset" and "connection_params" in parameters_of(tool)


def mcp_toolset(cls: type[BaseToolset], args: Node, reader: Reader) -> BaseToolset:
    connections, others = known_entries(args, _CONNECTIONS, what="of McpToolset")
    if len(connections) != 1:
        given = f", not {' and '.join(connections)}" if connections else ""
        raise args.error(f"McpToolset needs exactly one of {', '.join(_CONNECTIONS)}{given}")
    ((key, entry),) = connections.items()
    if key.startswith("stdio") and os.environ.get(ALLOW_STDIO, "").lower() not in ("1", "true"):
        raise entry.error(f"would start a process on this machine; set {ALLOW_STDIO}=1 where files may do that")
    record: Any = getattr(sys.modules[cls.__module__], _CONNECTIONS[key], None)
    if record is None:
        raise entry.error("is not available in this version of greenroom")
    connection = record(**reader.read_arguments(entry, record, what=f"of {key}"))
    rest = args.with_entries(others)
    values = reader.read_arguments(rest, cls, what="of McpToolset", given={"connection_params": connection})
    return cls(**values)
