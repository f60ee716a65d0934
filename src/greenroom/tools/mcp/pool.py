"""The sessions of one toolset: one for each set of headers, in each event loop."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from greenroom.errors import ToolError, ToolsetInitializationError
from greenroom.tools.mcp.connection import ClientCallbacks, ConnectionLost, McpConnection
from greenroom.tools.mcp.connection_params import ConnectionParams, StdioConnectionParams, describe

if TYPE_CHECKING:
    from mcp import Client

T = TypeVar("T")

_CONNECTION_CLOSED = -32000
_TERMINATED = 32600
_INVALID_REQUEST = -32600


@dataclass
class _Slot:
    """The session for one set of headers in one event loop. lock: held while it is opened."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: McpConnection | None = None

    @property
    def is_used(self) -> bool:
        return self.lock.locked() or (self.connection is not None and self.connection.is_alive)


class McpSessions:
    def __init__(self, params: ConnectionParams, callbacks: ClientCallbacks) -> None:
        self._params = params
        self._callbacks = callbacks
        self._slots: dict[tuple[asyncio.AbstractEventLoop, str], _Slot] = {}

    def headers(self, *more: Mapping[str, str]) -> dict[str, str]:
        """Merges these into the connection's own headers; later ones replace earlier ones, ignoring case."""
        merged: dict[str, str] = {}
        own = None if isinstance(self._params, StdioConnectionParams) else self._params.headers
        for headers in (own or {}, *more):
            lower = {name.lower() for name in headers}
            merged = {name: value for name, value in merged.items() if name.lower() not in lower}
            merged.update(headers)
        return merged

    def key(self, headers: Mapping[str, str]) -> str:
        """Identifies the session for these headers. Source: ADK's session pool."""
        if isinstance(self._params, StdioConnectionParams):
            return "stdio_session"
        if not headers:
            return "session_no_headers"
        digest = hashlib.md5(msgspec.json.encode(dict(headers), order="sorted"), usedforsecurity=False)
        return f"session_{digest.hexdigest()}"

    async def request(
        self, headers: Mapping[str, str], send: Callable[[Client], Awaitable[T]], *, may_repeat: bool = False
    ) -> T:
        """Sends a request in the session for these headers, which is opened if there is none.

        Opening is tried twice, and so is the request if it may be repeated. Raises ToolsetInitializationError,
        ToolError when the connection is lost, and MCPError.
        """
        for attempt in (1, 2):
            connection = await self._connection(headers)
            try:
                return await connection.request(send)
            except ConnectionLost as lost:
                connection.abandon()
                if attempt == 2 or (lost.was_sent and not may_repeat):
                    raise ToolError(f"{describe(self._params)} closed the connection during the request") from None
            except Exception as error:  # the SDK raises errors of the protocol and of its HTTP library
                if _is_end_of_session(error):
                    connection.abandon()
                if attempt == 2 or not may_repeat:
                    raise
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Closes the sessions of this event loop; those of closed loops ended with them."""
        loop = asyncio.get_running_loop()
        mine = [self._slots.pop(at).connection for at in list(self._slots) if at[0] is loop]
        await asyncio.gather(*(connection.close() for connection in mine if connection is not None))

    async def _connection(self, headers: Mapping[str, str]) -> McpConnection:
        slot = self._slot(self.key(headers))
        async with slot.lock:  # concurrent callers share one session, and one server process
            if slot.connection is not None and slot.connection.is_alive:
                return slot.connection
            for attempt in (1, 2):
                slot.connection = McpConnection(self._params, headers, self._callbacks)
                try:
                    await slot.connection.opened()
                except ToolsetInitializationError:
                    if attempt == 2:
                        raise
                else:
                    return slot.connection
        raise AssertionError("unreachable")

    def _slot(self, key: str) -> _Slot:
        self._slots = {at: slot for at, slot in self._slots.items() if slot.is_used and not at[0].is_closed()}
        return self._slots.setdefault((asyncio.get_running_loop(), key), _Slot())


def _is_end_of_session(error: Exception) -> bool:
    """Whether the server or the transport reports that the session has ended."""
    from mcp import MCPError

    if not isinstance(error, MCPError):
        return True
    if error.code in (_CONNECTION_CLOSED, _TERMINATED):
        return True
    return error.code == _INVALID_REQUEST and "session" in error.message.lower()


async def all_pages(list_page: Callable[..., Awaitable[Any]], items: Callable[[Any], list[T]]) -> list[T]:
    """The items of a list that the server sends in pages."""
    found: list[T] = []
    cursor: str | None = None
    while True:
        page = await list_page(cursor=cursor)
        found += items(page)
        cursor = page.next_cursor
        if cursor is None:
            return found
