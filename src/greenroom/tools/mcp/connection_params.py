"""Parameters of connections to MCP servers.

Source of names and defaults: ADK's MCP session parameters.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

from greenroom.errors import AgentConfigError

START_SECONDS = "GREENROOM_MCP_START_SECONDS"
"""Variable with the time that a server process has to start, where its parameters set none; 60
seconds without it.
"""

CONNECT_SECONDS = 5.0
READ_SECONDS = 300.0

HttpxClientFactory: TypeAlias = Callable[..., Any]
"""Called with `headers`, `timeout` and `auth`; returns a client of the MCP SDK's HTTP library."""


class ServerCommand(Protocol):
    """The command of a server process; the MCP SDK's own `StdioServerParameters` matches, too."""

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
    """A server process that is started on this machine, and reached through its standard input and
    output.
    """

    command: str
    args: list[str] = field(default_factory=list[str])
    env: dict[str, str] | None = None
    """In addition to the few variables (`PATH`, `HOME` …) that it inherits."""

    cwd: str | Path | None = None


def _start_seconds() -> float:
    """Raises AgentConfigError for a variable that is not a positive number."""
    text = os.environ.get(START_SECONDS, "60")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0

    if not 0 < seconds < math.inf:
        raise AgentConfigError(f"{START_SECONDS} must be a number of seconds above 0, not {text[:100]!r}")

    return seconds


@dataclass
class StdioConnectionParams:
    """A server that is started as a process and spoken to over its standard streams."""

    server_params: ServerCommand
    """Also as a dict."""

    timeout: float = field(default_factory=_start_seconds)
    """Seconds for starting the process and initializing the session.

    ADK's default of 5 is too short for package runners such as `npx`, which download a server at
    its first start.
    """

    def __post_init__(self) -> None:
        given: object = self.server_params
        if isinstance(given, Mapping):
            self.server_params = StdioServerParameters(**cast("Mapping[str, Any]", given))


@dataclass
class _HttpConnectionParams:
    """A server that is reached over HTTP."""

    url: str
    headers: Mapping[str, str] | None = None
    timeout: float = CONNECT_SECONDS
    """Seconds for connecting and for accepting each request."""

    sse_read_timeout: float = READ_SECONDS
    """Seconds for an answer."""

    httpx_client_factory: HttpxClientFactory | None = None


@dataclass
class SseConnectionParams(_HttpConnectionParams):
    """The older HTTP transport."""


@dataclass
class StreamableHTTPConnectionParams(_HttpConnectionParams):
    """A server that speaks the streamable HTTP transport."""

    terminate_on_close: bool = True
    """Sends the server a request to end the session."""


StreamableHTTPServerParams = StreamableHTTPConnectionParams
"""ADK's earlier name."""

ConnectionParams: TypeAlias = StdioConnectionParams | SseConnectionParams | StreamableHTTPConnectionParams


def to_connection_params(params: ConnectionParams | ServerCommand) -> ConnectionParams:
    """A server's command alone becomes a connection with the default timeout."""
    if isinstance(params, (StdioConnectionParams, SseConnectionParams, StreamableHTTPConnectionParams)):
        return params
    return StdioConnectionParams(params)


def describe(params: ConnectionParams) -> str:
    """The server's name in messages, without arguments, queries and passwords, which may be secret."""
    if isinstance(params, StdioConnectionParams):
        return f"MCP server {params.server_params.command!r}"
    scheme, _, rest = params.url.partition("://")
    return f"MCP server {scheme}://{rest.partition('?')[0].rpartition('@')[2]}"
