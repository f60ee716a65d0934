"""Code run in an environment: in a local folder, and in sandboxes of E2B's."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from greenroom.code_executors.environment import FOLDER, EnvironmentCodeExecutor
from greenroom.code_executors.executor import TIMED_OUT, CodeExecutionResult
from greenroom.environments.e2b import E2BEnvironment
from greenroom.environments.environment import BaseEnvironment
from greenroom.environments.files import MAX_FILE_BYTES, MAX_FILES, File
from greenroom.environments.local import LocalEnvironment
from greenroom.environments.process import MAX_OUTPUT_BYTES, ExecutionResult
from greenroom.errors import AgentConfigError, ToolError
from tests.code_executors.coding import Coding
from tests.environments.e2b_server import KEY, E2BServer
from tests.server.serving import until


class Coder(Coding):
    def __init__(self, environment: BaseEnvironment, *files: File, **settings: Any) -> None:
        self.executor = EnvironmentCodeExecutor(environment=environment, **settings)
        super().__init__(self.executor, *files)


@pytest.fixture(autouse=True)
def quick_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `python3` these tests' own, not a script that looks for one."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def environment(tmp_path: Path) -> LocalEnvironment:
    return LocalEnvironment(working_dir=tmp_path)


@pytest.fixture
async def e2b(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[E2BServer]:
    async with E2BServer().serving() as server:
        monkeypatch.setenv("E2B_API_URL", server.url)
        monkeypatch.setenv("E2B_SANDBOX_URL", server.url)
        monkeypatch.setenv("E2B_API_KEY", KEY)
        yield server


@pytest.fixture(params=["local", "E2B"])
def any_environment(request: pytest.FixtureRequest, tmp_path: Path) -> BaseEnvironment:
    if request.param == "local":
        return LocalEnvironment(working_dir=tmp_path)
    request.getfixturevalue("e2b")
    return E2BEnvironment(working_dir=tmp_path)


def leftovers(tmp_path: Path) -> list[str]:
    return os.listdir(tmp_path / FOLDER)


def interpreters(tmp_path: Path) -> list[int]:
    """Their process ids."""
    return [int(path.read_text()) for path in tmp_path.glob(f"{FOLDER}/*/interpreter.pid")]


def is_alive(process_id: int) -> bool:
    status = Path(f"/proc/{process_id}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


async def test_code_runs_with_its_files_and_returns_those_it_wrote(
    any_environment: BaseEnvironment, tmp_path: Path
) -> None:
    code = """
