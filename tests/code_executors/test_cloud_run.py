"""Code in Cloud Run's sandboxes: a command in place of Cloud Run's own, which runs its arguments as the documented one."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from greenroom.code_executors import cloud_run
from greenroom.code_executors.cloud_run import CloudRunSandboxCodeExecutor
from greenroom.code_executors.executor import TIMED_OUT
from greenroom.environments.files import File
from greenroom.environments.process import MAX_OUTPUT_BYTES
from greenroom.errors import ToolError
from tests.code_executors.coding import Coding
from tests.server.serving import until

_COMMAND = """\
#!{python}
import subprocess, sys
verb, *arguments = sys.argv[1:]
at = arguments.index("--")
assert verb == "do" and set(arguments[:at]) <= {{"--allow-egress"}}
open({folder!r} + "/flags", "a").write(" ".join(arguments[:at]) + ";")
if "fail" in arguments[:at]:
    sys.exit(1)
print("Failed to cleanup network namespace", file=sys.stderr)
sys.exit(subprocess.run(arguments[at + 1 :], cwd="/", env={{"EGRESS": str("--allow-egress" in arguments)}}).returncode)
"""


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(cloud_run, "_SCRATCH", str(tmp_path / "scratch"))
    path = tmp_path / "sandbox"
    path.write_text(_COMMAND.format(python=sys.executable, folder=str(tmp_path)))
    path.chmod(0o755)
    return str(path)


async def test_code_runs_in_a_sandbox_without_the_container_s_variables(command: str) -> None:
    coding = Coding(CloudRunSandboxCodeExecutor(sandbox_bin=command))
    result = await coding.run("import os\nprint(__name__, os.listdir(), os.environ['EGRESS'], 'USER' in os.environ)")
    assert (result.stdout, result.stderr, result.exit_code) == ("__main__ [] False False\n", "", 0)

    coding = Coding(CloudRunSandboxCodeExecutor(sandbox_bin=command, allow_egress=True))
    assert (await coding.run("import os\nprint(os.environ['EGRESS'])")).stdout == "True\n"


async def test_files_go_in_and_new_ones_come_out(command: str, tmp_path: Path) -> None:
    coding = Coding(CloudRunSandboxCodeExecutor(sandbox_bin=command), File(name="a.csv", content=b"1\n"))
    result = await coding.run("open('big.bin', 'wb').write(open('a.csv', 'rb').read() * 1_000_000)")
    assert [(file.name, len(file.content)) for file in result.output_files] == [("big.bin", 2_000_000)]
    assert os.listdir(tmp_path / "scratch") == []


async def test_an_input_file_with_a_name_that_leads_out_is_refused(command: str) -> None:
    coding = Coding(CloudRunSandboxCodeExecutor(sandbox_bin=command), File(name="../a", content=b""))
    with pytest.raises(ToolError, match="leads out of its folder"):
        await coding.run("")


async def test_failing_code_comes_back_with_its_traceback_and_without_the_command_s_own_lines(command: str) -> None:
    result = await Coding(CloudRunSandboxCodeExecutor(sandbox_bin=command)).run("print('half')\nraise KeyError('city')")
    assert (result.stdout, result.exit_code) == ("half\n", 1)
    assert result.stderr.endswith("KeyError: 'city'\n")
    assert "namespace" not in result.stderr


async def test_output_is_cut(command: str) -> None:
    result = await Coding(CloudRunSandboxCodeExecutor(sandbox_bin=command)).run("print('x' * 300_000)")
    assert result.stdout.endswith("… (300001 bytes in all)")
    assert len(result.stdout) < MAX_OUTPUT_BYTES + 100


async def test_code_that_takes_too_long_is_stopped(command: str) -> None:
    coding = Coding(CloudRunSandboxCodeExecutor(sandbox_bin=command, timeout_seconds=0.5))
    result = await coding.run("print('first')\nwhile True: pass")
    assert (result.stdout, result.exit_code) == ("first\n", TIMED_OUT)


async def test_a_sandbox_that_hangs_is_stopped(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud_run, "_START_SECONDS", 0.5)
    coding = Coding(CloudRunSandboxCodeExecutor(sandbox_bin=command, timeout_seconds=0.5))
    result = await coding.run("import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)")
    assert result.exit_code == TIMED_OUT


async def test_code_that_ends_its_sandbox_has_failed(command: str) -> None:
    coding = Coding(CloudRunSandboxCodeExecutor(sandbox_bin=command))
    result = await coding.run("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)")
    assert result.has_failed
    assert "The sandbox ended with exit code" in result.stderr


async def test_a_cancelled_run_stops_its_sandbox(command: str, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"import os\nopen({str(pid)!r}, 'w').write(str(os.getpgid(os.getppid())))\nwhile True: pass"
    task = asyncio.create_task(Coding(CloudRunSandboxCodeExecutor(sandbox_bin=command)).run(code))
    await until(lambda: pid.exists() and pid.read_text() != "")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not Path(f"/proc/{pid.read_text()}").exists())


async def test_elsewhere_than_on_cloud_run_the_run_fails(tmp_path: Path) -> None:
    coding = Coding(CloudRunSandboxCodeExecutor(sandbox_bin=str(tmp_path / "none")))
    with pytest.raises(ToolError, match="was deployed with --sandbox-launcher"):
        await coding.run("print(1)")
