"""Code run as a process of its own: what it gets, what comes back, and that it ends."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.code_executors.executor import TIMED_OUT, CodeExecutionInput, CodeExecutionResult
from greenroom.code_executors.unsafe_local import UnsafeLocalCodeExecutor
from greenroom.environments.files import MAX_FILE_BYTES, MAX_FILES, File
from greenroom.environments.process import MAX_OUTPUT_BYTES
from greenroom.errors import ToolError
from greenroom.invocation.context import InvocationContext
from greenroom.records.content import Content, Part
from greenroom.runner.in_memory import InMemoryRunner
from greenroom.testing.scripted_model import ScriptedModel
from tests.server.serving import until


class Watched(UnsafeLocalCodeExecutor):
    """Notes what came back of the code."""

    result: CodeExecutionResult

    async def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        self.result = await super().execute_code(invocation_context, code_execution_input)
        return self.result


async def run(code: str, *files: File, **settings: Any) -> CodeExecutionResult:
    """The outcome of code that an agent's model writes, in a session that has these files."""
    executor = Watched(**settings)
    model = ScriptedModel([Part.from_executable_code(code=code), "Done."])
    runner = InMemoryRunner(LlmAgent(name="coder", model=model, code_executor=executor), app_name="app")
    state = {"_code_executor_input_files": [msgspec.to_builtins(file) for file in files]}
    await runner.session_service.create_session(app_name="app", user_id="ada", session_id="s-1", state=state)
    message = Content(role="user", parts=[Part(text="go")])
    async with asyncio.timeout(20):
        run = runner.run_async(user_id="ada", session_id="s-1", new_message=message)
        async with aclosing(run) as events:
            shown = [event async for event in events]
    assert [event.author for event in shown] == ["coder"] * 3
    return executor.result


def is_alive(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


async def test_code_runs_as_the_main_module_in_a_folder_of_its_own() -> None:
    result = await run("import os\nprint(__name__, os.listdir())")
    assert result == CodeExecutionResult(stdout="__main__ []\n", exit_code=0, output_files=[])


async def test_input_files_are_there_and_only_new_and_changed_ones_come_back() -> None:
    code = """
from pathlib import Path
import helper
Path("b.txt").write_text(Path("a.txt").read_text() + helper.MORE)
Path("c.txt").write_text("changed")
Path("deep").mkdir()
Path("deep/d.json").write_text("{}")
Path("link").symlink_to("/etc/passwd")
"""
    given = [
        File(name="a.txt", content=b"one"),
        File(name="c.txt", content=b"before"),
        File(name="helper.py", content=b"MORE = ' two'"),
    ]
    result = await run(code, *given)
    assert (result.stderr, list(result.output_files)) == (
        "",
        [
            File(name="b.txt", content=b"one two"),
            File(name="c.txt", content=b"changed"),
            File(name="deep/d.json", content=b"{}", mime_type="application/json"),
        ],
    )


async def test_an_input_file_stays_in_the_folder() -> None:
    with pytest.raises(ToolError, match="leads out of its folder"):
        await run("", File(name="../code.py", content=b"print('mine')"))


async def test_failing_code_comes_back_with_its_traceback() -> None:
    result = await run("print('half')\nraise KeyError('city')")
    assert (result.stdout, result.exit_code, result.has_failed) == ("half\n", 1, True)
    assert result.stderr.endswith("KeyError: 'city'\n")


async def test_warnings_of_code_that_succeeds_are_no_failure() -> None:
    result = await run("import sys\nprint('careful', file=sys.stderr)")
    assert (result.stderr, result.has_failed) == ("", False)


async def test_code_that_ends_silently_with_an_error_says_so() -> None:
    result = await run("import os\nos._exit(3)")
    assert (result.stderr, result.exit_code) == ("The code ended with exit code 3.", 3)


async def test_code_that_takes_too_long_is_stopped_with_all_that_it_started() -> None:
    code = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid)
time.sleep(60)
"""
    result = await run(code, timeout_seconds=1.0)
    assert result.exit_code == TIMED_OUT
    assert "stopped after 1 s" in result.stderr
    await until(lambda: not is_alive(int(result.stdout)))


async def test_code_that_takes_too_long_may_tidy_up_before_it_is_killed() -> None:
    code = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("tidied up"), sys.exit(0)))
time.sleep(60)
"""
    result = await run(code, timeout_seconds=2.0)
    assert (result.stdout, result.exit_code) == ("tidied up\n", TIMED_OUT)


def test_its_limits_are_those_of_the_contract_and_it_keeps_no_state() -> None:
    executor = UnsafeLocalCodeExecutor()
    assert (executor.timeout_seconds, executor.stateful) == (300.0, False)
    with pytest.raises(TypeError, match="stateful"):
        UnsafeLocalCodeExecutor(stateful=True)  # pyright: ignore[reportCallIssue]


async def test_what_code_leaves_running_is_stopped_and_not_waited_for() -> None:
    code = """
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid)
"""
    result = await run(code)
    assert result.exit_code == 0
    await until(lambda: not is_alive(int(result.stdout)))


async def test_a_cancelled_run_leaves_no_process_and_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    marker = tmp_path / "pid"
    code = f"import os, time\nopen({str(marker)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    task = asyncio.create_task(run(code))
    await until(lambda: marker.exists() and marker.read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not is_alive(int(marker.read_text())))
    assert os.listdir(tmp_path) == ["pid"]


async def test_output_is_cut_and_never_fills_the_pipe() -> None:
    result = await run("print('x' * 3_000_000)")
    assert result.exit_code == 0
    assert len(result.stdout) < MAX_OUTPUT_BYTES + 100
    assert result.stdout.endswith("… (3000001 bytes in all)")


async def test_files_that_are_too_large_or_too_many_are_only_named() -> None:
    size = MAX_FILE_BYTES
    code = f"""
open("a.bin", "wb").write(bytes({size} + 1))
for n in range({MAX_FILES} + 1):
    open(f"f{{n:03}}", "w").close()
"""
    result = await run(code)
    assert [file.name for file in result.output_files] == [f"f{n:03}" for n in range(MAX_FILES)]
    assert result.stdout == "\nNot kept, because of their number, size or name: a.bin, f050\n"


async def test_it_sees_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENROOM_TEST", "seen")
    assert (await run("import os\nprint(os.environ['GREENROOM_TEST'])")).stdout == "seen\n"
    assert os.getpid() != int((await run("import os\nprint(os.getpid())")).stdout)


async def test_what_was_printed_is_kept_when_a_process_left_behind_holds_the_output_open() -> None:
    code = (
        "import subprocess, sys\nprint('hi', flush=True)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(5)'], start_new_session=True)\n"
    )
    result = await run(code)
    assert (result.stdout, result.exit_code) == ("hi\n", 0)
