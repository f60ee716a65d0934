"""Sessions with an MCP server: one for each caller, in each event loop, owned by a task.

The SDK's context managers must be exited in the task that entered them, while the tasks of many
runs call tools.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, TypeAlias, TypeVar, cast

import msgspec

from greenroom.errors import MissingExtra, ToolError, ToolsetInitializationError
from greenroom.invocation.user_context import ReadonlyContext
from greenroom.tools.mcp.connection_params import (
    READ_SECONDS,
    ConnectionParams,
    SseConnectionParams,
    StdioConnectionParams,
    describe,
)

if TYPE_CHECKING:
    from mcp import Client

    from greenroom.tools.mcp.login import UserLogin


T = TypeVar("T")

_log = logging.getLogger("greenroom.tools")

_CONNECTION_CLOSED = -32000
_TERMINATED = 32600
_INVALID_REQUEST = -32600

IDLE_SECONDS = 900.0
"""Time for which a session over HTTP may be unused before it is closed; a server process keeps running."""


REPORT_SECONDS = 5.0
"""Time without an answer after which a log line reports that the call still waits for the server."""


class ConnectionLost(Exception):
    """The session with the server has ended.

    was_sent: the session ended during a request, so whether the server received it is unknown.
    """

    def __init__(self, *, was_sent: bool) -> None:
        super().__init__()
        self.was_sent = was_sent


class McpConnection:
    """Usable after `opened`. A connection that is no longer alive is never reopened."""

    def __init__(
        self,
        params: ConnectionParams,
        caller: McpCaller,
        callbacks: ClientCallbacks,
    ) -> None:
        self._params = params

        if isinstance(params, StdioConnectionParams):
            self._idle_seconds = None
        else:
            self._idle_seconds = IDLE_SECONDS

        self._used_at = time.monotonic()
        self._pending = 0
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._owner = asyncio.create_task(self._own(caller, callbacks), name=describe(params))

    @property
    def is_alive(self) -> bool:
        return not self._owner.done() and not self._closing.is_set()

    @property
    def is_closed(self) -> bool:
        """True when the session is over, and the server process, if there is one, has ended."""
        return self._owner.done()

    async def opened(self) -> None:
        """Waits until the session is initialized.

        Raises ToolsetInitializationError, whose cause is TimeoutError if the server has not
        answered in time. The process is then ended in the background.
        """
        waiting = asyncio.get_running_loop().call_later(REPORT_SECONDS, self._report_waiting)
        try:
            async with asyncio.timeout(self._params.timeout):
                await asyncio.shield(self._opened)
        except TimeoutError as late:
            self._closing.set()
            self._owner.cancel()
            reason = f"no answer within {self._params.timeout:g} s"
            raise ToolsetInitializationError(describe(self._params), reason) from late
        except asyncio.CancelledError:
            self._closing.set()
            self._owner.cancel()
            raise
        finally:
            waiting.cancel()

    def _report_waiting(self) -> None:
        _log.warning(
            "%s has not answered for %g s and is waited for, up to %g s; package runners such as npx and uvx "
            "download the server at its first start",
            describe(self._params), REPORT_SECONDS, self._params.timeout,
        )  # fmt: skip

    async def request(self, send: Callable[[Client], Awaitable[T]]) -> T:
        """Sends a request, and returns its result. Raises ConnectionLost, and the SDK's errors."""
        client = await self._opened
        if not self.is_alive:
            raise ConnectionLost(was_sent=False)

        self._pending += 1

        request = asyncio.ensure_future(send(client))
        try:
            await asyncio.wait((request, self._owner), return_when=asyncio.FIRST_COMPLETED)
            if not request.done():
                raise ConnectionLost(was_sent=True)
            return request.result()
        finally:
            self._pending -= 1
            self._used_at = time.monotonic()
            if not request.done():
                request.cancel()
                await asyncio.wait([request])

    def abandon(self) -> None:
        """Marks the connection as dead; its task closes it."""
        self._closing.set()

    async def close(self) -> None:
        """Returns when the session is over, and the server process, if there is one, has ended."""
        self._closing.set()
        if not self._opened.done():
            self._owner.cancel()
        await asyncio.wait([self._owner])

    async def _own(self, caller: McpCaller, callbacks: ClientCallbacks) -> None:
        try:
            async with open_client(self._params, caller, callbacks, self._closing.set) as client:
                self._opened.set_result(client)
                self._used_at = time.monotonic()
                await self._until_closed()
        except asyncio.CancelledError:
            self._opened.cancel()
            raise
        except BaseException as error:  # the SDK raises groups of its transports' errors
            if self._opened.done():
                _log.debug(
                    "the session with %s ended with an error",
                    describe(self._params),
                    exc_info=error,
                )
            else:
                failure = ToolsetInitializationError(describe(self._params), _reason(error))
                failure.__cause__ = error
                self._opened.set_exception(failure)
                self._opened.exception()  # marks it as retrieved, in case nobody waits
        finally:
            self._closing.set()

    async def _until_closed(self) -> None:
        while not self._closing.is_set():
            idle = self._idle_seconds
            if idle is not None and not self._pending:
                idle -= time.monotonic() - self._used_at
                if idle <= 0:
                    return

            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(idle):
                    await self._closing.wait()


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if str(error):
        return f"{type(error).__name__}: {error}"
    return type(error).__name__


