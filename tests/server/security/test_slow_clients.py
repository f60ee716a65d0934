"""Clients that keep the server waiting are closed; who waits for the server, or takes its time, is not."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.cli.http_protocol import ConnectionLimits
from greenroom.testing import Listens, ScriptedLiveModel
from tests.server.agents import Gate, HeldModel, gated
from tests.server.conftest import Serve
from tests.server.live_client import talking, texts
from tests.server.serving import TIMEOUT_SECONDS, RawConnection, Serving, run_body, until

LIMIT_SECONDS = 0.5


LIMITS = ConnectionLimits(
    head_seconds=LIMIT_SECONDS,
    idle_seconds=LIMIT_SECONDS,
    body_seconds=LIMIT_SECONDS,
    stall_seconds=LIMIT_SECONDS,
    sweep_seconds=0.02,
)


@pytest.fixture
def connection_limits() -> ConnectionLimits:
    return LIMITS


async def all_until_closed(connection: RawConnection) -> bytes:
    """Reads until the server closes the connection."""
    received = b""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        with contextlib.suppress(ConnectionError):
            while data := await connection.reader.read(65536):
                received += data
    return received


async def drip(connection: RawConnection, piece: bytes) -> None:
    """Send a piece again and again, often enough not to look idle, until the connection breaks."""
    with contextlib.suppress(ConnectionError):
        while not connection.writer.is_closing():
            connection.writer.write(piece)
            await connection.writer.drain()
            await asyncio.sleep(LIMIT_SECONDS / 10)


@pytest.mark.parametrize(
    ("begun", "piece"),
    [
        (b"", b""),
        (b"", b"\r\n"),
        (b"GET /version HTT", b""),
        (b"GET /", b"x"),
        (b"GET /version HTTP/1.1\r\nhost: a\r\n", b"x: 1\r\n"),
        (b"GET /version HTTP/1.1\r\nx: ", b"y"),
        (b"POST /run HTTP/1.1\r\ncontent-length: 9000\r\n\r\n", b""),
        (b"POST /run HTTP/1.1\r\ncontent-length: 9000\r\n\r\n", b" "),
        (b"POST /run HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"POST /run HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", b""),
    ],
)
@pytest.mark.parametrize("is_second", [False, True])
async def test_a_request_that_does_not_come_is_not_waited_for(
    server: Serving, begun: bytes, piece: bytes, is_second: bool
) -> None:
    connection = await server.connect()
    if is_second:
        await connection.request("GET", "/health")
        await connection.head()
    connection.writer.write(begun)
    dripping = asyncio.create_task(drip(connection, piece)) if piece else None
    await all_until_closed(connection)
    if dripping is not None:
        await dripping
    assert (await server.client.get("/version")).status_code == 200


async def test_hundreds_of_idle_connections_hold_up_nobody(server: Serving) -> None:
    idle = [await server.connect() for _ in range(500)]
    for connection in idle[::2]:
        connection.writer.write(b"POST /run HTTP/1.1\r\nhost: a\r\n")
    await server.new_session("echo")
    assert (await server.run("echo")).status_code == 200
    await asyncio.gather(*map(all_until_closed, idle))
    assert (await server.sse("echo"))[-1].text == "You said hi"


async def test_a_body_may_take_long_as_long_as_it_comes(serve: Serve) -> None:
    server = await serve(connection_limits=replace(LIMITS, body_bytes_per_second=1000))
    await server.new_session("echo")
    connection = await server.connect()
    size = 20_000
    await connection.request("POST", "/apps/echo/users/ann/sessions", {"content-length": str(size + 2)})
    connection.writer.write(b"{")
    for _ in range(20):
        connection.writer.write(b" " * (size // 20))
        await asyncio.sleep(LIMIT_SECONDS / 10)
    connection.writer.write(b"}")
    assert (await connection.head())[0] == 200


async def test_who_waits_for_the_server_is_not_closed(serve: Serve) -> None:
    gate = Gate()
    model = HeldModel()
    server = await serve(gated(gate), LlmAgent(name="held", model=model), keep_alive_seconds=60)
    for app in ("gated", "held"):
        await server.new_session(app)
    waiting = await server.connect()
    streaming = await server.connect()
    await waiting.post("/run", run_body("gated"))
    await streaming.post("/run_sse", run_body("held", streaming=True))
    await until(lambda: gate.entered and model.calls)
    await asyncio.sleep(LIMIT_SECONDS * 3)
    gate.open()
    model.let_go()
    assert (await waiting.head())[0] == 200
    assert (await streaming.head())[0] == 200
    assert b"one two three four" in b"".join(await streaming.chunks())


async def test_requests_that_come_together_are_all_answered(server: Serving) -> None:
    connection = await server.connect()
    request = b"GET /version HTTP/1.1\r\nhost: a\r\n\r\n"
    connection.writer.write(request * 20)
    assert (await all_until_closed(connection)).count(b"HTTP/1.1 200 OK") == 20


async def test_a_conversation_may_be_silent(serve: Serve) -> None:
    agent = LlmAgent(name="desk", model=ScriptedLiveModel(["Hello there.", Listens()]))
    server = await serve(agent)
    await server.new_session("desk")
    async with talking(server.port) as client:
        await asyncio.sleep(LIMIT_SECONDS * 3)
        await client.say("hi")
        assert texts(await client.turn()) == ["Hello there."]


WORDS = [f"{number}-{'x' * 7_000_000}" for number in range(2)]
"""Each more than the kernel's buffers hold."""


STALL_LIMITS = ConnectionLimits(stall_seconds=LIMIT_SECONDS, sweep_seconds=0.02)
"""No others: on a busy machine, the requests of the test itself would exceed them."""


async def begun(serve: Serve, limits: ConnectionLimits = STALL_LIMITS) -> tuple[Serving, RawConnection, HeldModel, str]:
    """A stream of large partial events, and its reader that has read its head."""
    model = HeldModel(" ".join(WORDS))
    server = await serve(LlmAgent(name="held", model=model), connection_limits=limits)
    await server.new_session("held")
    server.client.headers["connection"] = "close"  # else it's one more that is closed between two requests
    reader = await server.connect(receive_buffer=4096)
    await reader.post("/run_sse", run_body("held", streaming=True))
    _, headers = await reader.head()
    return server, reader, model, headers["x-run-id"]


async def test_a_reader_that_stops_is_closed_and_its_run_continues(serve: Serve) -> None:
    server, reader, model, run_id = await begun(serve)
    assert server.holds(reader)
    model.let_go()
    await server.wait_for_status(run_id, "succeeded")
    await until(lambda: not server.holds(reader))
    assert len(await all_until_closed(reader)) < sum(map(len, WORDS)) / 2
    with pytest.raises(asyncio.IncompleteReadError):
        await reader.chunk()
    page = (await server.client.get(f"/runs/{run_id}/events")).json()
    assert page["events"][-1]["content"]["parts"][0]["text"].split() == WORDS


async def test_a_reader_that_is_slow_is_not_closed(serve: Serve) -> None:
    limits = replace(STALL_LIMITS, stall_seconds=4 * LIMIT_SECONDS)  # a word takes longer than that
    server, reader, model, run_id = await begun(serve, limits)
    for word in WORDS:
        model.let_go(1)
        missing = len(word)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while missing > 0:
                piece = await reader.reader.read(65536)
                assert piece, "closed"
                missing -= len(piece)
                await asyncio.sleep(LIMIT_SECONDS / 20)
    reader.drop()
    model.let_go()
    await server.wait_for_status(run_id, "succeeded")
