"""The `tools` of an agent: from an entry to a function, a tool or a toolset, MCP servers included."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard, cast
from urllib.parse import urljoin

from greenroom.agents.agent import BaseAgent
from greenroom.apps.yaml_config.construct import Args, call_hook, construct
from greenroom.apps.yaml_config.document import ConfigNode
from greenroom.apps.yaml_config.fields import parameters_of
from greenroom.apps.yaml_config.keys import known_entries, name_and_args
from greenroom.apps.yaml_config.reader import ConfigReader
from greenroom.apps.yaml_config.references import References
from greenroom.tools.mcp.connection_params import (
    ConnectionParams,
    SseConnectionParams,
    StdioConnectionParams,
    StdioServerParameters,
    StreamableHTTPConnectionParams,
)
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset

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
_READ_APART = {"stdio_connection_params": ("server_params",), "sse_server_params": ("sse_endpoint",)}
"""Keys whose values have no form by the class's own annotations."""

_JAVA_SSE_PATH = "sse"


def is_mcp_toolset(tool: object) -> TypeGuard[type[McpToolset]]:
    home = sys.modules.get("greenroom.tools.mcp.toolset")  # without which there is no such class yet
    return home is not None and isinstance(tool, type) and issubclass(tool, home.McpToolset)


def mcp_toolset(cls: type[McpToolset], args: ConfigNode, reader: ConfigReader) -> McpToolset:
    connections, others = known_entries(args, _CONNECTIONS, what="of McpToolset")
    if len(connections) != 1:
        listed = f", not {' and '.join(connections)}" if connections else ""
        raise args.error(f"McpToolset needs exactly one of {', '.join(_CONNECTIONS)}{listed}")

    ((key, entry),) = connections.items()
    if key.startswith("stdio") and os.environ.get(ALLOW_STDIO, "").lower() not in ("1", "true"):
        raise entry.error(f"would start a process on this machine; set {ALLOW_STDIO}=1 where files may do that")

    rest = args.with_entries(others)
    given_already = {"connection_params": _connection(key, entry, reader)}

    return cls(**reader.read_arguments(rest, cls, what="of McpToolset", given=given_already))


def _connection(key: str, entry: ConfigNode, reader: ConfigReader) -> ConnectionParams | StdioServerParameters:
    record = _CONNECTIONS[key]
    what = f"of {key}"
    apart, others = known_entries(entry, _READ_APART.get(key, ()), what=what)
    parameters = {
        name: reader.read_record(server, StdioServerParameters, what=f"of {name}")
        for name, server in apart.items()
        if name == "server_params"
    }

    connection = record(**reader.read_arguments(entry.with_entries(others), record, what=what, given=parameters))
    if key == "sse_server_params":
        connection.url = urljoin(
            connection.url,
            apart["sse_endpoint"].text if apart else _JAVA_SSE_PATH,
        )

    return connection


_IMPLICIT_TOOLS = frozenset({"transfer_to_agent", "google.adk.tools.transfer_to_agent"})


class ToolBuilder:
    """Builds the tools of an agent from their entries.

    allow_args: False refuses the arguments of all tools but MCP toolsets, as for files that
    strangers write.
    """

    def __init__(self, references: References, reader: ConfigReader, *, allow_args: bool) -> None:
        self._references = references
        self._reader = reader
        self._allow_args = allow_args

    def build(self, node: ConfigNode) -> BaseTool | BaseToolset | Callable[..., Any] | None:
        """None for a tool that an agent has anyway, as far as it has somebody to hand over to."""
        if not isinstance(node.value, dict):
            raise node.error(f"must be a map with the tool's name, as in {{name: exit_loop}}, not {node.kind}")
        name, args = name_and_args(node, what="of a tool", missing="the tool's")
        if name.text in _IMPLICIT_TOOLS:
            return None
        return self._from(name, self._references.find(name), args)

    def named(self, name: ConfigNode) -> BaseTool | BaseToolset | Callable[..., Any]:
        """The tool of a dotted or registered name, without arguments."""
        return self._from(name, self._references.find(name), None)

    def _from(
        self,
        name: ConfigNode,
        value: object,
        args: ConfigNode | None,
    ) -> BaseTool | BaseToolset | Callable[..., Any]:
        if args is not None and not self._allow_args and not is_mcp_toolset(value):
            raise args.error("arguments are refused in files that are not trusted")

        if isinstance(value, (BaseTool, BaseToolset)):
            if args is not None:
                raise args.error(f"{name.text!r} is a finished tool, which takes no arguments")
            return value

        if isinstance(value, type):
            return self._of_class(name, cast("type[Any]", value), args)

        if isinstance(value, BaseAgent):
            hint = "use the tool AgentTool, with args: {agent: {code: …}}"
            raise name.error(f"{name.text!r} is an agent, not a tool; {hint}")

        if not callable(value):
            raise name.error(f"{name.text!r} is of type {type(value).__name__}, which is no tool")
        if args is None:
            return value

        return self._of_factory(name, value, args)

    def _of_class(self, name: ConfigNode, cls: type[Any], args: ConfigNode | None) -> BaseTool | BaseToolset:
        if not issubclass(cls, (BaseTool, BaseToolset)):
            raise name.error(f"{name.text!r} is a class, but not of tools or toolsets")
        if inspect.isabstract(cls):
            raise name.error(f"{name.text!r} is an abstract class")

        inherited = (BaseTool.from_config.__func__, BaseToolset.from_config.__func__)

        has_hook = getattr(cls.from_config, "__func__", None) not in inherited
        arguments = args if args is not None else name.with_entries({})
        if has_hook:
            make: Callable[[], Any] = partial(
                call_hook,
                cls.from_config,
                arguments.plain_map(),
                name.file.path,
            )
        elif is_mcp_toolset(cls):
            make = partial(mcp_toolset, cls, arguments, self._reader)
        else:
            make = partial(
                cls,
                **self._reader.read_arguments(arguments, cls, what=f"of {cls.__name__}"),
            )

        tool = construct(name, repr(name.text), make)
        if not isinstance(tool, (BaseTool, BaseToolset)):
            raise name.error(f"{name.text!r} made {type(tool).__name__}, which is no tool")

        return tool

    def _of_factory(
        self,
        name: ConfigNode,
        function: Callable[..., Any],
        args: ConfigNode,
    ) -> BaseTool | BaseToolset:
        """Called with the arguments by name, or, as ADK does, with one map if its only parameter is
        none of them.
        """
        parameters = parameters_of(function)
        if "tool_context" in parameters:
            raise args.error(f"{name.text!r} is a tool itself, which has no args")

        single = next(iter(parameters)) if len(parameters) == 1 else "**"
        if single != "**" and single not in known_entries(args, [single], what="")[0]:
            make = partial(function, Args(args.plain_map()))
        else:
            make = partial(
                function,
                **self._reader.read_arguments(args, function, what=f"of {name.text}"),
            )

        tool = construct(name, repr(name.text), make)
        if not isinstance(tool, (BaseTool, BaseToolset)):
            raise name.error(
                f"{name.text!r} was called with args and made {type(tool).__name__}, which is no tool; a function that "
                "is a tool itself has no args"
            )

        return tool