class McpCaller(NamedTuple):
    """The user for whom requests are sent."""

    headers: Mapping[str, str]
    login: UserLogin | None = None
    """None where the headers are all that the server needs."""


CallerSource: TypeAlias = Callable[[ReadonlyContext | None], Awaitable[McpCaller]]
"""Finds out who calls, from the context of a call."""


@dataclass(frozen=True)
class ClientCallbacks:
    """Callbacks for a server's requests, as the MCP SDK's `Client` takes them."""

    sampling: Any = None
    elicitation: Any = None
    message: Any = None
    errlog: TextIO | None = None
    """Receives the standard error output of a server process; by default that of this process."""


def check_installed() -> None:
    """Raises MissingExtra."""
    try:
        import mcp  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise MissingExtra("mcp", "mcp") from error


@contextlib.asynccontextmanager
async def open_client(
    params: ConnectionParams, caller: McpCaller, callbacks: ClientCallbacks, on_lost: Callable[[], None]
) -> AsyncGenerator[Client]:
    """An initialized client. To be exited in the task that entered it.

    on_lost: called when a message could not be delivered, so that no answer will come.
    """
    from mcp import Client

    async with contextlib.AsyncExitStack() as stack:
        transport: Any
        if isinstance(params, StdioConnectionParams):
            from mcp import StdioServerParameters
            from mcp.client.stdio import stdio_client

            stdio = params.server_params
            server = StdioServerParameters(
                command=stdio.command,
                args=stdio.args,
                env=stdio.env,
                cwd=stdio.cwd,
            )
            transport = stdio_client(server, errlog=callbacks.errlog or sys.stderr)
            read_seconds = READ_SECONDS
        else:
            import httpx2

            make: Any = params.httpx_client_factory or httpx2.AsyncClient

            read_seconds = params.sse_read_timeout
            headers = dict(caller.headers)
            auth = caller.login.provider() if caller.login is not None else None
            if isinstance(params, SseConnectionParams):
                from mcp.client.sse import sse_client

                watched: Any = partial(_watched, make, on_lost)
                transport = sse_client(
                    params.url, headers, params.timeout, read_seconds, httpx_client_factory=watched, auth=auth
                )
            else:
                from mcp.client.streamable_http import streamable_http_client

                timeout = httpx2.Timeout(params.timeout, read=read_seconds)
                http = await stack.enter_async_context(make(headers=headers, timeout=timeout, auth=auth))
                transport = streamable_http_client(
                    params.url, http_client=http, terminate_on_close=params.terminate_on_close
                )

        client = Client(
            transport,
            read_timeout_seconds=read_seconds,
            sampling_callback=callbacks.sampling,
            elicitation_callback=callbacks.elicitation,
            message_handler=callbacks.message,
            cache=None,
        )
        yield await stack.enter_async_context(client)


def _watched(make: Callable[..., Any], on_lost: Callable[[], None], **options: Any) -> Any:
    """A client that reports rejected messages: the SDK's SSE transport only logs them, and keeps
    waiting for the answer (mcp 2.3, `sse_client`).
    """
    client = make(**options)
    send = client.send

    async def send_and_report(request: Any, **more: Any) -> Any:
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

    client.send = send_and_report

    return client


@dataclass
class _Slot:
    """The session for one caller in one event loop."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while it is opened."""

    connection: McpConnection | None = None

    @property
    def is_used(self) -> bool:
        return self.lock.locked() or (self.connection is not None and not self.connection.is_closed)


