"""The client of forwarded requests, against servers that send any bytes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenroom.errors import InvalidRequest
from greenroom.server.forwarding.http_client import ConnectError, HttpClient, Request, Response, ResponseError

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

GET = Request(b"GET", b"/x?y=1", [(b"accept", b"*/*")])
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class RawServer:
    """Calls `answer` for each request, until it closes the connection; counts both."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.address = ""
        self.connections = 0
        self.ended = 0
        self.requests: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                await self.answer(reader, writer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.ended += 1
            writer.close()

    async def wait_until_ended(self, count: int) -> None:
        async with asyncio.timeout(5):
            while self.ended < count:
                await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def serving(answer: Answer) -> AsyncGenerator[tuple[RawServer, HttpClient]]:
    raw = RawServer(answer)
    server = await asyncio.start_server(raw.serve, "127.0.0.1", 0)
    raw.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    client = HttpClient(connect_seconds=2, max_head_bytes=4096)
    try:
        async with asyncio.timeout(20):
            yield raw, client
    finally:
        client.close()
        server.close()
        await raw.wait_until_ended(raw.connections)


def sending(*pieces: bytes, closes: bool = False) -> Answer:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            if len(pieces) > 1:
                await asyncio.sleep(0)
        if closes:
            writer.close()
            await writer.wait_closed()

    return answer


async def body_of(response: Response) -> bytes:
    pieces: list[bytes] = []
    try:
        while piece := await response.read():
            pieces.append(piece)
    finally:
        response.close()
    return b"".join(pieces)


async def ask(raw: RawServer, client: HttpClient, request: Request = GET) -> tuple[int, bytes]:
    response = await client.send(raw.address, request)
    return response.status, await body_of(response)


async def test_requests_share_a_connection() -> None:
    async with serving(sending(OK)) as (raw, client):
        for _ in range(3):
            assert await ask(raw, client) == (200, b"ok")
        assert raw.connections == 1
        host = raw.address.removeprefix("http://").encode()
        assert raw.requests[0] == b"GET /x?y=1 HTTP/1.1\r\nhost: %b\r\naccept: */*\r\n\r\n" % host


async def test_concurrent_requests_have_a_connection_each() -> None:
    async with serving(sending(OK)) as (raw, client):
        assert await asyncio.gather(*(ask(raw, client) for _ in range(20))) == [(200, b"ok")] * 20
        assert raw.connections <= 20
        connections = raw.connections
        await asyncio.gather(*(ask(raw, client) for _ in range(connections)))
        assert raw.connections == connections


@pytest.mark.parametrize(
    ("sent", "status", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n1\r\nd\r\n0\r\nTrailer: x\r\n\r\n", 200, b"abcd"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 10\r\n\r\n", 304, b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK, 200, b"ok"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 200, b""),
        (b"HTTP/1.1 999 Odd\r\ncontent-length: 1\r\n\r\n\0", 999, b"\0"),
    ],
)  # fmt: skip
async def test_a_response_is_read_and_its_connection_kept(sent: bytes, status: int, body: bytes) -> None:
    for pieces in ([sent], [bytes([byte]) for byte in sent]):
        async with serving(sending(*pieces)) as (raw, client):
            assert await ask(raw, client) == (status, body)
            assert await ask(raw, client) == (status, body)
            assert raw.connections == 1


async def test_the_headers_are_those_of_the_last_response() -> None:
    sent = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\nX-A: \xe9 1\r\nx-a: 2\r\ncontent-length: 0\r\n\r\n"
    async with serving(sending(sent)) as (raw, client):
        response = await client.send(raw.address, GET)
        assert response.headers == [(b"x-a", b"\xe9 1"), (b"x-a", b"2"), (b"content-length", b"0")]
        assert response.header(b"x-a") == b"\xe9 1"
        assert response.header(b"link") is None
        await body_of(response)


