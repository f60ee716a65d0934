"""Code of agents in sandboxes of E2B's: its own SDK, against a small server with its interface."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from greenroom.code_executors.executor import TIMED_OUT, CodeExecutionResult
from greenroom.code_executors.sandboxed import SandboxCodeExecutor
from greenroom.environments.e2b import E2BEnvironment
from greenroom.environments.files import File
from greenroom.errors import AgentConfigError, ToolError
from tests.code_executors.coding import Coding
from tests.environments.e2b_server import KEY, E2BServer
from tests.requirements import require_bubblewrap
from tests.server.serving import until

Open: TypeAlias = Callable[..., "Coder"]

VARIABLES_GONE = "(This is a new sandbox. Variables and imports of earlier code are gone; saved files are there.)\n"


class Coder(Coding):
    def __init__(self, executor: SandboxCodeExecutor, *files: File) -> None:
        self.executor = executor
        super().__init__(executor, *files)

    def sandbox(self) -> Any:
        (kept,) = self.executor._pool._kept.values()
        return kept.sandbox


@pytest.fixture
async def e2b(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[E2BServer]:
    require_bubblewrap()
    # `python3` is these tests' own, not a script that looks for one.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    async with E2BServer().serving() as server:
        server.private_folder = tmp_path / "work"
        monkeypatch.setenv("E2B_API_URL", server.url)
        monkeypatch.setenv("E2B_SANDBOX_URL", server.url)
        monkeypatch.setenv("E2B_API_KEY", KEY)
        yield server


@pytest.fixture
async def opened(e2b: E2BServer, tmp_path: Path) -> AsyncIterator[Open]:
    """Makes coders, which are closed after the test."""
    async with AsyncExitStack() as stack:

        def made(*files: File, **settings: Any) -> Coder:
            coder = Coder(SandboxCodeExecutor(E2BEnvironment(working_dir=tmp_path / "work"), **settings), *files)
            stack.push_async_callback(coder.executor.close)
            return coder

        yield made
    assert e2b.sandboxes == {}


def is_alive(process_id: int) -> bool:
    status = Path(f"/proc/{process_id}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


async def test_code_runs_with_its_files_and_returns_those_it_wrote(opened: Open, e2b: E2BServer) -> None:
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
    coder = opened(File(name="a.txt", content=b"one"), File(name="helper.py", content=b"MORE = ' two'"))
    assert await coder.run(code) == CodeExecutionResult(
        stdout="__main__ ['a.txt', 'helper.py']\n",
        exit_code=0,
        output_files=[
            File(name="b.txt", content=b"one two"),
            File(name="deep/d.json", content=b"\xff{}", mime_type="application/json"),
        ],
    )
    assert e2b.sandboxes == {}


async def test_each_session_has_a_sandbox_with_its_variables_and_files(opened: Open, e2b: E2BServer) -> None:
    coder = opened(File(name="a.txt", content=b"one"), stateful=True)
    await coder.run("x = 40\nopen('f', 'w').write('kept')\nopen('a.txt', 'w').write('two')")
    result = await coder.run("x += 2\nprint(x, open('f').read(), open('a.txt').read(), __name__)")
    assert result == CodeExecutionResult(stdout="42 kept two __main__\n", exit_code=0, output_files=[])

    other = await coder.run("import os\nprint('x' in globals(), os.listdir())", user_id="bob")
    assert other.stdout == "False ['a.txt']\n"
    assert len(e2b.sandboxes) == 2


async def test_an_interpreter_keeps_modules_and_classes(opened: Open) -> None:
    coder = opened(File(name="helper.py", content=b"MORE = 'more'"), stateful=True)
    await coder.run("import helper, os, pickle\nclass A:\n    n = 3\ndef f(): return 1 / 0\nos.chdir('/')")
    assert (await coder.run("print(helper.MORE, pickle.loads(pickle.dumps(A())).n)")).stdout == "more 3\n"
    failed = await coder.run("print('half')\nf()")
    assert (failed.stdout, failed.exit_code) == ("half\n", 1)
    assert "code.py" in failed.stderr
    assert "program.py" not in failed.stderr
    assert failed.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert (await coder.run("print(A.n, os.path.exists('helper.py'))")).stdout == "3 True\n"


async def test_an_interpreter_that_has_ended_is_started_again(opened: Open) -> None:
    coder = opened(stateful=True)
    await coder.run("x = 1\nopen('f', 'w').close()")
    ended = await coder.run("import os\nprint('last words', flush=True)\nos._exit(3)")
    assert (ended.stdout, ended.exit_code) == ("last words\n", 1)
    assert ended.stderr == "The variables of earlier code are gone.\n"
    assert (await coder.run("import os\nprint('x' in globals(), os.listdir())")).stdout == "False ['f']\n"


@pytest.mark.parametrize("stateful", [False, True])
async def test_code_that_takes_too_long_is_stopped_with_all_that_it_started(opened: Open, stateful: bool) -> None:
    code = """
