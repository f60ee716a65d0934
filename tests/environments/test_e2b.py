"""E2B's sandboxes: its own SDK, against a small server with its interface."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from greenroom.environments.e2b import E2BEnvironment
from greenroom.environments.process import ExecutionResult
from greenroom.errors import AgentConfigError, MissingExtra, SandboxLost, ToolError
from greenroom.testing.contracts.environment import *  # noqa: F403
from greenroom.tools.environment import EnvironmentToolset
from tests.environments.e2b_server import KEY, E2BServer
from tests.server.serving import until
from tests.tools.one_call import call_once, calls_in_a_run


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[E2BServer]:
    async with E2BServer().serving() as server:
        use(server, monkeypatch)
        yield server


def use(server: E2BServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("E2B_API_URL", server.url)
    monkeypatch.setenv("E2B_SANDBOX_URL", server.url)
    monkeypatch.setenv("E2B_API_KEY", KEY)


@pytest.fixture
async def environment(server: E2BServer, tmp_path: Path) -> AsyncIterator[E2BEnvironment]:
    environment = E2BEnvironment(working_dir=tmp_path / "work", timeout=300)
    await environment.initialize()
    yield environment
    await environment.close()
    assert server.sandboxes == {}


async def test_the_sandbox_is_created_when_it_is_first_used(server: E2BServer, tmp_path: Path) -> None:
    environment = E2BEnvironment("my-template", 60, KEY, {"GREETING": "hi"}, working_dir=tmp_path)
    await environment.initialize()
    assert server.created == []
    results = await asyncio.gather(*(environment.execute("echo $GREETING") for _ in range(3)))
    assert [result.stdout for result in results] == ["hi\n"] * 3
    (created,) = server.created
    assert (created["templateID"], created["timeout"], created["envVars"]) == ("my-template", 60, {"GREETING": "hi"})
    await environment.close()
    assert server.sandboxes == {}


async def test_a_sandbox_that_has_ended_is_made_anew(server: E2BServer, tmp_path: Path) -> None:
    environment = E2BEnvironment(working_dir=tmp_path / "work")
    calls = asyncio.create_task(
        calls_in_a_run(
            EnvironmentToolset(environment=environment),
            ("Execute", {"command": f"echo $$ > {tmp_path}/started; sleep 60"}),
            ("WriteFile", {"path": "f", "content": "x"}),
            ("ReadFile", {"path": "f"}),
        )
    )
    await until(lambda: (tmp_path / "started").exists())
    await server.end_all()

    lost, *responses = (await calls).responses
    assert lost["status"] == "error"
    assert "E2B has ended" in lost["error"]
    assert "starts a new, empty sandbox" in lost["error"]
    assert responses == [{"status": "ok", "message": "Wrote f"}, {"status": "ok", "content": "     1\tx"}]
    assert len(server.created) == 2


@pytest.mark.parametrize("use", ["execute", "read_file", "write_file"])
async def test_all_uses_find_out_that_a_sandbox_has_ended(
    environment: E2BEnvironment, server: E2BServer, use: str
) -> None:
    await environment.write_file("true", "")
    await server.end_all()
    with pytest.raises(SandboxLost):
        await getattr(environment, use)("true", *(["x"] if use == "write_file" else []))
    assert await environment.execute("true") == ExecutionResult()


async def test_a_lost_connection_is_an_error_for_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    environment = E2BEnvironment(working_dir=tmp_path)
    async with E2BServer().serving() as server:
        use(server, monkeypatch)
        await environment.execute("true")

    # Its port, on which connections are closed from now on: the SDK tries long to reach one where nobody listens.
    port = int(server.url.rpartition(":")[2])
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port):
        tools = EnvironmentToolset(environment=environment)
        calls = await calls_in_a_run(tools, ("Execute", {"command": "true"}), ("ReadFile", {"path": "f"}))
    assert [response["status"] for response in calls.responses] == ["error", "error"]
    assert "could not be reached" in calls.responses[0]["error"]
    assert "The sandbox at E2B could not be stopped" in caplog.text


async def test_a_sandbox_that_can_not_be_created_is_an_error_for_the_model(server: E2BServer) -> None:
    environment = E2BEnvironment("missing")
    call = await call_once(EnvironmentToolset(environment=environment), "Execute", {"command": "true"})
    assert "template 'missing' not found" in call.response["error"]


async def test_a_sandbox_in_use_lives_on(server: E2BServer, tmp_path: Path) -> None:
    environment = E2BEnvironment(working_dir=tmp_path, timeout=100)
    await environment.execute("true", timeout=50)
    assert server.timeouts == []
    await environment.execute("true", timeout=1000)
    assert server.timeouts == [1020]
    await environment.close()


async def test_a_sandbox_that_is_being_created_is_killed_by_close(server: E2BServer, tmp_path: Path) -> None:
    environment = E2BEnvironment(working_dir=tmp_path)
    command = asyncio.create_task(environment.execute("true"))
    await asyncio.sleep(0)
    command.cancel()
    await environment.close()
    assert (len(server.created), server.sandboxes) == (1, {})


async def test_a_file_that_is_too_large_is_not_read(environment: E2BEnvironment) -> None:
    await environment.execute("truncate -s 200M large")
    with pytest.raises(ToolError, match="'large' is larger than 16 MiB"):
        await environment.read_file("large")


async def test_an_api_key_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    with pytest.raises(AgentConfigError, match="set api_key, or the variable E2B_API_KEY"):
        await E2BEnvironment().initialize()


async def test_a_wrong_api_key_is_an_error_for_the_model(server: E2BServer) -> None:
    tools = EnvironmentToolset(environment=E2BEnvironment(api_key="e2b_wrong"))
    call = await call_once(tools, "Execute", {"command": "true"})
    assert "Invalid API key" in call.response["error"]


async def test_the_package_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "e2b", None)
    with pytest.raises(MissingExtra, match=r"greenroom\[e2b\]"):
        await E2BEnvironment(api_key=KEY).initialize()


def test_a_timeout_is_more_than_nothing() -> None:
    with pytest.raises(AgentConfigError, match="E2BEnvironment: timeout must be more than 0"):
        E2BEnvironment(timeout=0)
