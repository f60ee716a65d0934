"""Several servers on one PostgreSQL behind a load balancer, all in the test's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import httpx

from greenroom.agents.agent import BaseAgent
from greenroom.apps.app import App
from greenroom.apps.loader import StaticAppLoader
from greenroom.artifacts.in_memory import InMemoryArtifactService
from greenroom.cli.http_protocol import DEFAULT_LIMITS, ConnectionLimits
from greenroom.memory.in_memory import InMemoryMemoryService
from greenroom.postgres.database import Database
from greenroom.server.application import GreenroomApp, create_app
from greenroom.server.settings import ServerSettings
from greenroom.sessions.postgres import PostgresSessionService
from scripts.load_balancer import LoadBalancer
from tests.server.serving import TIMEOUT_SECONDS, Serving, serving

REPLICAS = 4


class _Held(Collection[Any]):
    """The connections of all servers."""

    def __init__(self, servers: list[Serving]) -> None:
        self._servers = servers

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(server.held for server in self._servers)

    def __len__(self) -> int:
        return sum(len(server.held) for server in self._servers)

    def __contains__(self, connection: object) -> bool:
        return any(connection in server.held for server in self._servers)


class Replicas(Serving):
    """The load balancer's address, as of one server."""

    def __init__(self, servers: list[Serving], port: int, client: httpx.AsyncClient) -> None:
        super().__init__(servers[0].app, port, client, held=_Held(servers))
        self.servers = servers

    @property
    def apps(self) -> Sequence[GreenroomApp]:
        return [server.app for server in self.servers]

    def cancel_requests(self) -> None:
        for server in self.servers:
            server.cancel_requests()


@contextlib.asynccontextmanager
async def serving_replicas(
    uri: str,
    limits: ConnectionLimits = DEFAULT_LIMITS,
    *,
    agents: Iterable[App | BaseAgent],
    count: int = REPLICAS,
    **settings: Any,
) -> AsyncGenerator[Replicas]:
    """uri: of an empty database. agents: shared by all servers. settings: of each server."""
    loader = StaticAppLoader(agents)  # with the folder of evaluation sets
    artifacts = InMemoryArtifactService()
    memory = InMemoryMemoryService()
    async with contextlib.AsyncExitStack() as stack:
        servers: list[Serving] = []
        for number in range(count):
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            address = f"http://127.0.0.1:{listener.getsockname()[1]}"
            app = create_app(
                app_loader=loader,
                # Each has connections and shards of its own, as if it was another process.
                session_service=PostgresSessionService(uri.replace("postgres@", f"postgres:{number}@")),
                artifact_service=artifacts,
                memory_service=memory,
                settings=ServerSettings(replica_address=address, **settings),
            )
            servers.append(await stack.enter_async_context(serving(app, limits, listener=listener)))
        await _wait_until_shared(uri, count)

        balancer = LoadBalancer(*(server.url for server in servers))
        stack.push_async_callback(balancer.close)
        await balancer.start()
        await balancer.wait_until_ready()
        client = httpx.AsyncClient(base_url=balancer.url, timeout=TIMEOUT_SECONDS)
        await stack.enter_async_context(client)
        port = httpx.URL(balancer.url).port
        assert port is not None
        yield Replicas(servers, port, client)


async def _wait_until_shared(uri: str, count: int) -> None:
    """Until each server has shards, so that a request meets its owner in one of `count` cases."""
    database = Database.open(uri)
    try:
        async with asyncio.timeout(20):
            while (await database.fetch("SELECT count(DISTINCT owner) FROM shards"))[0][0] < count:
                await asyncio.sleep(0.02)
    finally:
        await database.close()
