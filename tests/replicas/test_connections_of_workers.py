"""Connections of clients to a server with workers: each gets its share, and requests move to their owner."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import NamedTuple
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
import websockets

from greenroom.records.session import SessionKey
from greenroom.records.shard import shard_of
from tests.postgres.postgres_server import PostgresServer
from tests.replicas.requests import frames, log_of, path_of, run_of, text_of, texts
from tests.replicas.servers import APP, USER, Server, Servers, servers_on
from tests.replicas.workers import keys_of, owner_and_other, paused, started, wait_until_shared

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Workers(NamedTuple):
    """A server with two workers."""

    servers: Servers
    server: Server
    processes: list[int]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def workers(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workers]:
    """For all tests of this module, each with sessions of its own."""
    name = f"test_{uuid4().hex}"
    async with servers_on(postgres_server.make_database(name), tmp_path_factory.mktemp("workers")) as servers:
        yield Workers(servers, *await started(servers))
    postgres_server.drop_database(name)


async def test_the_workers_share_connections_and_answer_for_all_sessions(workers: Workers) -> None:
    servers, server, processes = workers
    assert len(processes) == 2
    owners = await servers.owners()

    created: list[str] = []
    for _ in range(10):
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            response = await http.post(f"/apps/{APP}/users/{USER}/sessions")
            created.append(response.json()["id"])
    # A worker makes ids of sessions that it owns.
    makers = Counter(owners[shard_of(SessionKey(APP, USER, session))] for session in created)
    assert sorted(makers.values()) == [5, 5]

    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        for session in created:
            answer = await http.post("/run", json=run_of(SessionKey(APP, USER, session), "hello"))
            assert texts(answer.json()) == ["You said hello"]


async def test_requests_move_with_their_connections_to_the_worker_of_their_session(workers: Workers) -> None:
    servers, server, processes = workers
    owner, other = await owner_and_other(servers, processes)
    keys = await keys_of(servers, owner, app=APP, count=4, prefix="move")
    async with contextlib.AsyncExitStack() as stack:
        # Each has a connection of its own; the half of them begin at the other worker.
        clients = [await stack.enter_async_context(httpx.AsyncClient(base_url=server.url, timeout=10)) for _ in keys]
        for key, http in zip(keys, clients, strict=True):
            assert (await http.post(path_of(key))).status_code == 200
        streams = [
            await stack.enter_async_context(http.stream("POST", "/run_sse", json=run_of(key, "slow 10")))
            for key, http in zip(keys, clients, strict=True)
        ]
        with paused(other):
            for stream in streams:
                assert [text_of(frame.data) async for frame in frames(stream)][-1].endswith("word9 ")
            for key, http in zip(keys, clients, strict=True):
                assert texts((await http.post("/run", json=run_of(key, "hello"))).json()) == ["You said hello"]
    for key in keys:
        assert len(await log_of(server.http, key)) == 4


async def test_live_conversations_move_with_their_connections(workers: Workers) -> None:
    servers, server, processes = workers
    owner, other = await owner_and_other(servers, processes)
    keys = await keys_of(servers, owner, app="talk", count=4, prefix="live")
    for key in keys:
        await server.http.post(path_of(key))
    base = server.url.replace("http", "ws") + f"/run_live?app_name=talk&user_id={USER}&session_id="
    async with contextlib.AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(websockets.connect(base + key.session_id)) for key in keys]
        with paused(other):
            for conversation in sockets:
                await conversation.send('{"content": {"role": "user", "parts": [{"text": "hello"}]}}')
                async with asyncio.timeout(10):
                    while "hello" not in str(await conversation.recv()):
                        pass


@pytest.mark.parametrize("kind", ["chunked", "expecting", "pipelined", "in two parts", "of HTTP 1.0", "large"])
async def test_requests_of_any_form_are_answered_by_the_worker_of_their_session(workers: Workers, kind: str) -> None:
    servers, _, _ = workers
    await wait_until_shared(servers, 2)
    [owner, other] = sorted(set((await servers.owners()).values()))
    [key] = await keys_of(servers, owner, app=APP, count=1, prefix=kind)
    said = "x" * 100_000 if kind == "large" else "hello"
    body = json.dumps(run_of(key, said)).encode()
    head = b"POST /run HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    sized = head + b"content-length: %d\r\n\r\n" % len(body) + body
    pieces = {
        "chunked": [head + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)],
        "expecting": [sized.replace(b"host:", b"expect: 100-continue\r\nhost:")],
        "pipelined": [sized + sized],
        "in two parts": [sized[:-20], sized[-20:]],
        "of HTTP 1.0": [sized.replace(b"HTTP/1.1", b"HTTP/1.0")],
        "large": [sized],  # it is forwarded
    }[kind]
    answers = 2 if kind == "pipelined" else 1

    async with httpx.AsyncClient(base_url=owner) as http:
        assert (await http.post(path_of(key))).status_code == 200
    reader, writer = await asyncio.open_connection("127.0.0.1", int(other.rpartition(":")[2]))
    got = b""
    async with asyncio.timeout(10):
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0.05)
        while got.count(b"You said " + said.encode()) < answers:
            data = await reader.read(1_000_000)
            assert data, got
            got += data
    assert got.count(b" 200 OK\r\n") == answers
    writer.close()
    async with httpx.AsyncClient(base_url=owner) as http:
        assert len(await log_of(http, key)) == 2 * answers
