"""One session with an MCP server, owned by a task.

The SDK's context managers must be exited in the task that entered them, while the tasks of many runs call tools.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias, TypeVar, cast

from greenroom.errors import MissingExtra, ToolsetInitializationError
from greenroom.tools.mcp.connection_params import (
    READ_SECONDS,
    ConnectionParams,
    SseConnectionParams,
    StdioConnectionParams,
    describe,
)

if TYPE_CHECKING:
    from mcp import Client


T = TypeVar("T")

_log = logging.getLogger("greenroom.tools")

IDLE_SECONDS = 900.0
"""A session over HTTP that is not used for so long is closed; a server process stays."""


class ConnectionLost(Exception):
    """was_sent: the session ended while a request was under way, so that nobody knows whether it was heard."""

    def __init__(self, *, was_sent: bool) -> None:
        super().__init__()
        self.was_sent = was_sent


class McpConnection:
    """To be used after `opened`. Once it is not alive any more it never will be again."""

    def __init__(self, params: ConnectionParams, headers: Mapping[str, str], callbacks: ClientCallbacks) -> None:
        self._params = params
        self._idle_seconds = None if isinstance(params, StdioConnectionParams) else IDLE_SECONDS
        self._used_at = time.monotonic()
        self._under_way = 0
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._owner = asyncio.create_task(self._own(headers, callbacks), name=describe(params))

    @property
    def is_alive(self) -> bool:
        return not self._owner.done() and not self._leave.is_set()

    async def opened(self) -> None:
        """Wait until the server has said hello. Raises ToolsetInitializationError."""
        try:
            async with asyncio.timeout(self._params.timeout):
                await asyncio.shield(self._opened)
        except TimeoutError:
            await self.close()
            reason = f"no answer within {self._params.timeout:g} s"
            raise ToolsetInitializationError(describe(self._params), reason) from None
        except asyncio.CancelledError:
            self._leave.set()
            self._owner.cancel()
            raise

    async def request(self, ask: Callable[[Client], Awaitable[T]]) -> T:
        """What `ask` gets from the server. Raises ConnectionLost, and whatever the SDK raises."""
        client = await self._opened
        if not self.is_alive:
            raise ConnectionLost(was_sent=False)
        self._under_way += 1
        asking = asyncio.ensure_future(ask(client))
        try:
            await asyncio.wait((asking, self._owner), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise ConnectionLost(was_sent=True)
            return asking.result()
        finally:
            self._under_way -= 1
            self._used_at = time.monotonic()
            if not asking.done():
                asking.cancel()
                await asyncio.wait([asking])

    def give_up(self) -> None:
        """Let nobody use it any more; it closes by itself."""
        self._leave.set()

    async def close(self) -> None:
        """Returns when the session is over, and the server process, if there is one, has ended."""
        self._leave.set()
        if not self._opened.done():
            self._owner.cancel()
        await asyncio.wait([self._owner])

    async def _own(self, headers: Mapping[str, str], callbacks: ClientCallbacks) -> None:
        try:
            async with open_client(self._params, headers, callbacks, self._leave.set) as client:
                self._opened.set_result(client)
                self._used_at = time.monotonic()
                await self._until_left()
        except asyncio.CancelledError:
            self._opened.cancel()
            raise
        except BaseException as error:  # the SDK raises groups of whatever went wrong in its transports
            if self._opened.done():
                _log.debug("the session with %s ended with an error", describe(self._params), exc_info=error)
            else:
                failure = ToolsetInitializationError(describe(self._params), _reason(error))
                failure.__cause__ = error
                self._opened.set_exception(failure)
                self._opened.exception()  # whoever waits is told; nobody may be left to wait
        finally:
            self._leave.set()

    async def _until_left(self) -> None:
        while not self._leave.is_set():
            idle = None
            if self._idle_seconds is not None:
                idle = self._idle_seconds
                if not self._under_way:
                    idle -= time.monotonic() - self._used_at
                    if idle <= 0:
                        self._leave.set()
                        return
            leave = asyncio.ensure_future(self._leave.wait())
            try:
                await asyncio.wait([leave], timeout=idle)
            finally:
                leave.cancel()


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


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
