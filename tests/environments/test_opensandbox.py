"""OpenSandbox's sandboxes: its own SDK, against a small server with its interface."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from greenroom.environments.opensandbox import OpenSandboxEnvironment
from greenroom.errors import ToolError
from greenroom.testing.contracts.environment import *  # noqa: F403
from greenroom.testing.contracts.sandbox import *  # noqa: F403
from tests.environments.opensandbox_server import KEY, OpenSandboxServer
from tests.environments.remote_suite import *  # noqa: F403
from tests.environments.remote_suite import Service


@pytest.fixture
async def service(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(OpenSandboxServer().serving())
        monkeypatch.setenv("OPEN_SANDBOX_DOMAIN", server.url)
        monkeypatch.setenv("OPEN_SANDBOX_API_KEY", KEY)
        yield Service(server, OpenSandboxEnvironment, "opensandbox", None, stack.aclose)


async def test_the_settings_of_a_sandbox(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPEN_SANDBOX_DOMAIN", "127.0.0.1:9")
    domain = service.server.url.removeprefix("http://")
    environment = OpenSandboxEnvironment("debian:12", 60, KEY, domain, {"GREETING": "hi"}, working_dir=tmp_path)
    await environment.execute("true")
    (created,) = service.server.created
    assert (created["image"]["uri"], created["timeout"], created["env"]) == ("debian:12", 60, {"GREETING": "hi"})
    await environment.close()


async def test_code_needs_python(service: Service, tmp_path: Path) -> None:
    for name in ("bash", "mkdir", "timeout", "base64", "head", "tr", "wc", "rm"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    environment = service.environment(working_dir=tmp_path / "work", env_vars={"PATH": str(tmp_path)})
    assert (await environment.execute("echo hi")).stdout == "hi\n"
    ran = await environment.run_python("print('hi')")
    assert ran.exit_code == 127
    assert "python3" in ran.stderr
    with pytest.raises(ToolError, match=r"can't be listed: .*python3"):
        await environment.changed_files()
    await environment.close()


async def test_a_sandbox_in_use_lives_on(service: Service, tmp_path: Path) -> None:
    assert isinstance(service.server, OpenSandboxServer)
    environment = OpenSandboxEnvironment(working_dir=tmp_path, timeout=100)
    await environment.execute("true", timeout=50)
    assert service.server.renewals == []
    await environment.execute("true", timeout=1000)
    (ends_at,) = service.server.renewals
    assert 1000 < (ends_at - datetime.now(UTC)).total_seconds() <= 1020
    await environment.close()
