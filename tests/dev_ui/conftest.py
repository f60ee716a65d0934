"""A browser and a server for the tests of the dev UI: one of each per process, since both take a while to start."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias
from uuid import uuid4

import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright

from greenroom.agents.agent import BaseAgent
from greenroom.apps.app import App
from greenroom.server.application import create_app
from greenroom.server.routes import web_page
from greenroom.server.settings import ServerSettings
from tests.dev_ui.apps import all_apps
from tests.postgres.postgres_server import PostgresServer
from tests.requirements import browser_flags, browser_path, skip_or_fail
from tests.server.replicas import Replicas, serving_replicas
from tests.server.serving import Serving, serving

TIMEOUT_MS = 10_000.0

Opens: TypeAlias = Callable[..., Awaitable[Page]]
ServesAgents: TypeAlias = Callable[..., AbstractAsyncContextManager[Serving]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    found = browser_path()
    if not (web_page._BUILT / "index.html").exists():
        skip_or_fail("The dev UI is not built; `make ui` does it")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=browser_flags())
        yield browser
        await browser.close()


@pytest.fixture(scope="session")
def serve_agents(request: pytest.FixtureRequest) -> ServesAgents:
    """Starts one server of agents, with settings by name; with GREENROOM_REPLICAS=1, four behind a load balancer."""
    if os.environ.get("GREENROOM_REPLICAS") == "1":
        return partial(serving_by_replicas, request.getfixturevalue("postgres_server"))
    return serving_agents


def serving_agents(*agents: App | BaseAgent, **settings: Any) -> AbstractAsyncContextManager[Serving]:
    return serving(create_app(agents=agents, settings=ServerSettings(**settings)))


@contextlib.asynccontextmanager
async def serving_by_replicas(
    postgres_server: PostgresServer, *agents: App | BaseAgent, **settings: Any
) -> AsyncGenerator[Serving]:
    """Serves agents by four servers behind a load balancer."""
    name = f"test_{uuid4().hex}"
    uri = postgres_server.make_database(name)
    async with serving_replicas(uri, agents=agents, **settings) as replicas:
        yield replicas
    postgres_server.drop_database(name)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(serve_agents: ServesAgents) -> AsyncIterator[Serving]:
    async with serve_agents(*all_apps()) as serving_all:
        yield serving_all


@dataclass
class World:
    """Pages on one server. open: a page with its own storage, at a path under `/dev-ui/`; what it logs as an error fails
    the test. problems: those of the pages. serve: starts another server."""

    server: Serving
    open: Opens
    problems: list[str]
    serve: ServesAgents


@pytest_asyncio.fixture(loop_scope="session")
async def world(browser: Browser, server: Serving, serve_agents: ServesAgents) -> AsyncIterator[World]:
    problems: list[str] = []

    def note(path: str, said: ConsoleMessage) -> None:
        # A server that stops cuts the streams that it forwards; the page reconnects.
        is_cut = isinstance(server, Replicas) and "ERR_INCOMPLETE_CHUNKED_ENCODING" in said.text
        # Tests of containers change the network of this machine; the page asks again.
        is_cut = is_cut or "ERR_NETWORK_CHANGED" in said.text
        if said.type == "error" and not is_cut:
            problems.append(f"{path}: {said.text}")

    async with AsyncExitStack() as stack:

        async def open_page(path: str = "", *, width: int = 1280, height: int = 800, **options: Any) -> Page:
            context = await browser.new_context(
                base_url=f"{server.url}/dev-ui/",
                viewport={"width": width, "height": height},
                reduced_motion="reduce",
                **options,
            )
            stack.push_async_callback(context.close)
            context.set_default_timeout(TIMEOUT_MS)
            page = await context.new_page()
            page.on("pageerror", lambda error: problems.append(f"{path}: {error}"))
            page.on("console", lambda said: note(path, said))
            await page.goto(path)
            return page

        yield World(server, open_page, problems, serve_agents)
    assert problems == []
