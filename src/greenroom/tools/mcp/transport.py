"""The MCP SDK's clients for the ways to a server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from greenroom.errors import MissingExtra
from greenroom.tools.mcp.connection_params import (
    READ_SECONDS,
    ConnectionParams,
    SseConnectionParams,
    StdioConnectionParams,
)

if TYPE_CHECKING:
    from mcp import Client


@dataclass(frozen=True)
class ClientCallbacks:
    """What a server may ask of its client; each as the MCP SDK's `Client` takes it. errlog: where a server process
    writes its errors, by default where this process does."""

    sampling: Any = None
    elicitation: Any = None
    message: Any = None
    errlog: TextIO | None = None


def check_installed() -> None:
    """Raises MissingExtra."""
    try:
        import mcp  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise MissingExtra("mcp", "mcp") from error


@asynccontextmanager
async def open_client(
    params: ConnectionParams, headers: Mapping[str, str], callbacks: ClientCallbacks
) -> AsyncGenerator[Client]:
    """A client that has said hello. To be left in the task that entered it."""
    from mcp import Client

    async with _http_client(params, headers) as http:
        client = Client(
            _transport(params, headers, http, callbacks),
            read_timeout_seconds=READ_SECONDS if isinstance(params, StdioConnectionParams) else params.sse_read_timeout,
            sampling_callback=callbacks.sampling,
            elicitation_callback=callbacks.elicitation,
            message_handler=callbacks.message,
            cache=None,
        )
        async with client:
            yield client


def _transport(params: ConnectionParams, headers: Mapping[str, str], http: Any, callbacks: ClientCallbacks) -> Any:
    if isinstance(params, StdioConnectionParams):
        from mcp import StdioServerParameters
        from mcp.client.stdio import stdio_client

        given = params.server_params
        server = StdioServerParameters(command=given.command, args=given.args, env=given.env, cwd=given.cwd)
        return stdio_client(server) if callbacks.errlog is None else stdio_client(server, errlog=callbacks.errlog)
    if isinstance(params, SseConnectionParams):
        from mcp.client.sse import sse_client

        more: dict[str, Any] = {}
        if params.httpx_client_factory is not None:
            more["httpx_client_factory"] = params.httpx_client_factory
        return sse_client(params.url, dict(headers), params.timeout, params.sse_read_timeout, **more)
    from mcp.client.streamable_http import streamable_http_client

    return streamable_http_client(params.url, http_client=http, terminate_on_close=params.terminate_on_close)


@asynccontextmanager
async def _http_client(params: ConnectionParams, headers: Mapping[str, str]) -> AsyncGenerator[Any]:
    """The client that streamable HTTP is given; the other transports make their own."""
    if isinstance(params, (StdioConnectionParams, SseConnectionParams)):
        yield None
        return
    import httpx2

    make = params.httpx_client_factory or httpx2.AsyncClient
    timeout = httpx2.Timeout(params.timeout, read=params.sse_read_timeout)
    async with make(headers=dict(headers), timeout=timeout, auth=None) as http:
        yield http
