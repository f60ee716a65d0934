"""A WebSocket connection for handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.types import Receive, Send

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""Maximum size of a received message; a larger one closes the socket with 1009."""

MAX_REASON_BYTES = 123
"""Maximum size of the reason in a close frame. Source: RFC 6455, 5.5."""

POLICY = 1008
"""Close code for refused clients and invalid requests. Source: RFC 6455, 7.4.1."""


class ClientGone(Exception):
    """The client has closed the socket, has disconnected, or has stopped reading."""


class Socket:
    def __init__(self, receive: Receive, send: Send, *, subprotocol: str | None, stall_seconds: float = 30.0) -> None:
        """Wraps the connection. A send that takes longer than `stall_seconds` means that the client is gone."""
        self._receive = receive
        self._send = send
        self._subprotocol = subprotocol
        self._stall_seconds = stall_seconds

    async def accept(self, headers: Mapping[str, str] | None = None) -> None:
        raw = [(name.encode(), value.encode("latin-1", "replace")) for name, value in (headers or {}).items()]
        await self._send_message({"type": "websocket.accept", "subprotocol": self._subprotocol, "headers": raw})

    async def receive(self) -> str | bytes:
        """The next message. Raises ClientGone."""
        message = await self._receive()
        if message["type"] != "websocket.receive":
            raise ClientGone
        text: str | None = message.get("text")
        return text if text is not None else message["bytes"]

    async def send(self, text: bytes) -> None:
        """Sends a text message; waits while the send buffer is full. Raises ClientGone."""
        await self._send_message({"type": "websocket.send", "text": text.decode()})

    async def close(self, code: int, reason: str = "") -> None:
        """Closes the socket; truncates the reason to MAX_REASON_BYTES."""
        cut = reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
        await self._send_message({"type": "websocket.close", "code": code, "reason": cut})

    async def _send_message(self, message: dict[str, object]) -> None:
        try:
            async with asyncio.timeout(self._stall_seconds):
                await self._send(message)
        except (OSError, RuntimeError):
            # OSError, such as a timeout, is raised when the client has gone, and uvicorn's RuntimeError when uvicorn
            # has closed the socket because of a frame that breaks the protocol or a missing pong.
            raise ClientGone from None
