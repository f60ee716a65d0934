"""A small HTTP/1.1 client for requests to other servers of the store.

It uses httptools, the parser of the server itself, and costs a tenth of a general client: a request is one write, and a
piece of a response one call. There are no redirects, cookies, proxies and decompression, and headers are bytes.
"""

from __future__ import annotations

import asyncio
import select
import ssl
import time
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from greenroom.errors import InvalidRequest

_PAUSE_BYTES = 64 * 1024
"""Size of the unread part of a response at which no more of it is read."""

_WRITTEN_TOGETHER_BYTES = 64 * 1024
"""Size of a body up to which it is sent with the head, in one system call."""


class ConnectError(Exception):
    """There is no connection to the server, so nothing was sent."""


class ResponseError(Exception):
    """The connection has ended before the response, or the response isn't valid HTTP."""


class Request(NamedTuple):
    method: bytes
    target: bytes
    """Path and query."""

    headers: list[tuple[bytes, bytes]]
    """Without `host`, and without `content-length` and `transfer-encoding`."""

    body: bytes = b""

    def head(self, host: bytes) -> bytes:
        """Raises InvalidRequest for line breaks within the request line or a header."""
        lines = [b"%b %b HTTP/1.1\r\nhost: %b" % (self.method, self.target, host)]
        lines += [b"%b: %b" % header for header in self.headers]
        if self.body:
            lines.append(b"content-length: %d" % len(self.body))
        elif self.method == b"POST":
            lines.append(b"content-length: 0")
        head = b"\r\n".join(lines)
        if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines) or b"\0" in head:
            raise InvalidRequest("A header contains a line break or a NUL character")
        return head + b"\r\n\r\n"


class Response:
    """A response while it arrives; `_Connection` fills it."""

    def __init__(self, connection: _Connection, *, has_body: bool) -> None:
        """has_body: False for the response to HEAD."""
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        """Names in lower case."""

        self.has_body = has_body
        self.has_begun = False
        self.is_complete = False

        self._connection = connection
        self._pieces: list[bytes] = []
        self._buffered_bytes = 0
        self._error: ResponseError | None = None
        self._waiter: asyncio.Future[None] | None = None

    def header(self, name: bytes) -> bytes | None:
        return next((value for known, value in self.headers if known == name), None)

    async def wait_for_head(self) -> None:
        """Raises ResponseError."""
        while not self.has_begun:
            if self._error is not None:
                raise self._error
            await self._change()

    async def read(self) -> bytes:
        """Returns the bytes of the body that came since the last call; none at its end. Raises ResponseError."""
        while not self._pieces:
            if self.is_complete:
                return b""
            if self._error is not None:
                raise self._error
            await self._change()

        pieces = self._pieces
        self._pieces = []
        self._buffered_bytes = 0
        self._connection.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Keeps the connection for other requests, or closes it if the response wasn't read to its end."""
        self._connection.release(self)

    def begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        self.headers = headers
        self.has_begun = True
        self.is_complete = not self.has_body
        self._wake()

    def add(self, body: bytes) -> bool:
        """Returns False when so much is unread that no more should be received for now."""
        self._pieces.append(body)
        self._buffered_bytes += len(body)
        self._wake()
        return self._buffered_bytes <= _PAUSE_BYTES

    def complete(self) -> None:
        self.is_complete = True
        self._wake()

    def fail(self, message: str) -> None:
        if not self.is_complete:
            self._error = ResponseError(message)
            self._wake()

    async def _change(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Connection(asyncio.Protocol):
    """A connection to a server, for one request at a time. Its `on_…` methods are called by the parser."""

    def __init__(self, address: str, idle: _IdleConnections, *, max_head_bytes: int) -> None:
        self.address = address
        self.idle_since = 0.0

        self._idle = idle
        self._max_head_bytes = max_head_bytes
        self._transport = cast("asyncio.Transport", None)
        self._parser = httptools.HttpResponseParser(self)
        self._response: Response | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._keeps_alive = False
        self._is_paused = False
        self._unfinished_bytes = 0
        """Bytes that the parser holds or whose end it waits for: a head, a chunk's extensions, trailers."""

    def send(self, request: Request, head: bytes) -> Response:
        response = Response(self, has_body=request.method != b"HEAD")
        self._response = response
        self._keeps_alive = False
        self._unfinished_bytes = 0
        if len(request.body) <= _WRITTEN_TOGETHER_BYTES:
            self._transport.write(head + request.body)
        else:
            self._transport.write(head)
            self._transport.write(request.body)
        return response

    def release(self, response: Response) -> None:
        """The response is not read any more."""
        if response is not self._response:
            return
        self._response = None
        response.fail("it was closed")
        is_reusable = response.is_complete and self._keeps_alive and not self._transport.is_closing()
        # A response may come before its request was sent.
        if is_reusable and self._transport.get_write_buffer_size() == 0:
            self._idle.put(self)
        else:
            self.abort()

    def abort(self) -> None:
        self._transport.abort()

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def has_ended(self) -> bool:
        """True if the server has closed the idle connection, also if the event loop hasn't noticed it yet."""
        if self._transport.is_closing():
            return True
        if not hasattr(select, "poll"):
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._unfinished_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"the response is invalid: {error.__context__ or error}")
            return
        if self._unfinished_bytes > self._max_head_bytes:
            self._fail("the response is invalid: its head is too large")

    def connection_lost(self, exc: Exception | None) -> None:
        self._idle.remove(self)
        self._fail(f"the connection was lost: {exc or 'closed by the server'}")

    def _fail(self, message: str) -> None:
        self._keeps_alive = False
        self._transport.abort()
        if self._response is not None:
            self._response.fail(message)

    # Called by the parser

    def on_message_begin(self) -> None:
        if self._response is None or self._response.is_complete:
            raise ResponseError("it was not asked for")
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        response = self._response
        status = self._parser.get_status_code()
        self._unfinished_bytes = 0
        if response is None or status < HTTPStatus.OK:
            return

        if sum([len(name) + len(value) for name, value in self._headers]) > self._max_head_bytes:
            raise ResponseError("its head is too large")
        names = [name for name, _ in self._headers]
        has_length = b"content-length" in names or b"transfer-encoding" in names
        if response.has_body:
            if not has_length and status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
                raise ResponseError("its end can't be known, since it has no length")
            # After a response without its body, the parser would wait for as many bytes as the length says.
            self._keeps_alive = self._parser.should_keep_alive()
        response.begin(status, self._headers)
        self._headers = []  # for trailers, which nobody needs

    def on_body(self, body: bytes) -> None:
        response = self._response
        self._unfinished_bytes = 0
        if response is None or response.is_complete:
            raise ResponseError("it has a body after its end")
        if not response.add(body) and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        response = self._response
        if response is not None and response.has_begun:  # else it was a 1xx response, which another one follows
            response.complete()


