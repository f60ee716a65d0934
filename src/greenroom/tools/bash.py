"""Commands on this machine, each approved by a person.

Source of names, defaults and results: ADK's `ExecuteBashTool`.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from greenroom.environments.process import run_process
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject
from greenroom.tools.functions.function_tool import FunctionTool

ALL = "*"
_NO_OUTPUT = "(no output)"


@dataclass(frozen=True)
class BashToolPolicy:
    """Commands that a tool may run, and their limits. None: no limit.

    allowed_command_prefixes: a command must begin with one of them, word by word; `*` allows all.
    blocked_operators: texts that no command may contain.
    max_memory_bytes: of a process's address space. max_file_size_bytes: of each file it writes. max_child_processes: of
        all processes of the server's user.
    """

    allowed_command_prefixes: tuple[str, ...] = (ALL,)
    blocked_operators: tuple[str, ...] = ()
    timeout_seconds: int | None = 30
    max_memory_bytes: int | None = None
    max_file_size_bytes: int | None = None
    max_child_processes: int | None = None

    def refusal(self, command: str) -> str | None:
        """The reason why a command may not run."""
        operator = next((one for one in self.blocked_operators if one in command), None)
        if operator is not None:
            return f"The command contains {operator!r}, which is not allowed."

        try:
            words = shlex.split(command)
        except ValueError as error:
            return f"The command can't be read: {error}."
        if not words:
            return "There is no command."

        prefixes = [shlex.split(prefix) for prefix in self.allowed_command_prefixes]
        if [ALL] in prefixes or any(words[: len(prefix)] == prefix for prefix in prefixes):
            return None

        return f"Only commands that begin with one of these are allowed: {', '.join(self.allowed_command_prefixes)}."


class ExecuteBashTool(FunctionTool):
    """`execute_bash`: one program with its arguments, without a shell, as a process of greenroom's own user, which can
    read and delete what greenroom can. A person must approve each command. Not on Windows.

    `ShellTool` runs shell commands in a sandbox.

    workspace: the working directory; None for the server's.
    """

    def __init__(self, *, workspace: Path | str | None = None, policy: BashToolPolicy | None = None) -> None:
        super().__init__(self._run, name="execute_bash", require_confirmation=True, on_interrupt="report")
        self._workspace = Path.cwd() if workspace is None else Path(workspace)
        self._policy = policy or BashToolPolicy()

    async def _prepare(
        self,
        args: JsonObject,
        tool_context: ToolContext,
    ) -> tuple[dict[str, Any], JsonObject | None]:
        """A command that the policy doesn't allow is refused before a person is asked."""
        reason = self._policy.refusal(str(args.get("command", "")))
        if reason is not None:
            return {}, {"error": reason}
        return await super()._prepare(args, tool_context)

    async def _run(self, command: Annotated[str, "The program and its arguments."]) -> JsonObject:
        """Runs one program in the working directory. No shell reads the command: pipes, redirections and variables have
        no meaning.
        """
        try:
            ran = await run_process(
                *_with_limits(self._policy, shlex.split(command)),
                cwd=self._workspace,
                env=os.environ,
                timeout_seconds=self._policy.timeout_seconds,
            )
        except OSError as error:
            return {"error": f"The command can't be started: {error.strerror}."}

        result: JsonObject = {
            "stdout": ran.stdout or _NO_OUTPUT,
            "stderr": ran.stderr or _NO_OUTPUT,
            "returncode": ran.exit_code,
        }
        if ran.timed_out:
            result["error"] = f"The command was stopped after {self._policy.timeout_seconds} seconds."
        return result


def _with_limits(policy: BashToolPolicy, command: list[str]) -> list[str]:
    """The command, or one that sets the policy's limits and becomes it."""
    limits = {
        "RLIMIT_AS": policy.max_memory_bytes,
        "RLIMIT_FSIZE": policy.max_file_size_bytes,
        "RLIMIT_NPROC": policy.max_child_processes,
    }
    limits = {name: value for name, value in limits.items() if value is not None}
    if not limits:
        return command
    return [sys.executable, "-I", "-S", "-c", _SET_LIMITS, json.dumps(limits), *command]


_SET_LIMITS = """\
import json, os, resource, sys
for name, value in json.loads(sys.argv[1]).items():
    resource.setrlimit(getattr(resource, name), (value, value))
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"{sys.argv[2]} can't be started: {error.strerror}")
"""
