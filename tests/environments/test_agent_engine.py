"""Shell sandboxes of Agent Engine, against the contract of environments and a small server with its interface."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from greenroom.environments import agent_engine
from greenroom.environments.agent_engine import AgentEngineEnvironment
from greenroom.environments.files import File
from greenroom.errors import AgentConfigError, SandboxLost, ToolError
from greenroom.google_cloud import sandboxes
from greenroom.testing.contracts.environment import *  # noqa: F403
from greenroom.tools.environment import EnvironmentToolset
from tests.google_cloud.sandbox_server import ENGINE, SandboxServer, running_sandboxes
from tests.google_cloud.vertex_server import Token
from tests.server.serving import until
from tests.tools.one_call import call_once

Open: TypeAlias = Callable[..., AgentEngineEnvironment]


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SandboxServer]:
    monkeypatch.setattr(sandboxes, "_STATE_SECONDS", 0.01)
    monkeypatch.setattr(agent_engine, "_UNREACHABLE_PAUSE_SECONDS", 0.01)
    async with running_sandboxes() as running:
        yield running


@pytest.fixture
async def opened(server: SandboxServer, tmp_path: Path) -> AsyncIterator[Open]:
    """Makes environments, which are closed after the test."""
    async with AsyncExitStack() as stack:

        def made(**settings: Any) -> AgentEngineEnvironment:
            settings = {"agent_engine_name": ENGINE, "working_dir": tmp_path / "work", **settings}
            environment = AgentEngineEnvironment(base_url=server.url, credentials=Token(), **settings)
            stack.push_async_callback(environment.close)
            return environment

        yield made


@pytest.fixture
async def environment(server: SandboxServer, opened: Open) -> AsyncIterator[AgentEngineEnvironment]:
    environment = opened()
    await environment.initialize()
    yield environment
    await environment.close()
    assert server.sandboxes == {}


async def test_code_runs_in_sandboxes_of_their_own(server: SandboxServer, opened: Open) -> None:
    template = opened()
    sandboxes = [template.new(), template.new()]
    assert not sandboxes[0].is_running
    await sandboxes[0].write_files([File(name="a.txt", content=b"given")])
    await sandboxes[0].run_python("x = open('a.txt').read()", keeps_variables=True)
    assert (await sandboxes[0].run_python("print(x)", keeps_variables=True)).stdout == "given\n"
    assert sandboxes[0].is_running
    assert (await sandboxes[1].run_python("print('x' in globals())", keeps_variables=True)).stdout == "False\n"
    await sandboxes[0].execute("echo out > b.txt")
    assert await sandboxes[0].changed_files() == ([File(name="b.txt", content=b"out\n")], [])
    assert len(server.sandboxes) == 2
    for sandbox in sandboxes:
        await sandbox.run_python("import os\nos._exit(0)", keeps_variables=True)  # the server would leave it running
        await sandbox.close()


def test_a_sandbox_that_is_given_is_the_only_one(opened: Open) -> None:
    with pytest.raises(AgentConfigError, match="leave it out"):
        opened(sandbox_name=f"{ENGINE}/sandboxEnvironments/1").new()


def test_the_working_directory_is_that_of_the_image() -> None:
    assert AgentEngineEnvironment().working_dir == Path("/workspace")


async def test_the_settings_of_a_sandbox(server: SandboxServer, opened: Open) -> None:
    await opened(sandbox_ttl_seconds=3600).execute("true")
    await opened().execute("true")
    (shell,) = server.templates
    assert shell["displayName"] == "greenroom-shell"
    await opened(sandbox_template_name=f"{ENGINE}/sandboxEnvironmentTemplates/3").execute("true")

    made = [sandbox.body for sandbox in server.sandboxes.values()]
    assert {body["displayName"] for body in made} == {"greenroom-environment"}
    assert [body.get("ttl") for body in made] == ["3600s", None, None]
    templates = [shell["name"], shell["name"], f"{ENGINE}/sandboxEnvironmentTemplates/3"]
    assert [body["sandboxEnvironmentTemplate"] for body in made] == templates


async def test_large_files_are_written_and_read_in_pieces(environment: AgentEngineEnvironment) -> None:
    content = bytes(range(251)) * 16_000
    await environment.write_file("large.bin", content)
    assert await environment.read_file("large.bin") == content
    await environment.execute("truncate -s 20M large.bin")
    with pytest.raises(ToolError, match="larger than 16 MiB"):
        await environment.read_file("large.bin")
    assert (await environment.execute("ls -A")).stdout == "large.bin\n"


async def test_a_file_below_a_file_is_refused(environment: AgentEngineEnvironment) -> None:
    await environment.write_file("f", "")
    with pytest.raises(ToolError, match=r"f/x' failed: .*(exists|directory)"):
        await environment.write_file("f/x", "")


async def test_a_sandbox_that_is_given_is_paused_and_resumed(
    server: SandboxServer, opened: Open, environment: AgentEngineEnvironment
) -> None:
    await environment.execute("true")
    (number,) = server.sandboxes
    given = opened(sandbox_name=f"{ENGINE}/sandboxEnvironments/{number}")
    await given.write_file("a.txt", "kept")
    await given.close()
    assert server.sandboxes[number].state == "STATE_PAUSED"
    assert await given.read_file("a.txt") == b"kept"


async def test_a_sandbox_that_was_paused_meanwhile_is_resumed_and_the_command_run_once(
    server: SandboxServer, environment: AgentEngineEnvironment
) -> None:
    await environment.execute("echo first > log")
    (sandbox,) = server.sandboxes.values()
    sandbox.state = "STATE_PAUSED"
    await environment.execute("echo second >> log")
    assert await environment.read_file("log") == b"first\nsecond\n"


async def test_a_command_that_did_not_reach_the_sandbox_is_sent_again_and_no_other(
    server: SandboxServer, environment: AgentEngineEnvironment
) -> None:
    unreachable = "Unable to reach the sandbox environment"
    server.failures["execute"] = [("UNAVAILABLE", unreachable), ("INTERNAL", unreachable)]
    assert (await environment.execute("echo hi")).stdout == "hi\n"

    server.failures["execute"] = [("INTERNAL", "broken")]
    with pytest.raises(ToolError, match=r"Using a sandbox of Agent Engine failed: .*broken"):
        await environment.execute("echo hi")


async def test_a_sandbox_that_has_ended_is_made_anew(
    server: SandboxServer, environment: AgentEngineEnvironment
) -> None:
    await environment.write_file("f", "x")
    before = list(server.sandboxes)
    server.sandboxes.clear()
    with pytest.raises(SandboxLost, match="Agent Engine has ended"):
        await environment.read_file("f")
    await environment.write_file("f", "y")
    assert list(server.sandboxes) != before


async def test_a_sandbox_that_does_not_exist_is_an_error_for_the_model(opened: Open) -> None:
    environment = opened(sandbox_name=f"{ENGINE}/sandboxEnvironments/9")
    call = await call_once(EnvironmentToolset(environment=environment), "Execute", {"command": "true"})
    assert "sandboxEnvironments/9" in call.response["error"]


async def test_a_start_that_is_given_up_leaves_no_sandbox(server: SandboxServer, opened: Open) -> None:
    server.are_operations_slow = True
    environment = opened(sandbox_template_name=f"{ENGINE}/sandboxEnvironmentTemplates/3")
    command = asyncio.create_task(environment.execute("true"))
    await until(lambda: any("/operations/" in line for line in server.calls))
    command.cancel()
    closing = asyncio.create_task(environment.close())
    for operation in server.operations.values():
        operation["done"] = True
    await closing
    assert server.sandboxes == {}


@pytest.mark.parametrize("name", ["sandbox_name", "agent_engine_name"])
def test_names_that_are_no_resource_names_are_refused(name: str) -> None:
    settings: dict[str, Any] = {name: "projects/p/locations/evil.example/reasoningEngines/7"}
    with pytest.raises(AgentConfigError, match="is not the resource name"):
        AgentEngineEnvironment(**settings)
