"""Servers that share a database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.postgres.postgres_server import PostgresServer
from tests.replicas.servers import Server, Servers, servers_on


class Pair(NamedTuple):
    """Two servers that have the half of the shards each."""

    servers: Servers
    owner: Server
    other: Server


@pytest.fixture
async def servers(empty_postgres_uri: str, tmp_path: Path) -> AsyncIterator[Servers]:
    """None is started yet."""
    async with servers_on(empty_postgres_uri, tmp_path) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """For all tests of a module, each with sessions of its own."""
    name = f"test_{uuid4().hex}"
    uri = postgres_server.make_database(name)
    async with servers_on(uri, tmp_path_factory.mktemp("servers")) as started:
        gates = ("--gates", "a2a", "--gates", "ag_ui", "--gates", "openai", "--gates", "mcp")
        owner = await started.start(*gates)
        other = await started.start(*gates)
        await started.wait_until_shared(owner, other)
        yield Pair(started, owner, other)
    postgres_server.drop_database(name)