async def test_the_response_to_head_has_no_body() -> None:
    async with serving(sending(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n")) as (raw, client):
        for _ in range(2):
            assert await ask(raw, client, GET._replace(method=b"HEAD")) == (200, b"")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nwithout a length",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        b"<html>",
        b"HTTP/1.1 200 OK\r\n" + b"x: yyyy\r\n" * 2000 + b"content-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;" + b"a" * 10_000,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + b"x: yyyy\r\n" * 2000,
    ],
)
async def test_a_cut_or_invalid_response_is_an_error(sent: bytes) -> None:
    async with serving(sending(sent, closes=True)) as (raw, client):
        for _ in range(2):
            with pytest.raises(ResponseError):
                await ask(raw, client)
        assert raw.connections == 2


async def test_what_arrived_before_the_connection_was_lost_is_read() -> None:
    async with serving(sending(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", closes=True)) as (raw, client):
        response = await client.send(raw.address, GET)
        await raw.wait_until_ended(1)
        assert await response.read() == b"abc"
        with pytest.raises(ResponseError):
            await response.read()
        response.close()


async def test_a_connection_that_the_server_closes_is_not_used_again() -> None:
    sent = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"
    async with serving(sending(sent)) as (raw, client):
        assert await ask(raw, client) == (200, b"ok")
        assert await ask(raw, client) == (200, b"ok")
        assert raw.connections == 2


async def test_a_connection_closed_between_two_requests_is_not_used_again() -> None:
    async with serving(sending(OK, closes=True)) as (raw, client):
        for _ in range(5):
            assert await ask(raw, client) == (200, b"ok")
            await raw.wait_until_ended(raw.connections)
        assert raw.connections == 5


async def test_a_connection_that_has_been_idle_for_long_is_not_used_again() -> None:
    async with serving(sending(OK)) as (raw, client):
        await ask(raw, client)
        impatient = HttpClient(idle_seconds=0)
        await ask(raw, impatient)
        await ask(raw, impatient)
        assert raw.connections == 3
        impatient.close()


@pytest.mark.parametrize("more", [b"x", OK, b"\r\n\r\n" + OK])
async def test_bytes_after_a_response_are_not_the_next_response(more: bytes) -> None:
    """Whether they come with the response or later."""
    is_first = True

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal is_first
        writer.write(OK + more if is_first else b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnext")
        is_first = False

    async with serving(answer) as (raw, client):
        assert await ask(raw, client) == (200, b"ok")
        assert await ask(raw, client) == (200, b"next")

    async def answer_late(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.write(more)

    async with serving(answer_late) as (raw, client):
        for _ in range(3):
            assert await ask(raw, client) == (200, b"ok")
            await asyncio.sleep(0.02)
        assert raw.connections == 3


async def test_a_slow_reader_holds_the_server_back() -> None:
    size = 64 * 1024 * 1024
    written = 0

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        while written < size:
            writer.write(bytes(64 * 1024))
            await writer.drain()
            written += 64 * 1024

    async with serving(answer) as (raw, client):
        response = await client.send(raw.address, GET)
        before = -1
        while before != written:  # the buffers of the sockets become full
            before = written
            await asyncio.sleep(0.1)
        assert written < size / 2
        first = await response.read()
        assert len(first) < 1024 * 1024
        assert len(first) + len(await body_of(response)) == size
        assert await asyncio.wait_for(_is_reused(raw, client), 5)


async def _is_reused(raw: RawServer, client: HttpClient) -> bool:
    raw.answer = sending(OK)
    await ask(raw, client)
    return raw.connections == 1


async def test_a_response_that_is_not_read_to_its_end_closes_the_connection() -> None:
    async with serving(sending(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc")) as (raw, client):
        response = await client.send(raw.address, GET)
        response.close()
        response.close()
        await raw.wait_until_ended(1)
        with pytest.raises(ResponseError):
            await response.read()
            await response.read()


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"])
async def test_a_cancelled_request_closes_its_connection(sent: bytes) -> None:
    async with serving(sending(sent)) as (raw, client):
        asking = asyncio.create_task(ask(raw, client))
        while not raw.requests:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await raw.wait_until_ended(1)


@pytest.mark.parametrize("size", [0, 1, 1000, 20_000_000])
async def test_a_body_is_sent(size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert b"\r\ncontent-length: %d\r\n" % size in raw.requests[-1]
        data = await reader.readexactly(size)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (size, data))

    async with serving(echo) as (raw, client):
        for _ in range(2):
            assert await ask(raw, client, Request(b"POST", b"/", [], body)) == (200, body)
        assert raw.connections == 1


async def test_a_response_before_the_body_is_read_ends_the_connection() -> None:
    async with serving(sending(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")) as (raw, client):
        request = Request(b"POST", b"/", [], bytes(50_000_000))
        assert await ask(raw, client, request) == (413, b"no")
        assert await ask(raw, client) == (413, b"no")
        assert raw.connections == 2


@pytest.mark.parametrize(
    "request_",
    [
        Request(b"GET", b"/\r\nx: y", []),
        Request(b"GET", b"/", [(b"x", b"a\nb: c")]),
        Request(b"GET", b"/", [(b"x\r\ny", b"")]),
        Request(b"GET", b"/", [(b"x", b"a\0")]),
        Request(b"GET", b"/", [(b"x", b"a\rb")]),
    ],
)
async def test_a_header_cannot_hold_another_one(request_: Request) -> None:
    async with serving(sending(OK)) as (raw, client):
        with pytest.raises(InvalidRequest, match="line break"):
            await ask(raw, client, request_)
        assert raw.connections == 0


async def test_a_server_that_cannot_be_reached_is_an_error() -> None:
    async with serving(sending(OK)) as (raw, client):
        pass
    with pytest.raises(ConnectError, match=raw.address):
        await client.send(raw.address, GET)
    with pytest.raises(ConnectError):
        await client.send("http://name.invalid:1", GET)


async def test_a_server_that_does_not_answer_is_an_error() -> None:
    """Here one that waits for a request, where the client waits for the handshake of TLS."""
    async with serving(sending(OK)) as (raw, _):
        client = HttpClient(connect_seconds=0.1)
        with pytest.raises(ConnectError, match="can't be reached"):
            await client.send(raw.address.replace("http:", "https:"), GET)


HEADERS = st.lists(
    st.sampled_from([b"x-a: 1", b"Date: now", b"x-empty:", b"connection: close", b"x: \xff"]), max_size=3
)
BODIES = st.lists(st.binary(min_size=1, max_size=40), max_size=4)


def response_bytes(headers: Sequence[bytes], pieces: Sequence[bytes], *, is_chunked: bool, interim: int) -> bytes:
    head = [b"HTTP/1.1 100 Continue\r\n\r\n" * interim + b"HTTP/1.1 200 OK", *headers]
    body = b"".join(pieces)
    if is_chunked:
        head.append(b"Transfer-Encoding: chunked")
        body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    else:
        head.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False) if begin < end]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(HEADERS, BODIES, st.booleans(), st.integers(0, 2), st.lists(st.integers(0, 400), max_size=6))
def test_any_response_in_any_pieces(
    headers: list[bytes], pieces: list[bytes], is_chunked: bool, interim: int, places: list[int]
) -> None:
    async def check() -> None:
        sent = response_bytes(headers, pieces, is_chunked=is_chunked, interim=interim)
        async with serving(sending(*cut(sent, places))) as (raw, client):
            for _ in range(2):
                assert await ask(raw, client) == (200, b"".join(pieces))
            assert raw.connections == (2 if b"connection: close" in headers else 1)

    asyncio.run(check())


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(HEADERS, BODIES, st.booleans(), st.integers(0, 400), st.integers(0, 30), st.binary(max_size=12), st.booleans())
def test_any_broken_response_leaves_the_client_usable(
    headers: list[bytes], pieces: list[bytes], is_chunked: bool, at: int, removed: int, added: bytes, closes: bool
) -> None:
    """Bytes are removed from a response, and others added."""
    sent = response_bytes(headers, pieces, is_chunked=is_chunked, interim=1)
    at %= len(sent)
    broken = sent[:at] + added + sent[at + removed :]

    async def check() -> None:
        async with serving(sending(broken, closes=closes)) as (raw, client):
            with contextlib.suppress(ResponseError, TimeoutError):
                async with asyncio.timeout(5 if closes else 0.02):
                    await ask(raw, client)
            raw.answer = sending(OK)
            for _ in range(2):
                assert await ask(raw, client) == (200, b"ok")

    asyncio.run(check())
