"""A small load balancer for loopback: round robin per TCP connection, among the servers whose `/readyz` answers 200."""

from __future__ import annotations

import asyncio
import contextlib
from urllib.parse import urlsplit

_CHUNK_BYTES = 64 * 1024
_CONNECT_SECONDS = 2.0
_NO_SERVER = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class _Server:
    """A server, and what its last check said."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self.host = parts.hostname
        self.port = parts.port
        self.is_ready = False

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(_CONNECT_SECONDS):
            return await asyncio.open_connection(self.host, self.port)

    async def check(self, seconds: float) -> bool:
        """Asks `/readyz`, and returns False if the server doesn't answer 200 within the time."""
        try:
            async with asyncio.timeout(seconds):
                reader, writer = await asyncio.open_connection(self.host, self.port)
                with contextlib.closing(writer):
                    writer.write(f"GET /readyz HTTP/1.1\r\nhost: {self.host}\r\nconnection: close\r\n\r\n".encode())
                    status_line = await reader.readline()
        except (OSError, TimeoutError):
            return False
        return b" 200 " in status_line


class LoadBalancer:
    """Listens on a port of loopback, and passes each connection to the next server that is ready.

    A connection stays with its server until one of both closes it. Without a server, a connection gets a 503.
    """

    def __init__(self, *servers: str, check_seconds: float = 0.5, timeout_seconds: float = 2.0) -> None:
        """servers: URLs. check_seconds: interval of the checks. timeout_seconds: of one check."""
        self._servers = {url: _Server(url) for url in servers}
        self._check_seconds = check_seconds
        self._timeout_seconds = timeout_seconds
        self._next = 0
        self._checks: dict[str, asyncio.Task[None]] = {}
        self._listening: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        assert self._listening is not None
        host, port = self._listening.sockets[0].getsockname()
        return f"http://{host}:{port}"

    @property
    def ready(self) -> list[str]:
        """The URLs of the servers that get connections."""
        return [url for url, server in self._servers.items() if server.is_ready]

    async def start(self, port: int = 0) -> None:
        """port: a free one by default."""
        self._listening = await asyncio.start_server(self._accept, "127.0.0.1", port, backlog=1024)
        for url in self._servers:
            self._checks[url] = asyncio.create_task(self._keep_checking(url))

    def add(self, url: str) -> None:
        self._servers[url] = _Server(url)
        self._checks[url] = asyncio.create_task(self._keep_checking(url))

    def remove(self, url: str) -> None:
        """Its connections stay open."""
        del self._servers[url]
        self._checks.pop(url).cancel()

    async def wait_until_ready(self, *servers: str) -> None:
        """Waits until these servers get connections; all by default."""
        wanted = set(servers or self._servers)
        while not wanted <= set(self.ready):
            await asyncio.sleep(self._check_seconds / 5)

    async def close(self) -> None:
        """Closes the connections, too."""
        if self._listening is not None:
            self._listening.close()
        tasks = [*self._checks.values(), *self._connections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_checking(self, url: str) -> None:
        server = self._servers[url]
        while True:
            server.is_ready = await server.check(self._timeout_seconds)
            await asyncio.sleep(self._check_seconds)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._pass_on(reader, writer)
        except asyncio.CancelledError:  # by `close`; asyncio would log a task of its own that is cancelled
            pass
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes bytes on in both directions until the server has closed its connection."""
        upstream = await self._connect()
        if upstream is None:
            writer.write(_NO_SERVER)
            await _close(writer)
            return

        from_server, to_server = upstream
        try:
            async with asyncio.TaskGroup() as both:
                sending = both.create_task(_copy(reader, to_server))
                await _copy(from_server, writer)
                sending.cancel()
            await _close(writer)
        except* OSError:  # one side was reset: so are both
            pass
        finally:
            to_server.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Connects to the next server that is ready; None if there is none."""
        for _ in range(len(self._servers)):
            servers = [server for server in self._servers.values() if server.is_ready]
            if not servers:
                break
            self._next += 1
            server = servers[self._next % len(servers)]
            try:
                return await server.connect()
            except (OSError, TimeoutError):
                server.is_ready = False
        return None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes bytes on until their end, and then the end."""
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def _close(writer: asyncio.StreamWriter) -> None:
    """Closes a connection when everything was sent."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
