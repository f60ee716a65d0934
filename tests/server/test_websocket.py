"""A WebSocket whose client stops reading, or breaks the protocol."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from greenroom.server.websocket import ClientGone, Socket
from tests.server.serving import serving


@pytest.fixture
async def gone() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
async def port(gone: asyncio.Event) -> AsyncIterator[int]:
    """Of a server that sends without end, and sets `gone` when its client is."""

    async def flood(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for state in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{state}.complete"})
            return
        await receive()
        socket = Socket(receive, send, subprotocol=None, stall_seconds=1)
        await socket.accept()
        try:
            while True:
                await socket.send(b"x" * 1_000)
                await asyncio.sleep(0)
        except ClientGone:
            gone.set()

    app: Any = flood
    async with serving(app) as server:
        yield server.port


async def test_a_client_that_does_not_read_counts_as_gone(port: int, gone: asyncio.Event) -> None:
    async with connect(f"ws://127.0.0.1:{port}/", max_queue=1) as client, asyncio.timeout(10):
        client.transport.pause_reading()
        await gone.wait()
        client.transport.abort()


async def test_a_client_that_breaks_the_protocol_counts_as_gone(port: int, gone: asyncio.Event) -> None:
    async with connect(f"ws://127.0.0.1:{port}/", max_size=None) as client, asyncio.timeout(10):
        await client.recv()
        client.transport.write(b"\x95\xcdy")
        with contextlib.suppress(ConnectionClosed):
            while not gone.is_set():
                await client.recv()
        await gone.wait()
