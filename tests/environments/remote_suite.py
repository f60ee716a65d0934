"""Tests for the sandboxes of every service. Star-import them into a file that has a fixture `service`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from greenroom.environments import remote
from greenroom.environments.process import ExecutionResult
from greenroom.environments.remote import RemoteEnvironment
from greenroom.errors import AgentConfigError, MissingExtra, SandboxLost, ToolError
from greenroom.tools.environment import EnvironmentToolset
from tests.environments.daytona_server import DaytonaServer
from tests.environments.e2b_server import E2BServer
from tests.environments.opensandbox_server import OpenSandboxServer
from tests.requirements import require_bubblewrap
from tests.server.serving import until
from tests.tools.one_call import call_once, calls_in_a_run


@dataclass
class Service:
    server: E2BServer | DaytonaServer | OpenSandboxServer
    environment: Callable[..., RemoteEnvironment[Any]]
    """Takes the options of the environment's class."""

    extra: str
    key_variable: str | None
    """None: a key is not always needed."""

    stop: Callable[[], Any]
    """Stops the server."""


@pytest.fixture
async def environment(service: Service, tmp_path: Path) -> AsyncIterator[RemoteEnvironment[Any]]:
    environment = service.environment(working_dir=tmp_path / "work")
    await environment.initialize()
    yield environment
    await environment.close()
    assert service.server.sandboxes == {}


@pytest.fixture
async def sandbox(service: Service, tmp_path: Path) -> AsyncIterator[RemoteEnvironment[Any]]:
    """One whose working directory isn't that of others."""
    require_bubblewrap()
    service.server.private_folder = tmp_path / "work"
    sandbox = service.environment(working_dir=tmp_path / "work")
    yield sandbox
    await sandbox.close()
    assert service.server.sandboxes == {}


async def test_the_sandbox_is_created_when_it_is_first_used(service: Service, tmp_path: Path) -> None:
    environment = service.environment(env_vars={"GREETING": "hi"}, working_dir=tmp_path)
    await environment.initialize()
    assert service.server.created == []
    results = await asyncio.gather(*(environment.execute("echo $GREETING") for _ in range(3)))
    assert [result.stdout for result in results] == ["hi\n"] * 3
    assert len(service.server.created) == 1
    await environment.close()
    assert service.server.sandboxes == {}


async def test_a_command_leaves_no_files_of_ours(
    environment: RemoteEnvironment[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = uuid4()
    monkeypatch.setattr(remote, "uuid4", lambda: known)
    result = await environment.execute(f"ls -d /tmp/greenroom-{known.hex}")
    assert result.exit_code == 0
    assert f"greenroom-{known.hex}" not in os.listdir("/tmp")


async def test_a_sandbox_that_has_ended_is_made_anew(service: Service, tmp_path: Path) -> None:
    environment = service.environment(working_dir=tmp_path / "work")
    calls = asyncio.create_task(
        calls_in_a_run(
            EnvironmentToolset(environment=environment),
            ("Execute", {"command": f"echo $$ > {tmp_path}/started; sleep 60"}),
            ("WriteFile", {"path": "f", "content": "x"}),
            ("ReadFile", {"path": "f"}),
        )
    )
    await until(lambda: (tmp_path / "started").exists())
    await service.server.end_all()

    lost, *responses = (await calls).responses
    assert lost["status"] == "error"
    assert f"{environment.service} has ended" in lost["error"]
    assert "starts a new, empty sandbox" in lost["error"]
    assert responses == [{"status": "ok", "message": "Wrote f"}, {"status": "ok", "content": "     1\tx"}]
    assert len(service.server.created) == 2


@pytest.mark.parametrize("use", ["execute", "read_file", "write_file"])
async def test_all_uses_find_out_that_a_sandbox_has_ended(
    environment: RemoteEnvironment[Any], service: Service, use: str
) -> None:
    await environment.write_file("true", "")
    await service.server.end_all()
    with pytest.raises(SandboxLost):
        await getattr(environment, use)("true", *(["x"] if use == "write_file" else []))
    assert await environment.execute("true") == ExecutionResult()


async def test_a_lost_connection_is_an_error_for_the_model(
    service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    environment = service.environment(working_dir=tmp_path)
    await environment.execute("true")
    await service.stop()

    # Its port, on which connections are closed from now on: E2B's SDK tries long to reach one where nobody listens.
    port = int(service.server.url.rpartition(":")[2])
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port):
        tools = EnvironmentToolset(environment=environment)
        calls = await calls_in_a_run(tools, ("Execute", {"command": "true"}), ("ReadFile", {"path": "f"}))
    assert [response["status"] for response in calls.responses] == ["error", "error"]
    assert "has ended" not in calls.responses[0]["error"]
    assert f"The sandbox at {environment.service} could not be stopped" in caplog.text


async def test_a_sandbox_that_can_not_be_created_is_an_error_for_the_model(service: Service) -> None:
    tools = EnvironmentToolset(environment=service.environment("missing"))
    call = await call_once(tools, "Execute", {"command": "true"})
    assert call.response["status"] == "error"
    assert "not found" in call.response["error"]


async def test_a_sandbox_that_is_being_created_is_killed_by_close(service: Service, tmp_path: Path) -> None:
    environment = service.environment(working_dir=tmp_path)
    command = asyncio.create_task(environment.execute("true"))
    await asyncio.sleep(0)
    command.cancel()
    await environment.close()
    assert (len(service.server.created), service.server.sandboxes) == (1, {})


async def test_a_file_that_is_too_large_is_not_read(environment: RemoteEnvironment[Any]) -> None:
    await environment.execute("truncate -s 20M large")
    with pytest.raises(ToolError, match="larger than 16 MiB"):
        await environment.read_file("large")


async def test_an_api_key_is_needed(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    if service.key_variable is None:
        pytest.skip("it needs none")
    monkeypatch.delenv(service.key_variable)
    with pytest.raises(AgentConfigError, match=f"set api_key, or the variable {service.key_variable}"):
        await service.environment().initialize()


async def test_a_wrong_api_key_is_an_error_for_the_model(service: Service) -> None:
    environment = service.environment(api_key="wrong")
    call = await call_once(EnvironmentToolset(environment=environment), "Execute", {"command": "true"})
    assert "Invalid" in call.response["error"]
    assert "wrong" not in call.response["error"]


async def test_the_package_is_needed(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, service.extra, None)
    with pytest.raises(MissingExtra, match=rf"greenroom\[{service.extra}\]"):
        await service.environment().initialize()


def test_a_timeout_is_more_than_nothing(service: Service) -> None:
    with pytest.raises(AgentConfigError, match="timeout must be more than 0"):
        service.environment(timeout=0)