import os
from pathlib import Path
print(__name__, sorted(os.listdir()))
import helper
Path("b.txt").write_text(Path("a.txt").read_text() + helper.MORE)
Path("deep").mkdir()
Path("deep/d.json").write_bytes(b'\\xff{}')
Path("link").symlink_to("/etc/passwd")
"""
    coder = Coder(
        any_environment,
        File(name="a.txt", content=b"one"),
        File(name="helper.py", content=b"MORE = ' two'"),
    )
    assert await coder.run(code) == CodeExecutionResult(
        stdout="__main__ ['a.txt', 'helper.py']\n",
        exit_code=0,
        output_files=[
            File(name="b.txt", content=b"one two"),
            File(name="deep/d.json", content=b"\xff{}", mime_type="application/json"),
        ],
    )
    assert leftovers(tmp_path) == []
    await coder.executor.close()


async def test_code_shares_variables_and_files_in_a_session(any_environment: BaseEnvironment, tmp_path: Path) -> None:
    coder = Coder(any_environment, File(name="a.txt", content=b"one"), stateful=True)
    await coder.run("x = 40\nopen('f', 'w').write('kept')\nopen('a.txt', 'w').write('two')")
    result = await coder.run("x += 2\nprint(x, open('f').read(), open('a.txt').read(), __name__)")
    assert result == CodeExecutionResult(stdout="42 kept two __main__\n", exit_code=0, output_files=[])

    other = await coder.run("print('x' in globals())", user_id="bob")
    assert other.stdout == "False\n"
    assert len(leftovers(tmp_path)) == 2

    pids = interpreters(tmp_path)
    assert len(pids) == 2
    await coder.executor.close()
    await until(lambda: not any(is_alive(pid) for pid in pids))


async def test_an_interpreter_keeps_modules_classes_and_the_folder_of_code(environment: LocalEnvironment) -> None:
    coder = Coder(environment, File(name="helper.py", content=b"MORE = 'more'"), stateful=True)
    await coder.run("import helper, pickle\nclass A:\n    n = 3\ndef f(): return 1 / 0")
    assert (await coder.run("print(helper.MORE, pickle.loads(pickle.dumps(A())).n)")).stdout == "more 3\n"
    failed = await coder.run("print('half')\nf()")
    assert (failed.stdout, failed.exit_code) == ("half\n", 1)
    assert "code.py" in failed.stderr
    assert "guest_program" not in failed.stderr
    assert "program.py" not in failed.stderr
    assert failed.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert (await coder.run("print(A.n)")).stdout == "3\n"
    await coder.executor.close()


@pytest.mark.parametrize("stateful", [False, True])
async def test_how_code_ends(environment: LocalEnvironment, stateful: bool) -> None:
    coder = Coder(environment, stateful=stateful)
    failed = await coder.run("print('half')\nraise KeyError('city')")
    assert (failed.stdout, failed.exit_code) == ("half\n", 1)
    assert failed.stderr.endswith("KeyError: 'city'\n")
    assert 'File "<' not in failed.stderr

    assert (await coder.run("import sys\nprint('careful', file=sys.stderr)")).stderr == ""
    silent = await coder.run("import sys\nsys.exit(3)")
    assert (silent.stderr, silent.exit_code) == ("The code ended with exit code 3.", 3)
    said = await coder.run("import sys\nsys.exit('no more')")
    assert (said.stderr, said.exit_code) == ("no more\n", 1)
    assert "SyntaxError" in (await coder.run("1 +")).stderr
    assert (await coder.run("import subprocess\nsubprocess.run(['echo', 'child'])")).stdout == "child\n"
    await coder.executor.close()


async def test_an_interpreter_that_has_ended_is_started_again(environment: LocalEnvironment) -> None:
    coder = Coder(environment, stateful=True)
    await coder.run("x = 1")
    ended = await coder.run("import os\nprint('last words', flush=True)\nos._exit(3)")
    assert (ended.stdout, ended.exit_code) == ("last words\n", 1)
    assert ended.stderr == "The code has ended its interpreter; its variables are gone.\n"

    again = await coder.run("print('x' in globals())")
    assert again.stdout == "Note: the variables of earlier code are gone, because its interpreter has ended.\nFalse\n"
    await coder.executor.close()


@pytest.mark.parametrize("stateful", [False, True])
async def test_code_that_takes_too_long_is_stopped_with_all_that_it_started(
    any_environment: BaseEnvironment, tmp_path: Path, stateful: bool
) -> None:
    code = """
import subprocess, time
open("written", "w").close()
child = subprocess.Popen(["sleep", "60"])
print(child.pid, flush=True)
time.sleep(60)
"""
    coder = Coder(any_environment, stateful=stateful, timeout_seconds=1.0)
    result = await coder.run(code)
    assert result.exit_code == TIMED_OUT
    assert "The code was stopped after 1 s." in result.stderr
    assert ("variables of earlier code are gone" in result.stderr) == stateful
    assert [file.name for file in result.output_files] == ["written"]
    await until(lambda: not is_alive(int(result.stdout)))
    await coder.executor.close()


@pytest.mark.parametrize("stateful", [False, True])
async def test_a_cancelled_run_stops_its_code(any_environment: BaseEnvironment, tmp_path: Path, stateful: bool) -> None:
    marker = tmp_path / "pid"
    code = f"import os, time\nopen({str(marker)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    coder = Coder(any_environment, stateful=stateful)
    task = asyncio.create_task(coder.run(code))
    await until(lambda: marker.exists() and marker.read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not is_alive(int(marker.read_text())))
    if not stateful:
        await until(lambda: not leftovers(tmp_path))
    assert (await coder.run("print('on')")).stdout.endswith("on\n")
    await coder.executor.close()


async def test_output_is_bounded(any_environment: BaseEnvironment) -> None:
    coder = Coder(any_environment)
    result = await coder.run("print('x' * 3_000_000)")
    assert result.stdout.endswith("… (3000001 bytes in all)")
    assert len(result.stdout) < MAX_OUTPUT_BYTES + 100
    await coder.executor.close()


async def test_files_that_are_too_large_or_too_many_are_only_named(environment: LocalEnvironment) -> None:
    code = f"""