import subprocess, time
open("written", "w").close()
child = subprocess.Popen(["sleep", "60"])
print(child.pid, flush=True)
time.sleep(60)
"""
    result = await opened(stateful=stateful, timeout_seconds=1.0).run(code)
    assert result.exit_code == TIMED_OUT
    assert "The code was stopped after 1 s." in result.stderr
    assert ("variables of earlier code are gone" in result.stderr) == stateful
    assert [file.name for file in result.output_files] == ["written"]
    await until(lambda: not is_alive(int(result.stdout)))


@pytest.mark.parametrize("stateful", [False, True])
async def test_a_cancelled_run_stops_its_code(opened: Open, tmp_path: Path, stateful: bool) -> None:
    marker = tmp_path / "pid"
    code = f"import os, time\nopen({str(marker)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    coder = opened(stateful=stateful)
    task = asyncio.create_task(coder.run(code))
    await until(lambda: marker.exists() and marker.read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not is_alive(int(marker.read_text())))
    assert (await coder.run("print('on')")).stdout == "on\n"


async def test_code_that_lies_about_its_files_names_no_others(opened: Open, tmp_path: Path) -> None:
    answer = '{"files": ["../../../secret", "/etc/passwd", "out", "none"], "left_out": ["a\\nb"], "not_named": 1}'
    code = f"""
open("out", "w").write("mine")
program = open("/proc/self/cmdline").read().split("\\0")[2]
open(program, "w").write({f"print({answer!r})"!r})
"""
    result = await opened().run(code)
    assert list(result.output_files) == [File(name="out", content=b"mine", mime_type="application/octet-stream")]
    assert result.stdout.endswith(": ../../../secret, /etc/passwd, none, 'a\\nb', 1 more\n")


@pytest.mark.parametrize("answer", ["no JSON", '{"files": 1}', ""])
async def test_an_answer_that_is_none_is_an_error(opened: Open, answer: str) -> None:
    code = f"open(open('/proc/self/cmdline').read().split('\\0')[2], 'w').write({f'print({answer!r})'!r})"
    with pytest.raises(ToolError, match="can't be listed"):
        await opened().run(code)


async def test_code_continues_in_a_new_sandbox_after_the_time_without_use(opened: Open, e2b: E2BServer) -> None:
    coder = opened(File(name="a", content=b"input"), stateful=True)
    await coder.run("x = 1\nopen('b', 'w').write('output')")
    await e2b.end_all()
    coder.sandbox()._ends_at = 0.0
    result = await coder.run("print('x' in globals(), open('a').read(), open('b').read())")
    assert (result.stdout, result.stderr) == (f"{VARIABLES_GONE}False input output\n", "")


async def test_a_sandbox_that_was_stopped_is_a_failure_for_the_model(opened: Open, e2b: E2BServer) -> None:
    coder = opened(File(name="a", content=b"input"), stateful=True)
    await coder.run("x = 1")
    await e2b.end_all()
    result = await coder.run("print(x)")
    assert result.exit_code == 1
    assert result.stderr.startswith("The code was not run to its end: The sandbox at E2B has ended")
    after = await coder.run("print('x' in globals(), open('a').read())")
    assert after.stdout == f"{VARIABLES_GONE}False input\n"


@pytest.mark.parametrize("stateful", [False, True])
async def test_a_sandbox_that_ends_while_code_runs_is_a_failure_for_the_model(
    opened: Open, e2b: E2BServer, tmp_path: Path, stateful: bool
) -> None:
    coder = opened(stateful=stateful)
    running = asyncio.create_task(coder.run(f"open({str(tmp_path / 'on')!r}, 'w')\nimport time\ntime.sleep(60)"))
    await until(lambda: (tmp_path / "on").exists())
    await e2b.end_all()
    assert (await running).stderr.startswith("The code was not run to its end: The sandbox at E2B has ended")
    assert (await coder.run("print('on')")).stdout.endswith("on\n")


async def test_missing_settings_fail_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    for stateful in (False, True):
        with pytest.raises(AgentConfigError, match="E2B_API_KEY"):
            await Coder(SandboxCodeExecutor(E2BEnvironment(), stateful=stateful)).run("print('hi')")
