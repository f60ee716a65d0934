"""Commands on this machine, each approved by a person. Row 7.18."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject
from greenroom.records.event import ToolConfirmation
from greenroom.tools.bash import BashToolPolicy, ExecuteBashTool


class Shell:
    """Sends commands to a tool; each has been approved, unless `is_approved` is false."""

    def __init__(self, invocation: InvocationContext, folder: Path) -> None:
        self._invocation = invocation
        self._folder = folder

    async def run(self, command: str, *, is_approved: bool = True, **limits: Any) -> JsonObject:
        tool = ExecuteBashTool(workspace=self._folder, policy=BashToolPolicy(**limits))
        answer = ToolConfirmation(confirmed=True) if is_approved else None
        context = ToolContext(self._invocation, function_call_id="c", tool_confirmation=answer)
        response: Any = await tool.run_async(args={"command": command}, tool_context=context)
        return response


@pytest.fixture
def shell(invocation: InvocationContext, tmp_path: Path) -> Shell:
    return Shell(invocation, tmp_path)


async def test_a_command_runs_in_the_workspace_after_its_approval(shell: Shell, tmp_path: Path) -> None:
    waiting = await shell.run("pwd", is_approved=False)
    assert "needs approval" in waiting["error"]
    assert await shell.run("pwd") == {"stdout": f"{tmp_path}\n", "stderr": "(no output)", "returncode": 0}


async def test_no_shell_reads_the_command(shell: Shell) -> None:
    assert (await shell.run("echo '$HOME' a | cat > f; ls"))["stdout"] == "$HOME a | cat > f; ls\n"


@pytest.mark.parametrize(
    ("command", "limits", "reason"),
    [
        ("rm -rf /", {"allowed_command_prefixes": ("ls", "git log")}, "Only commands that begin with"),
        ("lsof", {"allowed_command_prefixes": ("ls",)}, "Only commands that begin with"),
        ("git push", {"allowed_command_prefixes": ("git log",)}, "Only commands that begin with"),
        ("ls a && ls b", {"blocked_operators": ("&&",)}, "contains '&&'"),
        ("echo 'a", {}, "can't be read"),
        ("  ", {}, "There is no command"),
    ],
)
async def test_the_policy_refuses_before_a_person_is_asked(
    shell: Shell, command: str, limits: JsonObject, reason: str
) -> None:
    assert reason in (await shell.run(command, is_approved=False, **limits))["error"]
    assert reason in (await shell.run(command, **limits))["error"]


async def test_a_prefix_may_have_several_words(shell: Shell) -> None:
    assert (await shell.run("echo hi there", allowed_command_prefixes=("echo hi",)))["returncode"] == 0


async def test_limits_hold(shell: Shell) -> None:
    program = "python3 -c 'bytearray(500_000_000)'"
    assert (await shell.run(program))["returncode"] == 0
    assert "MemoryError" in (await shell.run(program, max_memory_bytes=200_000_000))["stderr"]

    large = await shell.run('python3 -c \'open("f", "wb").write(bytes(9_000))\'', max_file_size_bytes=1_000)
    assert large["returncode"] != 0

    late = await shell.run("sleep 60", timeout_seconds=1)
    assert late["error"] == "The command was stopped after 1 seconds."


async def test_a_program_that_does_not_exist(shell: Shell) -> None:
    assert "can't be started" in (await shell.run("no-such-program"))["error"]
    assert "can't be started" in (await shell.run("no-such-program", max_file_size_bytes=9))["stderr"]
