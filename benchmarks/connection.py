"""A client's end of one HTTP/1.1 connection, doing so little that the server is what gets measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import NamedTuple, cast

import msgspec

from benchmarks import procfs

HOST = "127.0.0.1"
LAST_CHUNK = b"\r\n0\r\n\r\n"
OPENED_AT_ONCE = 200


class Reply(NamedTuple):
    """body: with the chunk sizes in it when the server sent chunks. began_at, body_began_at: perf_counter seconds."""

    status: int
    body: bytes
    began_at: float
    body_began_at: float


def request_bytes(method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> bytes:
    encoded = b"" if body is None else msgspec.json.encode(body)
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {HOST}",
        "Content-Type: application/json",
        f"Content-Length: {len(encoded)}",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    head = "\r\n".join(lines)
    return f"{head}\r\n\r\n".encode() + encoded


class Connection(asyncio.Protocol):
    """Sends one prepared request at a time.

    The end of a chunked body is recognised by its last bytes alone, which JSON and SSE bodies can't hold by themselves.
    """

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._waiter: asyncio.Future[Reply] | None = None
        self._received = bytearray()
        self._status = 0
        self._body_length: int | None = None
        self._began_at = 0.0
        self._body_began_at: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(exc or ConnectionError("closed by the server"))

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        if not self._status:
            end = received.find(b"\r\n\r\n")
            if end < 0:
                return
            self._began_at = time.perf_counter()
            self._read_head(bytes(received[:end]))
            del received[: end + 4]
        if self._body_began_at is None and received:
            self._body_began_at = time.perf_counter()
        if self._body_length is None:
            if not received.endswith(LAST_CHUNK):
                return
        elif len(received) < self._body_length:
            return
        body_began_at = self._body_began_at or time.perf_counter()
        reply = Reply(self._status, bytes(received), self._began_at, body_began_at)
        received.clear()
        self._status = 0
        self._body_began_at = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(reply)

    def _read_head(self, head: bytes) -> None:
        self._status = int(head[9:12])
        lowered = head.lower()
        at = lowered.find(b"\r\ncontent-length:")
        self._body_length = int(lowered[at + 17 :].split(b"\r\n", 1)[0]) if at >= 0 else None

    async def exchange(self, request: bytes) -> Reply:
        """Raises ConnectionError when the server hangs up first."""
        if self._transport is None:
            raise ConnectionError("closed by the server")
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiter

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


async def connect(port: int) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, HOST, port)
    return connection


async def connect_many(port: int, count: int) -> list[Connection]:
    """Opens them some hundreds at a time, so that none has to wait for a full accept queue, and until the server has
    taken them all: some event loops accept one in each turn."""
    connections: list[Connection] = []
    while len(connections) < count:
        batch = min(OPENED_AT_ONCE, count - len(connections))
        connections += await asyncio.gather(*(connect(port) for _ in range(batch)))
    while procfs.not_accepted(port):
        await asyncio.sleep(0.01)
    return connections
