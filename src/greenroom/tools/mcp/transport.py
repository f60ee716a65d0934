"""The MCP SDK's clients for the ways to a server."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from greenroom.errors import MissingExtra
from greenroom.tools.mcp.connection_params import (
    READ_SECONDS,
    ConnectionParams,
    SseConnectionParams,
    StdioConnectionParams,
)

if TYPE_CHECKING:
    from mcp import Client

Lost: TypeAlias = Callable[[], None]


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
    params: ConnectionParams, headers: Mapping[str, str], callbacks: ClientCallbacks, on_lost: Lost
) -> AsyncGenerator[Client]:
    """A client that has said hello. To be left in the task that entered it.

    on_lost: called when a message could not be delivered, after which nobody may wait for its answer.
    """
    from mcp import Client

    async with _http_client(params, headers) as http:
        client = Client(
            _transport(params, headers, http, callbacks, on_lost),
            read_timeout_seconds=READ_SECONDS if isinstance(params, StdioConnectionParams) else params.sse_read_timeout,
            sampling_callback=callbacks.sampling,
            elicitation_callback=callbacks.elicitation,
            message_handler=callbacks.message,
            cache=None,
        )
        async with client:
            yield client


def _transport(
    params: ConnectionParams, headers: Mapping[str, str], http: Any, callbacks: ClientCallbacks, on_lost: Lost
) -> Any:
    if isinstance(params, StdioConnectionParams):
        from mcp import StdioServerParameters
        from mcp.client.stdio import stdio_client

        given = params.server_params
        server = StdioServerParameters(command=given.command, args=given.args, env=given.env, cwd=given.cwd)
        return stdio_client(server) if callbacks.errlog is None else stdio_client(server, errlog=callbacks.errlog)
    if isinstance(params, SseConnectionParams):
        import httpx2
        from mcp.client.sse import sse_client

        make = params.httpx_client_factory or httpx2.AsyncClient
        watched: Any = functools.partial(_watched, make, on_lost)
        return sse_client(
            params.url, dict(headers), params.timeout, params.sse_read_timeout, httpx_client_factory=watched
        )
    from mcp.client.streamable_http import streamable_http_client

    return streamable_http_client(params.url, http_client=http, terminate_on_close=params.terminate_on_close)


def _watched(make: Callable[..., Any], on_lost: Lost, **options: Any) -> Any:
    """A client that tells when a message was not taken: the SDK's SSE transport only logs that, and goes on waiting for
    the answer (mcp 2.3, `sse_client`)."""
    client = make(**options)
    send = client.send

    async def send_and_tell(request: Any, **more: Any) -> Any:
        is_message = request.method == "POST"
        try:
            response = await send(request, **more)
        except Exception:
            if is_message:
                on_lost()
            raise
        if is_message and not response.is_success and not response.is_redirect:
            on_lost()
        return response

    client.send = send_and_tell
    return client


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
