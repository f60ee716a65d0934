"""Small servers that speak the vendors' live formats over WebSockets: what all of them do."""

from __future__ import annotations

import asyncio
import json
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any, Self

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from greenroom.models.model import BaseLlm
from greenroom.testing import Drops, HangsUp, Listens
from greenroom.testing.scripted_live_model import LiveItem

Json = dict[str, Any]
KEY = "sk-test-1234567890abcdef"


class Conversation:
    """One connection. seen: what the client has sent, in order."""

    def __init__(self, socket: ServerConnection) -> None:
        self.socket = socket
        self.seen: list[Json] = []
        self.asked: asyncio.Queue[None] = asyncio.Queue()
        self.came_in = asyncio.Event()
        self.speaking: asyncio.Task[None] | None = None

    async def send(self, *messages: Json) -> None:
        for message in messages:
            await self.socket.send(json.dumps(message))

    async def more(self, count: int) -> None:
        """Waits until so many more messages have arrived."""
        wanted = len(self.seen) + count
        while len(self.seen) < wanted:
            self.came_in.clear()
            await self.came_in.wait()


class LiveServer(ABC):
    """Answers each turn of the user with the next of `answer`. A subclass has the vendor's format."""

    secret = KEY

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.connections: list[Conversation] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.address = ""
        self._turns = deque[list[LiveItem]]()
        self._refusal: tuple[int, str] | None = None
        self._tls = tls

    def answer(self, *items: LiveItem) -> None:
        """One more turn, which is completed by itself unless it ends with a call, a drop or the end."""
        self._turns.append(list(items))

    def refuse(self, status: int, message: str) -> None:
        """From now on, connections get this HTTP status instead."""
        self._refusal = status, message

    @property
    def seen(self) -> list[Json]:
        return [message for connection in self.connections for message in connection.seen]

    @abstractmethod
    async def begin(self, connection: Conversation) -> None:
        """The first messages of both sides. Further ones may come until it returns."""

    @abstractmethod
    async def take(self, connection: Conversation, message: Json) -> bool:
        """Answers a message; true if the model is to speak now."""

    @abstractmethod
    def frames(self, item: LiveItem) -> Iterator[Json]: ...

    @abstractmethod
    def opening(self) -> list[Json]:
        """The messages before a turn."""

    @abstractmethod
    def ending(self, last: LiveItem | None) -> list[Json]: ...

    @abstractmethod
    def model(self, name: str = ..., **options: Any) -> BaseLlm: ...

    @abstractmethod
    async def send_away(self, connection: Conversation) -> None:
        """Says that the session is past its time."""

    async def _speak(self, connection: Conversation) -> None:
        while True:
            await connection.asked.get()
            items = self._turns.popleft()
            await connection.send(*self.opening())
            for index, item in enumerate(items):
                if isinstance(item, Listens):
                    await connection.more(item.messages)
                elif isinstance(item, Drops):
                    self._turns.appendleft(items[index + 1 :])
                    connection.socket.transport.abort()
                    return
                elif isinstance(item, HangsUp):
                    await connection.socket.close()
                    return
                else:
                    await connection.send(*self.frames(item))
            await connection.send(*self.ending(items[-1] if items else None))

    async def _talk(self, socket: ServerConnection) -> None:
        connection = Conversation(socket)
        self.connections.append(connection)
        self.restart(connection)
        try:
            await self.begin(connection)
            async for text in socket:
                message = json.loads(text)
                connection.seen.append(message)
                connection.came_in.set()
                if await self.take(connection, message):
                    connection.asked.put_nowait(None)
        except ConnectionClosed:
            pass
        finally:
            assert connection.speaking is not None
            connection.speaking.cancel()
            with suppress(asyncio.CancelledError, ConnectionClosed):
                await connection.speaking

    def restart(self, connection: Conversation) -> None:
        """Breaks off the turn that is being given, if any."""
        if connection.speaking is not None:
            connection.speaking.cancel()
        connection.speaking = asyncio.create_task(self._speak(connection))

    def _admit(self, socket: ServerConnection, request: Request) -> Response | None:
        self.paths.append(request.path)
        self.headers.append({name.lower(): value for name, value in request.headers.raw_items()})
        if self._refusal is None:
            return None
        status, message = self._refusal
        return socket.respond(HTTPStatus(status), json.dumps({"error": {"message": message}}))

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[Self]:
        server: Server
        async with serve(self._talk, "127.0.0.1", 0, process_request=self._admit, ssl=self._tls) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            self.address = f"127.0.0.1:{port}"
            yield self
