"""The sessions of one toolset: one for each set of headers, in each event loop."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

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
class _InLoop:
    """opening: held while a session is opened."""

    loop: asyncio.AbstractEventLoop
    open: dict[str, McpConnection] = field(default_factory=dict[str, McpConnection])
    opening: dict[str, asyncio.Lock] = field(default_factory=dict[str, asyncio.Lock])


class McpSessions:
    def __init__(self, params: ConnectionParams, callbacks: ClientCallbacks) -> None:
        self._params = params
        self._callbacks = callbacks
        self._in_loops: dict[int, _InLoop] = {}

    def headers(self, *more: Mapping[str, str]) -> dict[str, str]:
        """The connection's own with these over them; a later one replaces an earlier one of whatever case."""
        merged: dict[str, str] = {}
        own = None if isinstance(self._params, StdioConnectionParams) else self._params.headers
        for headers in (own or {}, *more):
            lower = {name.lower() for name in headers}
            merged = {name: value for name, value in merged.items() if name.lower() not in lower}
            merged.update(headers)
        return merged

    def key(self, headers: Mapping[str, str]) -> str:
        """Source: ADK's session pool."""
        if isinstance(self._params, StdioConnectionParams):
            return "stdio_session"
        if not headers:
            return "session_no_headers"
        digest = hashlib.md5(msgspec.json.encode(dict(headers), order="sorted"), usedforsecurity=False)
        return f"session_{digest.hexdigest()}"

    async def request(
        self, headers: Mapping[str, str], ask: Callable[[Client], Awaitable[T]], *, may_repeat: bool = False
    ) -> T:
        """Ask the server, in the session for these headers, opened when there is none.

        Opening is tried twice; so is the request, if it may be repeated. Raises ToolsetInitializationError, ToolError
        when the connection is lost, and MCPError.
        """
        for attempt in (1, 2):
            connection = await self._connection(headers)
            try:
                return await connection.request(ask)
            except ConnectionLost as lost:
                connection.give_up()
                if attempt == 2 or (lost.was_sent and not may_repeat):
                    raise ToolError(f"{describe(self._params)} went away during the request") from None
            except Exception as error:  # the SDK raises errors of the protocol and of its HTTP library
                if _is_end_of_session(error):
                    connection.give_up()
                if attempt == 2 or not may_repeat:
                    raise
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Close the sessions of this event loop; those of loops that are gone went with them."""
        mine = self._in_loops.pop(id(asyncio.get_running_loop()), None)
        if mine is not None:
            await asyncio.gather(*(connection.close() for connection in mine.open.values()))

    async def _connection(self, headers: Mapping[str, str]) -> McpConnection:
        here = self._here()
        key = self.key(headers)
        # Two that come at once share one session, and one server process.
        async with here.opening.setdefault(key, asyncio.Lock()):
            known = here.open.get(key)
            if known is not None and known.is_alive:
                return known
            for attempt in (1, 2):
                connection = here.open[key] = McpConnection(self._params, headers, self._callbacks)
                try:
                    await connection.opened()
                except ToolsetInitializationError:
                    if attempt == 2:
                        raise
                else:
                    return connection
        raise AssertionError("unreachable")

    def _here(self) -> _InLoop:
        loop = asyncio.get_running_loop()
        here = self._in_loops.get(id(loop))
        if here is None or here.loop is not loop:
            self._in_loops = {number: one for number, one in self._in_loops.items() if not one.loop.is_closed()}
            here = self._in_loops[id(loop)] = _InLoop(loop)
        for key in [key for key, connection in here.open.items() if not connection.is_alive]:
            del here.open[key]
        for key in [key for key, lock in here.opening.items() if key not in here.open and not lock.locked()]:
            del here.opening[key]
        return here


def _is_end_of_session(error: Exception) -> bool:
    """Whether the server, or the way to it, says that this session is over."""
    from mcp import MCPError

    if not isinstance(error, MCPError):
        return True
    if error.code in (_CONNECTION_CLOSED, _TERMINATED):
        return True
    return error.code == _INVALID_REQUEST and "session" in error.message.lower()
