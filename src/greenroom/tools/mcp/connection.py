"""One session with an MCP server, held by a task of its own.

The SDK's scopes must be left in the task that entered them, while tools are called from the tasks of many runs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar, cast

from greenroom.errors import ToolsetInitializationError
from greenroom.tools.mcp.connection_params import ConnectionParams, StdioConnectionParams, describe
from greenroom.tools.mcp.transport import ClientCallbacks, open_client

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
