"""One WebSocket, as a handler sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.types import Receive, Send

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""The largest message that is taken in; a larger one closes the socket with 1009."""

PING_SECONDS = 20.0
"""How often a client is asked whether it is there, and how long it has to answer."""

STALL_SECONDS = 30.0
"""A client that takes nothing for so long is given up."""

MAX_REASON_BYTES = 123
"""The room for a reason in a close frame. Source: RFC 6455, 5.5."""

POLICY = 1008
"""What closes the socket of who isn't let in, or says what can't be. Source: RFC 6455, 7.4.1."""


class ClientGone(Exception):
    """The client has closed the socket, is lost, or takes nothing any more."""


class Socket:
    def __init__(self, receive: Receive, send: Send, *, subprotocol: str | None) -> None:
        self._receive = receive
        self._send = send
        self._subprotocol = subprotocol

    async def accept(self, headers: Mapping[str, str] | None = None) -> None:
        raw = [(name.encode(), value.encode("latin-1", "replace")) for name, value in (headers or {}).items()]
        await self._tell({"type": "websocket.accept", "subprotocol": self._subprotocol, "headers": raw})

    async def receive(self) -> str | bytes:
        """The next message. Raises ClientGone."""
        message = await self._receive()
        if message["type"] != "websocket.receive":
            raise ClientGone
        text: str | None = message.get("text")
        return text if text is not None else message["bytes"]

    async def send(self, text: bytes) -> None:
        """Send a text message; waits while the client has enough to read. Raises ClientGone."""
        await self._tell({"type": "websocket.send", "text": text.decode()})

    async def close(self, code: int, reason: str = "") -> None:
        """The reason is cut to what a close frame can hold."""
        cut = reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
        await self._tell({"type": "websocket.close", "code": code, "reason": cut})

    async def _tell(self, message: dict[str, object]) -> None:
        try:
            async with asyncio.timeout(STALL_SECONDS):
                await self._send(message)
        except OSError:  # what ASGI servers raise when the client has gone, and TimeoutError
            raise ClientGone from None
