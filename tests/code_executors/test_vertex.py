"""Code in Vertex AI's code interpreter: what it gets, what comes back, and which extension is used."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import pytest

from greenroom.code_executors.executor import TIMED_OUT
from greenroom.code_executors.vertex import VertexAiCodeExecutor
from greenroom.environments.files import File
from greenroom.environments.process import MAX_OUTPUT_BYTES
from greenroom.errors import AgentConfigError, ToolError
from tests.code_executors.coding import Coding
from tests.google_cloud.sandbox_server import SandboxServer, running_sandboxes
from tests.google_cloud.vertex_server import Token

Connect: TypeAlias = Callable[..., VertexAiCodeExecutor]


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[SandboxServer]:
    """The packages that the prelude imports are empty modules."""
    monkeypatch.delenv("CODE_INTERPRETER_EXTENSION_NAME", raising=False)
    async with running_sandboxes() as running:
        for module in ("matplotlib/__init__", "matplotlib/pyplot", "numpy", "pandas", "scipy"):
            path = running.folder / "packages" / f"{module}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        monkeypatch.setenv("PYTHONPATH", str(running.folder / "packages"))
        yield running


@pytest.fixture
async def connect(server: SandboxServer) -> AsyncGenerator[Connect]:
    """Makes executors, which are closed after the test."""
    async with AsyncExitStack() as stack:

        def made(*names: str, **settings: Any) -> VertexAiCodeExecutor:
            settings = {"project": "p", "location": "l", **settings}
            executor = VertexAiCodeExecutor(*names, base_url=server.url, credentials=Token(), **settings)
            stack.push_async_callback(executor.close)
            return executor

        yield made


async def test_code_runs_with_the_usual_names_and_shares_nothing(connect: Connect) -> None:
    coding = Coding(connect())
    code = "x = crop('a' * 100, 8)\nprint(x, math.pi > 3, io, np, pd, plt, scipy, re, sep='|')"
    assert (await coding.run(code)).stdout.startswith("aaaaa...|True|<module 'io'")
    assert "NameError" in (await coding.run("print(x)")).stderr


async def test_stateful_code_of_a_session_shares_variables_and_of_others_does_not(connect: Connect) -> None:
    coding = Coding(connect(stateful=True))
    assert (await coding.run("x = 6", "print(x * 7)")).stdout == "42\n"
    coding.use(connect(stateful=True))
    assert (await coding.run("print(x)")).stdout == "6\n"
    assert "NameError" in (await coding.run("print(x)", user_id="bob")).stderr


async def test_files_go_in_and_new_ones_come_out(connect: Connect) -> None:
    coding = Coding(connect(), File(name="a.csv", content=b"1\n"))
    result = await coding.run("open('b.csv', 'w').write(open('a.csv').read() * 2)\nopen('c.jpg', 'wb').write(b'\\xff')")
    assert list(result.output_files) == [
        File(name="b.csv", content=b"1\n1\n", mime_type="text/csv"),
        File(name="c.jpg", content=b"\xff", mime_type="image/jpeg"),
    ]


async def test_an_input_file_with_a_name_that_leads_out_is_refused(server: SandboxServer, connect: Connect) -> None:
    with pytest.raises(ToolError, match="leads out of its folder"):
        await Coding(connect(), File(name="/etc/x", content=b"")).run("")
    assert server.calls == []


async def test_failing_code_comes_back_with_its_traceback(connect: Connect) -> None:
    result = await Coding(connect()).run("print('half')\nraise KeyError('city')")
    assert (result.stdout, result.has_failed) == ("half\n", True)
    assert result.stderr.endswith("KeyError: 'city'\n")


async def test_output_is_cut(connect: Connect) -> None:
    result = await Coding(connect()).run("print('x' * 200_000)")
    assert len(result.stdout) < MAX_OUTPUT_BYTES + 100
    assert result.stdout.endswith("… (200001 bytes in all)")


async def test_code_that_takes_too_long_is_no_longer_waited_for(connect: Connect) -> None:
    result = await Coding(connect(timeout_seconds=0.5)).run("while True: pass")
    assert result.exit_code == TIMED_OUT
    assert result.stderr == "The code did not end within 0.5 s; it may still be running."


async def test_the_extension_is_created_once_and_found_again(server: SandboxServer, connect: Connect) -> None:
    for _ in range(2):
        assert (await Coding(connect()).run("print(1)")).stdout == "1\n"
    (extension,) = server.extensions.values()
    assert extension["displayName"] == "greenroom-code-interpreter"
    assert extension["manifest"]["apiSpec"] == {"openApiGcsUri": "gs://vertex-extension-public/code_interpreter.yaml"}


async def test_an_extension_is_given_by_argument_or_variable(
    server: SandboxServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "projects/p/locations/l/extensions/5"
    server.extensions[name.replace("/p/", "/123/")] = {"displayName": "mine"}
    assert (await Coding(connect(name)).run("print(1)")).stdout == "1\n"
    monkeypatch.setenv("CODE_INTERPRETER_EXTENSION_NAME", name)
    assert (await Coding(connect()).run("print(2)")).stdout == "2\n"
    assert set(server.calls) == {f"POST {name}:execute"}

    with pytest.raises(AgentConfigError, match="not the resource name of an extension"):
        VertexAiCodeExecutor("projects/p/locations/evil.example/extensions/5")


async def test_what_is_refused_for_a_moment_is_sent_again_and_code_is_not(
    server: SandboxServer, connect: Connect
) -> None:
    coding = Coding(connect())
    server.failures = {"execute": [("RESOURCE_EXHAUSTED", "busy")], "GET": [("UNAVAILABLE", "down")]}
    assert (await coding.run("print(1)")).stdout == "1\n"
    server.failures = {"execute": [("UNAVAILABLE", "broken")]}
    with pytest.raises(ToolError, match=r"Running code in Vertex AI's code interpreter failed: .*: broken"):
        await coding.run("print(2)")
