"""HTTP connections with limits: requests must arrive within a time and a size, and responses must be read.

uvicorn itself waits forever for the rest of a request, and accepts a head of any size.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """Limits of a client's connection: the size of requests, and how slowly they may arrive."""

    head_bytes: int = 64 * 1024
    """Size of a request line with its headers, and of the trailers of a chunked body."""
    headers: int = 100
    head_seconds: float = 10.0
    """Time until the last header, from the start of the connection or the first byte of a later request."""
    idle_seconds: float = 75.0
    """Time between two requests."""
    body_seconds: float = 30.0
    """Time for a body. It may take longer while it arrives faster than `body_bytes_per_second`."""
    body_bytes_per_second: int = 8 * 1024
    stall_seconds: float = 120.0
    """Time during which a client may read nothing of a response. Its run continues."""
    ping_seconds: float = 20.0
    """Interval of the pings of a WebSocket, and the timeout of their pongs."""
    sweep_seconds: float = 1.0
    """Interval of the checks."""


DEFAULT_LIMITS = ConnectionLimits()


class _HeadTooLarge(Exception):
    pass


class ReplyTransport:
    """Writes the head of a response together with a short body that follows at once, in one system call."""

    __slots__ = ("_has_begun", "_head", "_transport")

    LONGEST_COPY = 64 * 1024

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._has_begun = False
        self._head = b""

    def write(self, data: bytes) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._head = data
            asyncio.get_running_loop().call_soon(self._flush)
        elif len(data) > self.LONGEST_COPY:
            self._flush()
            self._transport.write(data)
        else:
            self._transport.write(self._head + data)
            self._head = b""

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _flush(self) -> None:
        if self._head:
            self._transport.write(self._head)
            self._head = b""


class LimitedHttpProtocol(HttpToolsProtocol):
    """Refuses a head that is too large with 431, and closes a connection that keeps the server waiting."""

    # Beside uvicorn's attributes in `__dict__`: objects of a class share the keys of at most 30, and a dict of its own
    # would cost each connection 1 kB.
    __slots__ = (
        "_body_bytes",
        "_body_since",
        "_head_since",
        "_idle_since",
        "_is_in_head",
        "_is_too_large",
        "_limits",
        "_unfinished_bytes",
        "_unread_bytes",
        "_unread_since",
    )

    def __init__(self, *args: Any, limits: ConnectionLimits = DEFAULT_LIMITS, **more: Any) -> None:
        super().__init__(*args, **more)
        self._limits = limits

        # When the connection began to wait for each of these; None if it doesn't wait for it.
        self._head_since: float | None = time.monotonic()
        self._body_since: float | None = None
        self._idle_since: float | None = None
        self._unread_since: float | None = None

        self._is_in_head = False
        self._is_too_large = False
        self._body_bytes = 0
        self._unfinished_bytes = 0
        """Bytes that the parser holds or whose end it waits for: a head, a chunk's extensions, trailers."""
        self._unread_bytes = 0
        """Bytes of the response that the client hasn't read."""

    def data_received(self, data: bytes) -> None:
        self._unfinished_bytes += len(data)
        super().data_received(data)
        if self._unfinished_bytes > self._limits.head_bytes and not self.transport.is_closing():
            self._refuse_head()

    def send_400_response(self, msg: str) -> None:
        """Called for requests that the parser can't read, and for exceptions of the callbacks below."""
        if self._is_too_large:
            self._refuse_head()
        else:
            super().send_400_response(msg)

    def on_message_begin(self) -> None:
        if self._idle_since is not None:
            self._idle_since = None
            self._head_since = time.monotonic()
        self._is_in_head = True
        self._unfinished_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        # Once per head, since a callback for each header costs more. What arrives at once is bounded by the read size.
        size = len(self.url) + sum([len(name) + len(value) for name, value in self.headers])
        if size > self._limits.head_bytes or len(self.headers) > self._limits.headers:
            self._is_too_large = True
            raise _HeadTooLarge

        self._is_in_head = False
        self._head_since = None
        self._body_since = time.monotonic()
        self._body_bytes = 0
        self._unfinished_bytes = 0
        super().on_headers_complete()

        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None:  # a WebSocket has none
            cycle.transport = cast("asyncio.Transport", ReplyTransport(self.transport))

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        self._unfinished_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._body_since = None
        self._unfinished_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        # Like uvicorn's, without its timer for each connection.
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return

        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._is_in_head:
            self._head_since = time.monotonic()
        else:
            self._idle_since = time.monotonic()

    def pause_writing(self) -> None:
        self._unread_since = time.monotonic()
        self._unread_bytes = self.transport.get_write_buffer_size()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread_since = None
        super().resume_writing()

    def close_if_too_slow(self, now: float) -> None:
        """Closes the connection if the client exceeds one of the times."""
        limits = self._limits
        if self._unread_since is not None:
            unread_bytes = self.transport.get_write_buffer_size()
            if unread_bytes < self._unread_bytes:
                self._unread_since = now
            elif now > self._unread_since + limits.stall_seconds:
                self.transport.abort()
            self._unread_bytes = unread_bytes
        elif self._head_since is not None:
            if now > self._head_since + limits.head_seconds:
                self.transport.abort()
        elif self._body_since is not None:
            allowed = limits.body_seconds + self._body_bytes / limits.body_bytes_per_second
            if now > self._body_since + allowed:
                self.transport.abort()
        elif self._idle_since is not None and now > self._idle_since + limits.idle_seconds:
            self.transport.close()

    def _refuse_head(self) -> None:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and not cycle.response_complete:  # a response is being sent
            self.transport.close()
            return

        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        body = status.phrase.encode()
        head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()


async def sweep(connections: Collection[object], limits: ConnectionLimits = DEFAULT_LIMITS) -> None:
    """Closes slow connections until it is cancelled. One timer for all connections costs less than one for each."""
    while True:
        await asyncio.sleep(limits.sweep_seconds)
        now = time.monotonic()
        for connection in tuple(connections):
            if isinstance(connection, LimitedHttpProtocol):
                connection.close_if_too_slow(now)
