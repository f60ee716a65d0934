"""Servers for tests, in memory or on a database file."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest

from greenroom.agents.agent import BaseAgent
from greenroom.apps.app import App
from greenroom.cli.http_protocol import DEFAULT_LIMITS, ConnectionLimits
from greenroom.server.application import create_app
from greenroom.server.settings import ServerSettings
from greenroom.sessions.postgres import PostgresSessionService
from greenroom.sessions.service import BaseSessionService
from greenroom.sessions.sqlite import SqliteSessionService
from tests.server.agents import echo
from tests.server.replicas import serving_replicas
from tests.server.serving import Serving, serving

Store: TypeAlias = Literal["memory", "sqlite", "postgres", "replicas"]
"""With "replicas", four servers on one PostgreSQL are behind a load balancer."""
WEBHOOK_SECRET = "whsec_YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh"
Serve: TypeAlias = Callable[..., Awaitable[Serving]]


@pytest.fixture
def store() -> Store:
    """The store of sessions; a module that is about stores overrides this with all."""
    return "memory"


@pytest.fixture
def connection_limits() -> ConnectionLimits:
    """A module that is about them overrides this with less."""
    return DEFAULT_LIMITS


def write_webhook_secrets(folder: Path) -> Path:
    """Writes the file with the secret of all apps' webhooks."""
    file = folder / "webhook-secrets.toml"
    file.write_text(f'"*" = ["{WEBHOOK_SECRET}"]\n')
    return file


@pytest.fixture
async def serve(
    request: pytest.FixtureRequest,
    store: Store,
    connection_limits: ConnectionLimits,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Serve]:
    """Start a server of the given agents, or of an app loader; settings by name. It stops with the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(
            *agents: App | BaseAgent,
            services: dict[str, Any] | None = None,
            connection_limits: ConnectionLimits = connection_limits,
            **settings: Any,
        ) -> Serving:
            if "webhook_secrets" not in settings:
                settings["webhook_secrets"] = str(write_webhook_secrets(tmp_path_factory.mktemp("secrets")))
            given: dict[str, Any]
            if store == "replicas":
                uri = request.getfixturevalue("empty_postgres_uri")
                given = {"agents": agents or (echo(),), **(services or {})}
                return await stack.enter_async_context(serving_replicas(uri, connection_limits, **given, **settings))

            sessions: BaseSessionService | None = None
            if store == "sqlite":
                sessions = SqliteSessionService(str(tmp_path / "sessions.db"))
            elif store == "postgres":
                sessions = PostgresSessionService(request.getfixturevalue("postgres_uri"))
            given = {"session_service": sessions, **(services or {})}
            if "app_loader" not in given:
                given["agents"] = agents or (echo(),)
            app = create_app(settings=ServerSettings(**settings), **given)
            return await stack.enter_async_context(serving(app, connection_limits))

        yield start


@pytest.fixture
async def server(serve: Serve) -> Serving:
    """Serves the agent `echo`."""
    return await serve(allow_private_webhooks=True)  # so that no test asks for the address of a host
