"""The load balancer of `make replicas`, behind which tests put servers, and the command itself."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator

import httpx
import pytest

from scripts.load_balancer import LoadBalancer
from tests.replicas.servers import REPOSITORY

_REPLICA = re.compile(r"process \d+  (http://\S+)")


class Named:
    """A server that answers with its name, and then keeps the connection."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_ready = True
        self.url = ""
        self.ended = asyncio.Event()
        """Set when a client has closed its connection."""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                is_check = b"/readyz" in request
                status = 200 if self.is_ready or not is_check else 503
                body = self.name.encode()
                writer.write(b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))
        self.ended.set()


@pytest.fixture
async def named() -> AsyncIterator[list[Named]]:
    async with contextlib.AsyncExitStack() as stack:
        servers = [Named(name) for name in "abc"]
        for server in servers:
            listening = await asyncio.start_server(server.answer, "127.0.0.1", 0)
            stack.callback(listening.close)
            server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield servers


@contextlib.asynccontextmanager
async def balanced(*urls: str) -> AsyncGenerator[LoadBalancer]:
    balancer = LoadBalancer(*urls, check_seconds=0.02)
    await balancer.start()
    try:
        yield balancer
    finally:
        await balancer.close()


async def names_of(balancer: LoadBalancer, connections: int) -> Counter[str]:
    found = Counter[str]()
    for _ in range(connections):
        async with httpx.AsyncClient(base_url=balancer.url) as client:
            answers = {(await client.get("/")).text for _ in range(2)}
            assert len(answers) == 1, "a connection stays with its server"
            found.update(answers)
    return found


async def test_connections_are_shared_out_in_turn(named: list[Named]) -> None:
    async with balanced(*(server.url for server in named)) as balancer:
        await balancer.wait_until_ready()
        assert await names_of(balancer, 6) == {"a": 2, "b": 2, "c": 2}


async def test_a_server_that_is_not_ready_gets_no_connection(named: list[Named]) -> None:
    async with balanced(*(server.url for server in named)) as balancer, asyncio.timeout(5):
        await balancer.wait_until_ready()
        named[0].is_ready = False
        while len(balancer.ready) == 3:
            await asyncio.sleep(0.01)
        assert await names_of(balancer, 4) == {"b": 2, "c": 2}
        named[0].is_ready = True
        await balancer.wait_until_ready()
        assert await names_of(balancer, 3) == {"a": 1, "b": 1, "c": 1}


async def test_a_connection_that_is_refused_goes_to_the_next_server(named: list[Named]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}"
        async with balanced(nobody, named[0].url) as balancer, asyncio.timeout(5):
            await balancer.wait_until_ready(named[0].url)
            balancer._servers[nobody].is_ready = True
            assert await names_of(balancer, 2) == {"a": 2}
            assert nobody not in balancer.ready


async def test_without_a_server_a_connection_gets_503() -> None:
    async with balanced() as balancer, httpx.AsyncClient(base_url=balancer.url) as client:
        answer = await client.get("/")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"


async def test_a_client_that_leaves_is_noticed_by_the_server(named: list[Named]) -> None:
    async with balanced(named[0].url) as balancer, asyncio.timeout(5):
        await balancer.wait_until_ready()
        await names_of(balancer, 1)
        named[0].ended.clear()
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(balancer.url).port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()
        await named[0].ended.wait()


@pytest.mark.slow
async def test_the_command_starts_replicas_and_stops_them() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "scripts.replicas", "tests/replicas/agents", "--replicas", "2", "--port", str(port),
        cwd=REPOSITORY, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    assert command.stdout is not None
    text = ""
    try:
        async with asyncio.timeout(60):
            while "Ctrl-C" not in text:
                line = await command.stdout.readline()
                assert line, text
                text += line.decode()
        replicas = _REPLICA.findall(text)
        assert len(replicas) == 2
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            assert (await client.get("/list-apps")).json() == ["desk", "talk"]

        command.send_signal(signal.SIGINT)
        async with asyncio.timeout(30):
            assert await command.wait() == 0
    finally:
        if command.returncode is None:
            command.kill()
            await command.wait()
    for url in replicas:
        async with httpx.AsyncClient() as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(url)
