"""Code in Agent Engine's sandboxes: whose sandbox it gets, what comes back, and what is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import ParallelAgent
from greenroom.code_executors.agent_engine import STATE_KEY, AgentEngineSandboxCodeExecutor
from greenroom.code_executors.executor import TIMED_OUT
from greenroom.environments.files import MAX_FILE_BYTES, File
from greenroom.environments.process import MAX_OUTPUT_BYTES
from greenroom.errors import AgentConfigError, ToolError
from greenroom.records.content import Part
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import Talk
from tests.code_executors.coding import Coding, names
from tests.google_cloud.sandbox_server import ENGINE, SandboxServer, file_chunk, json_chunk, running_sandboxes
from tests.google_cloud.vertex_server import Token
from tests.server.serving import until


@pytest.fixture
async def server() -> AsyncGenerator[SandboxServer]:
    async with running_sandboxes() as running:
        yield running


Connect: TypeAlias = Callable[..., AgentEngineSandboxCodeExecutor]


@pytest.fixture
async def connect(server: SandboxServer) -> AsyncGenerator[Connect]:
    """Makes executors, which are closed after the test."""
    async with AsyncExitStack() as stack:

        def made(**settings: Any) -> AgentEngineSandboxCodeExecutor:
            if not settings.keys() & {"sandbox_resource_name", "project"}:
                settings["agent_engine_resource_name"] = ENGINE
            executor = AgentEngineSandboxCodeExecutor(base_url=server.url, credentials=Token(), **settings)
            stack.push_async_callback(executor.close)
            return executor

        yield made


@pytest.fixture
def executor(connect: Connect) -> AgentEngineSandboxCodeExecutor:
    return connect()


async def test_code_of_a_session_shares_variables_also_in_another_server(
    server: SandboxServer, connect: Connect
) -> None:
    coding = Coding(connect())
    assert (await coding.run("x = 6", "print(x * 7)")).stdout == "42\n"
    assert (await coding.state())[STATE_KEY] == f"{ENGINE}/sandboxEnvironments/101"

    coding.use(connect())
    assert (await coding.run("print(x + 1)")).stdout == "7\n"
    assert list(server.sandboxes) == ["101"]
    made = server.sandboxes["101"].body
    assert (made["ttl"], made["spec"]) == (
        "31536000s",
        {"codeExecutionEnvironment": {"codeLanguage": "LANGUAGE_PYTHON"}},
    )


async def test_sessions_of_one_name_have_sandboxes_of_their_own(
    server: SandboxServer, executor: AgentEngineSandboxCodeExecutor
) -> None:
    coding = Coding(executor)
    await coding.run("secret = 1", user_id="ada")
    assert "NameError" in (await coding.run("print(secret)", user_id="bob")).stderr
    assert len(server.sandboxes) == 2


async def test_a_sandbox_of_another_session_in_the_state_is_not_used(
    server: SandboxServer, executor: AgentEngineSandboxCodeExecutor
) -> None:
    coding = Coding(executor)
    await coding.run("secret = 1")
    stolen = (await coding.state())[STATE_KEY]
    for session_id, name in [
        ("s-2", stolen),
        ("s-3", "projects/p/locations/evil.example#/reasoningEngines/7/sandboxEnvironments/101"),
        ("s-4", "../../101"),
        ("s-5", 101),
    ]:
        await coding.runner.session_service.create_session(
            app_name="app", user_id="ada", session_id=session_id, state={STATE_KEY: name}
        )
        assert "NameError" in (await coding.run("print(secret)", session_id=session_id)).stderr
    assert len(server.sandboxes) == 5


@pytest.mark.parametrize("state", ["STATE_TERMINATED", None])
async def test_a_sandbox_that_has_ended_is_replaced(
    server: SandboxServer, executor: AgentEngineSandboxCodeExecutor, state: str | None
) -> None:
    coding = Coding(executor)
    await coding.run("x = 1")
    if state is None:
        await server.sandboxes.pop("101").interpreter.stop()
    else:
        server.sandboxes["101"].state = state
    assert "NameError" in (await coding.run("print(x)")).stderr
    assert (await coding.run("print(2)")).stdout == "2\n"
    assert (await coding.state())[STATE_KEY].rpartition("/")[2] == list(server.sandboxes)[-1]


async def test_parallel_branches_share_the_sandbox_of_their_session(
    server: SandboxServer, executor: AgentEngineSandboxCodeExecutor
) -> None:
    def coder(name: str) -> LlmAgent:
        model = ScriptedModel([Part.from_executable_code(code="print('ran')"), "Done."])
        return LlmAgent(name=name, model=model, code_executor=executor)

    await Talk(ParallelAgent(name="both", sub_agents=[coder("left"), coder("right")])).say("go")
    assert len(server.sandboxes) == 1


async def test_the_sandbox_that_is_given_is_used_by_all_sessions(server: SandboxServer, connect: Connect) -> None:
    first = Coding(connect())
    await first.run("x = 5")
    name = f"{ENGINE}/sandboxEnvironments/101"
    coding = Coding(connect(sandbox_resource_name=name))
    assert (await coding.run("print(x)", session_id="s-2")).stdout == "5\n"
    assert STATE_KEY not in await coding.state("s-2")
    assert not any(line.startswith("DELETE") for line in server.calls)


async def test_without_state_each_code_has_a_sandbox_that_is_deleted(server: SandboxServer, connect: Connect) -> None:
    coding = Coding(connect(stateful=False))
    assert "NameError" in (await coding.run("x = 1", "print(x)")).stderr
    assert server.sandboxes == {}
    assert [line[:6] for line in server.calls].count("DELETE") == 2


async def test_the_engine_is_found_or_created(
    server: SandboxServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_CLOUD_AGENT_ENGINE_ID", raising=False)
    for _ in range(2):
        coding = Coding(connect(project="p", location="l"))
        assert (await coding.run("print(1)")).stdout == "1\n"
    assert [one["displayName"] for one in server.engines] == ["greenroom-sandboxes"]

    monkeypatch.setenv("GOOGLE_CLOUD_AGENT_ENGINE_ID", "7")
    assert (await Coding(connect(project="p", location="l")).run("print(1)")).stdout == "1\n"


async def test_files_go_in_and_new_ones_come_out(
    server: SandboxServer, executor: AgentEngineSandboxCodeExecutor
) -> None:
    coding = Coding(executor, File(name="in/a.csv", content=b"1,2\n", mime_type="text/csv"))
    result = await coding.run(
        "import os\nos.mkdir('out')\nopen('out/b.csv', 'w').write(open('in/a.csv').read() * 2)\nopen('empty.txt', 'w')"
    )
    assert (result.stderr, list(result.output_files)) == (
        "",
        [
            File(name="empty.txt", content=b"", mime_type="text/plain"),
            File(name="out/b.csv", content=b"1,2\n1,2\n", mime_type="text/csv"),
        ],
    )


async def test_an_input_file_with_a_name_that_leads_out_is_refused(
    server: SandboxServer, executor: AgentEngineSandboxCodeExecutor
) -> None:
    with pytest.raises(ToolError, match="leads out of its folder"):
        await Coding(executor, File(name="../x", content=b"")).run("")
    assert server.calls == []


async def test_output_files_beyond_the_limits_or_with_unsafe_names_are_named(
    server: SandboxServer, executor: AgentEngineSandboxCodeExecutor
) -> None:
    big = b"0" * (MAX_FILE_BYTES + 1)
    server.outputs = [
        json_chunk({"exit_status_int": 0, "msg_out": "done\n"}),
        file_chunk("../../etc/passwd", b"x"),
        file_chunk("big.bin", big),
        file_chunk("ok.txt", b"x"),
    ]
    result = await Coding(executor).run("")
    assert names(result.output_files) == ["ok.txt"]
    expected = "done\n\nNot kept, because of their number, size or name: '../../etc/passwd', 'big.bin'\n"
    assert result.stdout == expected


async def test_failing_code_comes_back_with_its_traceback(executor: AgentEngineSandboxCodeExecutor) -> None:
    result = await Coding(executor).run("print('half')\nraise KeyError('city')")
    assert (result.stdout, result.exit_code, result.has_failed) == ("half\n", 106, True)
    assert result.stderr.endswith("KeyError: 'city'\n")


async def test_warnings_of_code_that_succeeds_are_no_failure(executor: AgentEngineSandboxCodeExecutor) -> None:
    result = await Coding(executor).run("import sys\nprint('careful', file=sys.stderr)")
    assert (result.stderr, result.has_failed) == ("", False)


async def test_output_is_cut(executor: AgentEngineSandboxCodeExecutor) -> None:
    result = await Coding(executor).run("print('ä' * 100_000)")
    assert len(result.stdout.encode()) < MAX_OUTPUT_BYTES + 100
    assert result.stdout.endswith("… (200001 bytes in all)")


async def test_code_that_takes_too_long_is_stopped_with_its_sandbox(server: SandboxServer, connect: Connect) -> None:
    coding = Coding(connect(timeout_seconds=0.5))
    await coding.run("x = 1")
    result = await coding.run("while True: pass")
    assert result.exit_code == TIMED_OUT
    assert "stopped after 0.5 s, and its sandbox deleted" in result.stderr
    assert server.sandboxes == {}
    assert "NameError" in (await coding.run("print(x)")).stderr


async def test_a_cancelled_run_deletes_the_sandbox_with_its_code(
    server: SandboxServer, executor: AgentEngineSandboxCodeExecutor
) -> None:
    task = asyncio.create_task(Coding(executor).run("while True: pass"))
    await until(lambda: any(line.endswith(":execute") for line in server.calls))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: server.sandboxes == {})


async def test_a_run_that_is_cancelled_while_its_sandbox_starts_leaves_none(
    server: SandboxServer, executor: AgentEngineSandboxCodeExecutor
) -> None:
    server.are_operations_slow = True
    task = asyncio.create_task(Coding(executor).run("print(1)"))
    await until(lambda: len(server.sandboxes) == 1 and any("/operations/" in line for line in server.calls))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: server.sandboxes == {})


async def test_what_is_refused_for_a_moment_is_sent_again_and_code_is_not(
    server: SandboxServer, executor: AgentEngineSandboxCodeExecutor
) -> None:
    server.failures["execute"] = [("RESOURCE_EXHAUSTED", "busy")]
    coding = Coding(executor)
    assert (await coding.run("print(1)")).stdout == "1\n"
    server.failures = {"GET": [("UNAVAILABLE", "down")]}
    assert (await coding.run("print(2)")).stdout == "2\n"

    server.failures = {"execute": [("INTERNAL", "broken")]}
    with pytest.raises(ToolError, match=r"Running code in a sandbox of Agent Engine failed: .*broken"):
        await coding.run("print(3)")
    assert (await coding.run("print(4)")).stdout == "4\n"
    assert len(server.sandboxes) == 1


async def test_a_new_sandbox_whose_first_code_could_not_be_run_is_deleted(
    server: SandboxServer, executor: AgentEngineSandboxCodeExecutor
) -> None:
    server.failures["execute"] = [("INTERNAL", "broken")]
    with pytest.raises(ToolError):
        await Coding(executor).run("print(1)")
    assert server.sandboxes == {}


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"sandbox_resource_name": f"{ENGINE}/sandboxEnvironments/x"}, "not the resource name of a sandbox"),
        ({"sandbox_resource_name": "projects/p/locations/a.b/reasoningEngines/1/sandboxEnvironments/2"}, "not the"),
        ({"agent_engine_resource_name": "7"}, "not the resource name of an agent engine"),
        ({"sandbox_resource_name": f"{ENGINE}/sandboxEnvironments/1", "stateful": False}, "needs stateful=True"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(AgentConfigError, match=complaint):
        AgentEngineSandboxCodeExecutor(**settings)


async def test_without_a_project_the_run_fails_with_the_names_of_the_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_AGENT_ENGINE_ID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ToolError, match="GOOGLE_CLOUD_PROJECT, GOOGLE_CLOUD_LOCATION"):
        await Coding(AgentEngineSandboxCodeExecutor()).run("print(1)")