class McpSessions:
    def __init__(self, params: ConnectionParams, callbacks: ClientCallbacks) -> None:
        self._params = params
        self._callbacks = callbacks
        self._slots: dict[tuple[asyncio.AbstractEventLoop, str], _Slot] = {}
        self._closing: set[McpConnection] = set()

    def headers(self, *more: Mapping[str, str]) -> dict[str, str]:
        """Merges these into the connection's own headers; later ones replace earlier ones, ignoring
        case.
        """
        if isinstance(self._params, StdioConnectionParams):
            own = None
        else:
            own = self._params.headers

        merged: dict[str, tuple[str, str]] = {}
        for headers in (own or {}, *more):
            merged |= {name.lower(): (name, value) for name, value in headers.items()}

        return dict(merged.values())

    def key(self, caller: McpCaller) -> str:
        """Identifies the session for a caller. Source: ADK's session pool."""
        if isinstance(self._params, StdioConnectionParams):
            return "stdio_session"
        if not caller.headers and caller.login is None:
            return "session_no_headers"
        whose = dict(caller.headers) | ({"": caller.login.owner} if caller.login is not None else {})
        digest = hashlib.md5(msgspec.json.encode(whose, order="sorted"), usedforsecurity=False)
        return f"session_{digest.hexdigest()}"

    async def request(
        self,
        caller: McpCaller,
        send: Callable[[Client], Awaitable[T]],
        *,
        may_repeat: bool = False,
    ) -> T:
        """Sends a request in the session for this caller, which is opened if there is none.

        Opening is repeated once, unless it took too long, and so is the request if it may be
        repeated. Raises ToolsetInitializationError, LoginRequired, ToolError when the connection is
        lost, and MCPError.
        """
        if caller.login is None:
            return await self._request(caller, send, may_repeat=may_repeat)
        return await caller.login.attempt(partial(self._request, caller, send, may_repeat=may_repeat))

    async def _request(
        self,
        caller: McpCaller,
        send: Callable[[Client], Awaitable[T]],
        *,
        may_repeat: bool,
    ) -> T:
        for is_last in (False, True):
            connection: McpConnection | None = None
            try:
                connection = await self._connection(caller)
                return await connection.request(send)
            except ConnectionLost as lost:
                if is_last or (lost.was_sent and not may_repeat):
                    raise ToolError(f"{describe(self._params)} closed the connection during the request") from None
            except Exception as error:  # the SDK raises errors of the protocol and of its HTTP library
                if connection is not None and _is_end_of_session(error):
                    connection.abandon()
                is_refused = caller.login is not None and caller.login.is_refused()
                is_late = connection is None and isinstance(error.__cause__, TimeoutError)
                if is_last or is_refused or is_late or not (may_repeat or connection is None):
                    raise

        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Closes the sessions of this event loop; those of closed loops ended with them."""
        loop = asyncio.get_running_loop()
        mine = [self._slots.pop(at).connection for at in list(self._slots) if at[0] is loop]
        await asyncio.gather(*(connection.close() for connection in mine if connection is not None))
        while self._closing:
            await asyncio.gather(*(connection.close() for connection in self._closing))
            self._closing = {connection for connection in self._closing if not connection.is_closed}

    async def _connection(self, caller: McpCaller) -> McpConnection:
        slot = self._slot(self.key(caller))
        async with slot.lock:  # concurrent callers share one session, and one server process
            if slot.connection is not None and slot.connection.is_alive:
                return slot.connection

            if slot.connection is not None and not slot.connection.is_closed:
                self._closing.add(slot.connection)

            self._closing = {connection for connection in self._closing if not connection.is_closed}
            slot.connection = McpConnection(self._params, caller, self._callbacks)
            await slot.connection.opened()

            return slot.connection

    def _slot(self, key: str) -> _Slot:
        self._slots = {at: slot for at, slot in self._slots.items() if slot.is_used and not at[0].is_closed()}
        return self._slots.setdefault((asyncio.get_running_loop(), key), _Slot())


def _is_end_of_session(error: Exception) -> bool:
    """Whether the server or the transport reports that the session has ended."""
    from mcp import MCPError

    if not isinstance(error, MCPError) or error.code in (_CONNECTION_CLOSED, _TERMINATED):
        return True
    return error.code == _INVALID_REQUEST and "session" in error.message.lower()


async def all_pages(
    list_page: Callable[..., Awaitable[Any]],
    items: Callable[[Any], list[T]],
) -> list[T]:
    """The items of a list that the server sends in pages."""
    all_items: list[T] = []
    cursor: str | None = None
    while True:
        page = await list_page(cursor=cursor)
        all_items += items(page)
        cursor = page.next_cursor
        if cursor is None:
            return all_items
