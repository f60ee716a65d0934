"""How an MCP server is reached.

Source of names and defaults: ADK's MCP session parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

CONNECT_SECONDS = 5.0
READ_SECONDS = 300.0

HttpxClientFactory: TypeAlias = Callable[..., Any]
"""Called with `headers`, `timeout` and `auth`; makes a client of the HTTP library that the MCP SDK works with."""


class ServerCommand(Protocol):
    """How a server process is started; the MCP SDK's own `StdioServerParameters` will do, too."""

    @property
    def command(self) -> str: ...
    @property
    def args(self) -> list[str]: ...
    @property
    def env(self) -> dict[str, str] | None: ...
    @property
    def cwd(self) -> str | Path | None: ...


@dataclass
class StdioServerParameters:
    """A server that is started as a process here, and spoken to through its input and output.

    env: on top of the few variables (`PATH`, `HOME` …) that it inherits.
    """

    command: str
    args: list[str] = field(default_factory=list[str])
    env: dict[str, str] | None = None
    cwd: str | Path | None = None


@dataclass
class StdioConnectionParams:
    """timeout: seconds until the server must have said hello."""

    server_params: ServerCommand
    timeout: float = CONNECT_SECONDS


@dataclass
class SseConnectionParams:
    """The older transport over HTTP. timeout: seconds for the connection and for each request to be taken;
    sse_read_timeout: seconds for an answer."""

    url: str
    headers: Mapping[str, str] | None = None
    timeout: float = CONNECT_SECONDS
    sse_read_timeout: float = READ_SECONDS
    httpx_client_factory: HttpxClientFactory | None = None


@dataclass
class StreamableHTTPConnectionParams:
    """timeout: seconds for the connection and for each request to be taken; sse_read_timeout: seconds for an answer.
    terminate_on_close: tell the server when the session is over."""

    url: str
    headers: Mapping[str, str] | None = None
    timeout: float = CONNECT_SECONDS
    sse_read_timeout: float = READ_SECONDS
    terminate_on_close: bool = True
    httpx_client_factory: HttpxClientFactory | None = None


StreamableHTTPServerParams = StreamableHTTPConnectionParams
"""ADK's earlier name."""

ConnectionParams: TypeAlias = StdioConnectionParams | SseConnectionParams | StreamableHTTPConnectionParams


def describe(params: ConnectionParams) -> str:
    """For messages: without arguments, queries and passwords, which may be secret."""
    if isinstance(params, StdioConnectionParams):
        return f"MCP server {params.server_params.command!r}"
    scheme, _, rest = params.url.partition("://")
    return f"MCP server {scheme}://{rest.partition('?')[0].rpartition('@')[2]}"
