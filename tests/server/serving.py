"""A real server for a test: uvicorn as the command runs it, on a free port, in the test's own event loop, so that both
can share events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from greenroom.cli.http_protocol import DEFAULT_LIMITS, ConnectionLimits, sweep
from greenroom.cli.http_server import server_config
from greenroom.server.application import GreenroomApp
from tests.server.quick_server import QuickServer

TIMEOUT_SECONDS = 30.0

Json = dict[str, Any]


@dataclass
class Serving:
    """A running server. `client` talks to it; `connect` opens a bare socket, which is closed with the server."""

    app: GreenroomApp
    port: int
    client: httpx.AsyncClient
    held: Collection[Any]
    connections: list[RawConnection] = field(default_factory=list)
    stop: Callable[[], None] = lambda: None
    tasks: Collection[asyncio.Task[None]] = ()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def apps(self) -> Sequence[GreenroomApp]:
        """The applications of all servers at this address."""
        return [self.app]

    def cancel_requests(self) -> None:
        """Cancels requests that are still open at the end of the grace time, as an ASGI server does."""
        for task in tuple(self.tasks):
            task.cancel()

    async def connect(self, *, receive_buffer: int | None = None) -> RawConnection:
        raw = socket.socket()
        if receive_buffer is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", self.port))
        reader, writer = await asyncio.open_connection(sock=raw, limit=2**16)
        connection = RawConnection(reader, writer)
        self.connections.append(connection)
        return connection

    def holds(self, connection: RawConnection) -> bool:
        """Whether the server's side of it is open."""
        return connection.writer.get_extra_info("sockname") in [held.client for held in self.held]

    async def new_session(self, app: str, user: str = "ann", session: str = "s-1", state: Json | None = None) -> str:
        """Returns the session's path."""
        path = f"/apps/{app}/users/{user}/sessions"
        reply = await self.client.post(path, json={"sessionId": session, "state": state or {}})
        assert reply.status_code == 200, reply.text
        return f"{path}/{session}"

    async def run(
        self, app: str, text: str | None = "hi", *, headers: dict[str, str] | None = None, **more: Any
    ) -> httpx.Response:
        return await self.client.post("/run", json=run_body(app, text, **more), headers=headers)

    async def sse(
        self, app: str, text: str | None = "hi", *, headers: dict[str, str] | None = None, **more: Any
    ) -> list[Frame]:
        """All frames of a streamed run."""
        reply = await self.client.post("/run_sse", json=run_body(app, text, **more), headers=headers)
        assert reply.status_code == 200, reply.text
        assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
        return frames_of(reply.content)

    async def wait_for_status(self, run_id: str, *wanted: str) -> Json:
        record: Json = {}

        async def reached() -> bool:
            nonlocal record
            record = (await self.client.get(f"/runs/{run_id}")).json()
            return record["status"] in wanted

        await until(reached)
        return record


@dataclass
class RawConnection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    rest: bytes = field(default=b"")

    async def post(self, path: str, body: Json, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        await self.request("POST", path, {"content-type": "application/json", **(headers or {})}, data)

    async def request(self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", *(f"{k}: {v}" for k, v in (headers or {}).items())]
        if body:
            lines.append(f"content-length: {len(body)}")
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the answer."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            data = await self.reader.readuntil(b"\r\n\r\n")
        status, *lines = data.decode("latin-1").rstrip().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        return int(status.split()[1]), {name.lower(): value for name, value in headers.items()}

    async def chunk(self) -> bytes:
        """One chunk of a chunked body, which is what the server wrote at once; empty at the end."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def chunks(self) -> list[bytes]:
        found: list[bytes] = []
        while chunk := await self.chunk():
            found.append(chunk)
        return found

    async def answer(self) -> tuple[int, bytes]:
        """Status and body of a whole answer, after which the server keeps the connection, or closes it."""
        status, headers = await self.head()
        if headers.get("transfer-encoding") == "chunked":
            body = b"".join(await self.chunks())
        else:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        if headers.get("connection") == "close":
            self.drop()
        return status, body

    def drop(self) -> None:
        """Vanish without a word."""
        self.writer.transport.abort()

    async def close(self) -> None:
        self.drop()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


@dataclass(frozen=True)
class Frame:
    """A Server-Sent Event as it came, taken apart by the letter of the format."""

    data: Json
    id: int | None = None
    event: str | None = None

    @property
    def text(self) -> str:
        return "".join(part.get("text", "") for part in self.data.get("content", {}).get("parts", []))


def frames_of(stream: bytes) -> list[Frame]:
    """Fails on anything but whole frames of single `id:`, `event:` and `data:` lines, and comments."""
    assert stream == b"" or stream.endswith(b"\n\n"), stream[-100:]
    frames: list[Frame] = []
    for block in stream.decode().split("\n\n")[:-1]:
        if block.startswith(": "):
            continue
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        assert set(fields) <= {"id", "event", "data"}, block
        number = int(fields["id"]) if "id" in fields else None
        frames.append(Frame(json.loads(fields["data"]), number, fields.get("event")))
    return frames


def run_body(app: str, text: str | None = "hi", **more: Any) -> Json:
    body: Json = {"appName": app, "userId": "ann", "sessionId": "s-1"}
    if text is not None:
        body["newMessage"] = {"role": "user", "parts": [{"text": text}]}
    return {**body, **more}


async def until(condition: Callable[[], Any], *, seconds: float = TIMEOUT_SECONDS) -> None:
    """Wait until a condition, plain or awaitable, holds."""
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            if await found if asyncio.iscoroutine(found) else found:
                return
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def serving(
    app: GreenroomApp, limits: ConnectionLimits = DEFAULT_LIMITS, *, listener: socket.socket | None = None
) -> AsyncGenerator[Serving]:
    """listener: a bound socket; one on a free port by default."""
    config = server_config(app, grace_seconds=5, limits=limits)
    config.port = 0
    server = QuickServer(config)
    task = asyncio.ensure_future(server.serve(sockets=[listener] if listener is not None else None))
    await until(lambda: server.started or task.done())
    if task.done():
        task.result()
    port = server.servers[0].sockets[0].getsockname()[1]
    sweeping = asyncio.create_task(sweep(server.server_state.connections, limits))

    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            timeout=TIMEOUT_SECONDS,
            verify=False,
            # Else the server may close the connection just when it is used again.
            limits=httpx.Limits(keepalive_expiry=min(5.0, limits.idle_seconds / 2)),
        ) as client:
            held = server.server_state.connections
            server_of_test = Serving(app, port, client, held, stop=lambda: setattr(server, "should_exit", True))
            server_of_test.tasks = server.server_state.tasks
            try:
                yield server_of_test
            finally:
                for connection in server_of_test.connections:
                    await connection.close()
    finally:
        sweeping.cancel()
        server.should_exit = True
        await task