open("a.bin", "wb").write(bytes({MAX_FILE_BYTES} + 1))
for n in range({MAX_FILES} + 30):
    open(f"f{{n:03}}", "w").close()
"""
    result = await Coder(environment).run(code)
    assert [file.name for file in result.output_files] == [f"f{n:03}" for n in range(MAX_FILES)]
    names = ", ".join(f"f{n:03}" for n in range(MAX_FILES, MAX_FILES + 19))
    assert result.stdout.startswith("\nNot kept")
    assert result.stdout.endswith(f": a.bin, {names}, and 11 more\n")


async def test_code_that_lies_about_its_files_reads_no_others(environment: LocalEnvironment, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    answer = '{"ran": true, "files": ["../../../secret", "/etc/passwd", "out", "link"], "left_out": []}'
    code = f"""
open("out", "w").write("mine")
import os
os.symlink("/etc/passwd", "link")
open("../program.py", "w").write({f"print({answer!r})"!r})
"""
    result = await Coder(environment).run(code)
    assert list(result.output_files) == [File(name="out", content=b"mine", mime_type="application/octet-stream")]
    assert result.stdout.endswith("../../../secret, /etc/passwd, link\n")


async def test_an_input_file_stays_in_the_folder(environment: LocalEnvironment) -> None:
    with pytest.raises(ToolError, match="leads out of its folder"):
        await Coder(environment, File(name="../code.py", content=b"")).run("")


async def test_code_runs_in_a_new_sandbox_when_the_last_has_ended(e2b: E2BServer, tmp_path: Path) -> None:
    coder = Coder(E2BEnvironment(working_dir=tmp_path / "first"), File(name="a", content=b"input"), stateful=True)
    await coder.run("x = 1")
    await e2b.end_all()
    coder.executor.environment._working_dir = tmp_path / "second"  # pyright: ignore[reportAttributeAccessIssue]
    result = await coder.run("print('x' in globals(), open('a').read())")
    note = "Note: the variables and files of earlier code are gone, because their sandbox has ended."
    assert (result.stdout, result.stderr) == (f"{note}\nFalse input\n", "")
    assert (await coder.run("print('x' in globals())")).stdout == "False\n"
    await coder.executor.close()


async def test_others_may_find_out_that_a_sandbox_has_ended(e2b: E2BServer, tmp_path: Path) -> None:
    environment = E2BEnvironment(working_dir=tmp_path / "first")
    coder = Coder(environment, File(name="a", content=b"input"), stateful=True)
    await coder.run("x = 1")
    await e2b.end_all()
    environment._working_dir = tmp_path / "second"
    with pytest.raises(ToolError):
        await environment.execute("true")
    result = await coder.run("print('x' in globals(), open('a').read())")
    assert result.stdout.endswith("their sandbox has ended.\nFalse input\n")
    await coder.executor.close()


async def test_a_sandbox_that_ends_while_code_runs_is_a_failure_for_the_model(e2b: E2BServer, tmp_path: Path) -> None:
    environment = E2BEnvironment(working_dir=tmp_path / "first")
    coder = Coder(environment, File(name="a", content=b"input"), stateful=True)
    running = asyncio.create_task(coder.run(f"open({str(tmp_path / 'on')!r}, 'w')\nimport time\ntime.sleep(60)"))
    await until(lambda: (tmp_path / "on").exists())
    await e2b.end_all()
    result = await running
    assert result.exit_code == 1
    assert result.stderr.startswith("The code could not be run: The sandbox at E2B has ended")

    environment._working_dir = tmp_path / "second"
    assert (await coder.run("print(open('a').read())")).stdout == "input\n"
    await coder.executor.close()


async def test_an_environment_without_python_is_a_failure_for_the_model(
    environment: LocalEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    result = await Coder(environment).run("print('hi')")
    assert result.exit_code == 127
    assert "python3" in result.stderr


async def test_an_environment_that_can_not_be_initialized_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    with pytest.raises(AgentConfigError, match="E2B_API_KEY"):
        await Coder(E2BEnvironment()).run("print('hi')")


async def test_the_environment_is_closed_with_the_executor(tmp_path: Path) -> None:
    environment = LocalEnvironment()
    coder = Coder(environment)
    await coder.run("print('hi')")
    folder = environment.working_dir
    assert await environment.execute("true") == ExecutionResult()
    await coder.executor.close()
    assert not folder.exists()
