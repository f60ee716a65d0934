"""Daytona's sandboxes: its own SDK, against a small server with its interface.

Its pins conflict with those of other extras, so it is tested in an environment of its own: `make test-daytona`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

pytest.importorskip("daytona", reason="Daytona is installed in an environment of its own: make test-daytona")

from greenroom.environments.daytona import DaytonaEnvironment
from greenroom.errors import SandboxLost
from greenroom.testing.contracts.environment import *  # noqa: F403
from greenroom.testing.contracts.sandbox import *  # noqa: F403
from tests.environments.daytona_server import KEY, DaytonaServer
from tests.environments.remote_suite import *  # noqa: F403
from tests.environments.remote_suite import Service

pytestmark = pytest.mark.filterwarnings("ignore:`server_url` is deprecated:DeprecationWarning")  # Daytona's own


@pytest.fixture
async def service(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(DaytonaServer().serving())
        monkeypatch.setenv("DAYTONA_API_URL", server.api_url)
        monkeypatch.setenv("DAYTONA_API_KEY", KEY)
        yield Service(server, DaytonaEnvironment, "daytona", "DAYTONA_API_KEY", stack.aclose)


async def test_the_settings_of_a_sandbox(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAYTONA_API_URL", "http://127.0.0.1:9/api")
    api_url = f"{service.server.url}/api"
    environment = DaytonaEnvironment("debian:12", 90, KEY, api_url, {"GREETING": "hi"}, working_dir=tmp_path)
    await environment.execute("true")
    (created,) = service.server.created
    assert created["buildInfo"] == {"dockerfileContent": "FROM debian:12\n"}
    assert (created["autoStopInterval"], created["autoDeleteInterval"], created["env"]) == (2, 0, {"GREETING": "hi"})
    await environment.close()


async def test_a_long_command_keeps_the_sandbox(service: Service, tmp_path: Path) -> None:
    assert isinstance(service.server, DaytonaServer)
    environment = DaytonaEnvironment(working_dir=tmp_path, timeout=120)
    await environment.execute("true", timeout=60)
    assert service.server.intervals == []
    await environment.execute("true", timeout=1000)
    assert service.server.intervals == [17]
    await environment.close()


async def test_a_sandbox_that_was_stopped_has_ended(service: Service, tmp_path: Path) -> None:
    assert isinstance(service.server, DaytonaServer)
    environment = DaytonaEnvironment(working_dir=tmp_path)
    await environment.write_file("f", "x")
    await service.server.end_all(delete=False)
    with pytest.raises(SandboxLost):
        await environment.read_file("f")
    assert (await environment.execute("cat f")).stdout == "x"
    await environment.close()
