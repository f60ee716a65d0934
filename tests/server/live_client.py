"""A client of `/run_live`: a real WebSocket, and what came over it in short lines."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any
from urllib.parse import urlencode

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.server.serving import TIMEOUT_SECONDS, Json

PLACE = {"app_name": "desk", "user_id": "ann", "session_id": "s-1"}


class LiveClient:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.frames: list[Json] = []

    async def say(self, text: str) -> None:
        await self.send({"content": {"role": "user", "parts": [{"text": text}]}})

    async def send(self, frame: Json) -> None:
        await self.socket.send(json.dumps(frame))

    async def speak(self, data: bytes, mime_type: str = "audio/pcm;rate=16000") -> None:
        await self.send({"blob": {"mime_type": mime_type, "data": base64.b64encode(data).decode()}})

    async def next(self) -> Json:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            frame = json.loads(await self.socket.recv())
        self.frames.append(frame)
        return frame

    async def until(self, condition: Callable[[Json], Any]) -> Json:
        while not condition(frame := await self.next()):
            pass
        return frame

    async def turn(self) -> list[Json]:
        """The frames of one turn of the model."""
        start = len(self.frames)
        await self.until(lambda frame: frame.get("turnComplete"))
        return self.frames[start:]

    async def closed(self) -> tuple[int, str]:
        """Code and reason of the close frame."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self.next()
        return self.socket.close_code or 0, self.socket.close_reason or ""


@contextlib.asynccontextmanager
async def talking(port: int, path: str = "/run_live", **options: Any) -> AsyncGenerator[LiveClient]:
    """options: query parameters, lists for several of a name; `origin`, `subprotocols` and the like go to `connect`."""
    names = ("origin", "subprotocols", "additional_headers", "compression", "ping_interval", "max_queue")
    given = {name: options.pop(name) for name in names if name in options}
    query = {name: value for name, value in {**PLACE, **options}.items() if value is not None}
    address = f"ws://127.0.0.1:{port}{path}?{urlencode(query, doseq=True)}"
    async with connect(address, max_size=None, proxy=None, **given) as socket:
        yield LiveClient(socket)


def texts(frames: list[Json]) -> list[str]:
    """Texts of whole events."""
    return [
        part["text"]
        for frame in frames
        if not frame.get("partial")
        for part in frame.get("content", {}).get("parts", [])
        if "text" in part
    ]
