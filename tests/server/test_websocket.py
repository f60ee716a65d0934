"""A WebSocket whose client stops reading."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import connect

from greenroom.server.websocket import ClientGone, Socket
from tests.server.serving import serving


async def test_a_client_that_does_not_read_counts_as_gone() -> None:
    gone = asyncio.Event()

    async def flood(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for state in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{state}.complete"})
            return
        await receive()
        socket = Socket(receive, send, subprotocol=None, stall_seconds=0.1)
        await socket.accept()
        try:
            while True:
                await socket.send(b"x" * 1_000_000)
        except ClientGone:
            gone.set()

    app: Any = flood
    async with serving(app) as server, connect(f"ws://127.0.0.1:{server.port}/", max_queue=1) as client:
        client.transport.pause_reading()
        async with asyncio.timeout(10):
            await gone.wait()
        client.transport.abort()