class _IdleConnections:
    """Connections that wait for the next request, by the address of their server."""

    def __init__(self, *, idle_seconds: float, limit: int) -> None:
        """limit: of connections for each server."""
        self._idle_seconds = idle_seconds
        self._limit = limit
        self._by_address: dict[str, list[_Connection]] = {}
        self._is_closed = False

    def take(self, address: str) -> _Connection | None:
        """The connection that was used last."""
        connections = self._by_address.get(address)
        while connections:
            connection = connections.pop()
            if time.monotonic() < connection.idle_since + self._idle_seconds and not connection.has_ended():
                return connection
            connection.abort()
        return None

    def put(self, connection: _Connection) -> None:
        connections = self._by_address.setdefault(connection.address, [])
        if self._is_closed or len(connections) >= self._limit:
            connection.abort()
            return
        connection.idle_since = time.monotonic()
        connections.append(connection)

    def remove(self, connection: _Connection) -> None:
        """The connection has ended, idle or not."""
        connections = self._by_address.get(connection.address, [])
        if connection in connections:
            connections.remove(connection)
        if not connections:
            self._by_address.pop(connection.address, None)

    def close(self) -> None:
        self._is_closed = True
        for connections in self._by_address.values():
            for connection in connections:
                connection.abort()


class HttpClient:
    """Sends requests over connections that are kept open between them."""

    def __init__(
        self,
        *,
        connect_seconds: float = 2.0,
        idle_seconds: float = 30.0,
        max_idle: int = 100,
        max_head_bytes: int = 64 * 1024,
    ) -> None:
        """idle_seconds: less than servers keep idle connections. max_idle: connections for each server."""
        self._connect_seconds = connect_seconds
        self._max_head_bytes = max_head_bytes
        self._idle = _IdleConnections(idle_seconds=idle_seconds, limit=max_idle)

    async def send(self, address: str, request: Request) -> Response:
        """Returns when the response has begun; the caller closes it. address: `http://HOST:PORT`.

        Raises ConnectError, ResponseError, InvalidRequest.
        """
        head = request.head(_parts_of(address).host_header)
        connection = self._idle.take(address) or await self._connect(address)
        response = connection.send(request, head)
        try:
            await response.wait_for_head()
        except BaseException:
            response.close()
            raise
        return response

    def close(self) -> None:
        """Closes idle connections, and the others when their responses are closed."""
        self._idle.close()

    async def _connect(self, address: str) -> _Connection:
        host, port, is_secure, _ = _parts_of(address)
        connection = _Connection(address, self._idle, max_head_bytes=self._max_head_bytes)
        context = _tls_context() if is_secure else None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_seconds):
                await loop.create_connection(lambda: connection, host, port, ssl=context)
        except (OSError, TimeoutError) as error:
            raise ConnectError(f"{address} can't be reached: {error or 'no answer in time'}") from error
        return connection


class _Parts(NamedTuple):
    host: str
    port: int
    is_secure: bool
    host_header: bytes


@lru_cache(maxsize=256)
def _parts_of(address: str) -> _Parts:
    parts = urlsplit(address)
    is_secure = parts.scheme == "https"
    return _Parts(parts.hostname or "", parts.port or (443 if is_secure else 80), is_secure, parts.netloc.encode())


@lru_cache(maxsize=1)
def _tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()
