"""An HTTP server that receives webhooks, for tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

NO_CONTENT = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"


def status(code: int, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {code} X", "connection: close", f"content-length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass
class Message:
    headers: httpx.Headers
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def content(self) -> Any:
        return json.loads(self.body)

    @property
    def type(self) -> str:
        return self.content["type"]


@dataclass
class WebhookReceiver:
    """Keeps what it is sent. answers: the first replies, then it accepts; None: it never replies."""

    url: str = ""
    answers: list[bytes | None] = field(default_factory=list[bytes | None])
    messages: list[Message] = field(default_factory=list[Message])
    open: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._take(reader, writer))
        self.open.add(task)
        task.add_done_callback(self.open.discard)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):  # the sender was killed
                await self._answer(reader, writer)
        finally:
            writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip().split("\r\n")[1:]
        headers = httpx.Headers([(name, value) for name, _, value in (line.partition(": ") for line in head)])
        body = await reader.readexactly(int(headers["content-length"]))
        answer = self.answers.pop(0) if self.answers else NO_CONTENT
        async with self._changed:
            self.messages.append(Message(headers, body))
            self._changed.notify_all()
        if answer is None:
            with contextlib.suppress(asyncio.CancelledError):
                await reader.read()  # until the sender hangs up
        else:
            writer.write(answer)

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(20), self._changed:
            await self._changed.wait_for(reached)

    async def until_received(self, *types: str) -> None:
        """Waits for exactly these messages, in this order."""
        await self.until(lambda: len(self.messages) >= len(types))
        assert self.types == list(types)

    @property
    def types(self) -> list[str]:
        return [message.type for message in self.messages]


@asynccontextmanager
async def receiving(*answers: bytes | None) -> AsyncGenerator[WebhookReceiver]:
    receiver = WebhookReceiver(answers=list(answers))
    async with await asyncio.start_server(receiver.accept, "127.0.0.1", 0) as server:
        receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
        try:
            yield receiver
        finally:
            for task in receiver.open:
                task.cancel()
            await asyncio.gather(*receiver.open, return_exceptions=True)
