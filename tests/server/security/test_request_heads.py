"""A request's head is bounded: what is larger is refused with 431, and its connection closed at once."""

from __future__ import annotations

import asyncio
import contextlib
import time
import tracemalloc

import pytest

from tests.server.conftest import Serve
from tests.server.security.keys import Keys
from tests.server.security.test_slow_clients import all_until_closed
from tests.server.serving import TIMEOUT_SECONDS, RawConnection, Serving

GET = b"GET /version HTTP/1.1\r\nhost: 127.0.0.1\r\n"


async def flood(connection: RawConnection, begin: bytes, piece: bytes) -> int:
    """Sends pieces until the connection is closed; returns how many bytes the server accepted."""
    sent = len(begin)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        with contextlib.suppress(ConnectionError):
            connection.writer.write(begin)
            while not connection.writer.is_closing() and not connection.reader.at_eof():
                connection.writer.write(piece)
                await connection.writer.drain()
                await asyncio.sleep(0)
                sent += len(piece)
    return sent


@pytest.mark.parametrize(
    "head",
    [
        GET + b"x: " + b"y" * 70_000 + b"\r\n\r\n",
        GET + b"".join(b"x-%d: 1\r\n" % number for number in range(101)) + b"\r\n",
        GET + b"x" * 70_000 + b": 1\r\n\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
        GET + b"x: y\r\n" * 100_000 + b"\r\n",
    ],
)
@pytest.mark.parametrize("is_second", [False, True])
async def test_a_head_that_is_too_large_is_answered_by_431(server: Serving, head: bytes, is_second: bool) -> None:
    connection = await server.connect()
    if is_second:
        await connection.request("GET", "/version")
        await connection.answer()
    connection.writer.write(head[:200_000])
    answer = await all_until_closed(connection)
    assert answer.startswith(b"HTTP/1.1 431 ") or not answer  # the reset may overtake it while more comes in
    assert len(head) > 200_000 or answer.startswith(b"HTTP/1.1 431 ")


async def test_usual_heads_pass(server: Serving) -> None:
    connection = await server.connect()
    for extra in (b"".join(b"x-%d: 1\r\n" % number for number in range(99)), b"x: " + b"y" * 60_000 + b"\r\n"):
        connection.writer.write(GET + extra + b"\r\n")
        assert (await connection.answer())[0] == 200


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (GET + b"x: ", b"y" * 65_536),
        (GET, b"x: 1\r\n" * 10_000),
        (b"GET /", b"y" * 65_536),
        (GET, b"y" * 65_536),
        (b"POST /run HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ", b"y" * 65_536),
        (b"POST /run HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n1;", b"y" * 65_536),
    ],
)
async def test_endless_heads_and_trailers_stall_nobody(serve: Serve, keys: Keys, begin: bytes, piece: bytes) -> None:
    server = await serve(auth=keys.auth)
    connections = [await server.connect() for _ in range(4)]
    tracemalloc.start()
    try:
        flooding = asyncio.gather(*(flood(connection, begin, piece) for connection in connections))
        slowest = 0.0
        while not flooding.done():
            asked_at = time.perf_counter()
            assert (await server.client.get("/version")).status_code == 200
            slowest = max(slowest, time.perf_counter() - asked_at)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert max(await flooding) < 16 * 1024 * 1024  # what fits into the buffers of both sides
    assert peak_bytes < 16 * 1024 * 1024
    assert slowest < 2.0
