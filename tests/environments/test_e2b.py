"""E2B's sandboxes: its own SDK, against a small server with its interface."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from greenroom.environments.e2b import E2BEnvironment
from greenroom.testing.contracts.environment import *  # noqa: F403
from greenroom.testing.contracts.sandbox import *  # noqa: F403
from tests.environments.e2b_server import KEY, E2BServer
from tests.environments.remote_suite import *  # noqa: F403
from tests.environments.remote_suite import Service


@pytest.fixture
async def service(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(E2BServer().serving())
        monkeypatch.setenv("E2B_API_URL", server.url)
        monkeypatch.setenv("E2B_SANDBOX_URL", server.url)
        monkeypatch.setenv("E2B_API_KEY", KEY)
        yield Service(server, E2BEnvironment, "e2b", "E2B_API_KEY", stack.aclose)


async def test_the_settings_of_a_sandbox(service: Service, tmp_path: Path) -> None:
    environment = E2BEnvironment("my-template", 60, KEY, {"GREETING": "hi"}, working_dir=tmp_path)
    await environment.execute("true")
    (created,) = service.server.created
    assert (created["templateID"], created["timeout"], created["envVars"]) == ("my-template", 60, {"GREETING": "hi"})
    await environment.close()


async def test_a_sandbox_in_use_lives_on(service: Service, tmp_path: Path) -> None:
    assert isinstance(service.server, E2BServer)
    environment = E2BEnvironment(working_dir=tmp_path, timeout=100)
    await environment.execute("true", timeout=50)
    assert service.server.timeouts == []
    await environment.execute("true", timeout=1000)
    assert service.server.timeouts == [1020]
    await environment.close()
