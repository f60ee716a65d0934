"""A Temporal server, and workers on it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import TypeAlias
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from greenroom.client.async_client import AsyncClient
from greenroom.temporal import AgentActivity
from tests.server.conftest import connection_limits as connection_limits
from tests.server.conftest import serve as serve
from tests.server.conftest import store as store
from tests.temporal.temporal_server import TemporalServer
from tests.temporal.workflows import WORKFLOWS

Work: TypeAlias = Callable[[AsyncClient], AbstractAsyncContextManager[Worker]]
"""Starts a worker whose agents are on that server."""


@pytest.fixture(scope="session")
def temporal_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalServer]:
    """One server for all tests of a process."""
    server = TemporalServer(tmp_path_factory.mktemp("temporal"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def temporal(temporal_server: TemporalServer) -> Client:
    return await temporal_server.connect()


@pytest.fixture
def task_queue() -> str:
    """Of this test only."""
    return f"q-{uuid4().hex}"


@pytest.fixture
def work(temporal: Client, task_queue: str) -> Work:
    @contextlib.asynccontextmanager
    async def working(client: AsyncClient) -> AsyncGenerator[Worker]:
        agents = AgentActivity(client, poll_seconds=0.05)
        worker = Worker(
            temporal,
            task_queue=task_queue,
            workflows=WORKFLOWS,
            activities=[agents.run],
            graceful_shutdown_timeout=timedelta(seconds=0.1),
        )
        async with worker:
            yield worker

    return working
