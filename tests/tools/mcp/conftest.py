"""The bookshop behind each transport."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from greenroom.tools.mcp.connection_params import (
    ConnectionParams,
    SseConnectionParams,
    StdioConnectionParams,
    StdioServerParameters,
    StreamableHTTPConnectionParams,
)
from greenroom.tools.mcp.toolset import McpToolset
from tests.server.serving import serving
from tests.tools.mcp.bookshop import HERE, make_server, note

Transport: TypeAlias = Literal["stdio", "sse", "http"]
MakeToolset: TypeAlias = Callable[..., McpToolset]


class Log:
    """The server's notes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    def process_ids(self) -> list[int]:
        return [int(line.split()[1]) for line in self.lines() if line.startswith("start ")]

    def sessions(self) -> int:
        """Number of servers that were started; over stdio each process is one."""
        return self.lines().count("session") or len(self.process_ids())

    def ports(self) -> list[int]:
        return [int(line.split()[1]) for line in self.lines() if line.startswith("port ")]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    path = tmp_path / "bookshop.log"
    monkeypatch.setenv("BOOKSHOP_LOG", str(path))
    return Log(path)


def stdio(log: Log, timeout: float = 60.0) -> StdioConnectionParams:
    server = StdioServerParameters(command=sys.executable, args=[str(HERE)], env={"BOOKSHOP_LOG": str(log.path)})
    return StdioConnectionParams(server, timeout=timeout)


def noting_sessions(app: ASGIApp) -> ASGIApp:
    """An app that notes when a client begins a session."""

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("path") == "/sse" or (b"mcp-method", b"server/discover") in scope.get("headers", ()):
            note("session")
        await app(scope, receive, send)

    return noting


each_transport = pytest.mark.parametrize("transport", ["stdio", "sse", "http"])
"""For tests of the connection itself. What is sent over it is the same on each."""


@pytest.fixture
def transport() -> Transport:
    return "http"


@pytest.fixture
async def params(transport: Transport, log: Log) -> AsyncIterator[ConnectionParams]:
    if transport == "stdio":
        yield stdio(log)
        return
    server = make_server()
    app = server.sse_app() if transport == "sse" else server.streamable_http_app()
    async with serving(noting_sessions(app)) as running:  # pyright: ignore[reportArgumentType]
        if transport == "sse":
            yield SseConnectionParams(f"{running.url}/sse", timeout=30)
        else:
            yield StreamableHTTPConnectionParams(f"{running.url}/mcp", timeout=30)


@pytest.fixture
async def make(params: ConnectionParams) -> AsyncIterator[MakeToolset]:
    """Toolsets over the transport; closed at the end."""
    made: list[McpToolset] = []

    def toolset(**options: Any) -> McpToolset:
        made.append(McpToolset(connection_params=options.pop("connection_params", params), **options))
        return made[-1]

    yield toolset
    for one in made:
        await one.close()
