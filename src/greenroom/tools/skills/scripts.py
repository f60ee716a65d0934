"""Runs the scripts of skills, and saves their output files as artifacts."""

from __future__ import annotations

import asyncio
import inspect
import mimetypes
import shlex
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, TypeAlias, cast

from greenroom.artifacts.service import belongs_to_session
from greenroom.code_executors.executor import (
    TIMED_OUT,
    BaseCodeExecutor,
    CodeExecutionInput,
    CodeExecutionResult,
)
from greenroom.environments.default import default_sandbox
from greenroom.environments.environment import BaseEnvironment
from greenroom.environments.files import File
from greenroom.environments.sandbox import Sandbox
from greenroom.errors import AgentConfigError, ToolError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Part
from greenroom.tools.result import shortened
from greenroom.tools.skills.skill import Skill

MAX_OUTPUT_CHARACTERS = 30_000
MAX_SAVED_BYTES = 5 * 1024 * 1024
MAX_SAVED_BYTES_IN_ALL = 16 * 1024 * 1024
MAX_SAVED_FILES = 50

_INTERPRETERS = {".py": "python3", ".sh": "bash", ".bash": "bash"}


@dataclass(frozen=True, kw_only=True)
class ScriptResult:
    """A script's output, and the files that it made."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    made: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """The files that the script created or changed, by path."""


class ScriptRunner(Protocol):
    """Runs a command in a separate folder that contains the given files only."""

    async def run_script(
        self, *, command: list[str], files: Mapping[str, bytes], timeout_seconds: float, tool_context: ToolContext
    ) -> ScriptResult:
        """Raises TimeoutError when the time is up."""
        ...


class EnvironmentScriptRunner:
    """Copies a skill's files into a folder of an environment for each script; none of its output
    files are saved.
    """

    def __init__(self, environment: BaseEnvironment, folder: str | Path) -> None:
        self._environment = environment
        self._folder = PurePosixPath(folder)

    async def run_script(
        self, *, command: list[str], files: Mapping[str, bytes], timeout_seconds: float, tool_context: ToolContext
    ) -> ScriptResult:
        if not self._environment.is_initialized:
            await self._environment.initialize()
            self._environment.is_initialized = True

        folder = self._folder / uuid.uuid4().hex
        for path, content in files.items():
            await self._environment.write_file(str(folder / path), content)

        line = f"cd {shlex.quote(str(folder))} && {shlex.join(command)}"

        ran = await self._environment.execute(line, timeout=timeout_seconds)
        if ran.timed_out:
            raise TimeoutError

        return ScriptResult(stdout=ran.stdout, stderr=ran.stderr, exit_code=ran.exit_code)


class CodeExecutorScriptRunner:
    """Runs scripts by Python code, which a code executor runs.

    saves_output: whether the executor's output files count.
    """

    def __init__(self, executor: BaseCodeExecutor, *, saves_output: bool) -> None:
        self._executor = executor
        self._saves_output = saves_output

    async def run_script(
        self, *, command: list[str], files: Mapping[str, bytes], timeout_seconds: float, tool_context: ToolContext
    ) -> ScriptResult:
        input_files = [File(name=path, content=content) for path, content in files.items()]

        code = CodeExecutionInput(code=_RUN_COMMAND.format(command=command), input_files=input_files)
        async with asyncio.timeout(timeout_seconds):
            # In a thread, because the method of an executor may be a plain function that blocks.
            execution: Any = await asyncio.to_thread(
                self._executor.execute_code,
                tool_context.invocation_context,
                code,
            )
            result: CodeExecutionResult
            if inspect.isawaitable(execution):
                result = await execution
            else:
                result = execution

        if result.exit_code == TIMED_OUT:
            raise TimeoutError

        if self._saves_output:
            output = {file.name: file.content for file in result.output_files}
        else:
            output = {}

        return ScriptResult(
            stdout=result.stdout,
            stderr=result.stderr,
            exit_code=result.exit_code or int(result.has_failed),
            made=output,
        )


class SandboxScriptRunner:
    """Runs each script in a sandbox of its own.

    sandbox: made anew for each script, with the same settings; None for `default_sandbox()`.
    saves_output: whether the files that a script writes are artifacts.
    """

    def __init__(self, sandbox: Sandbox | None = None, *, saves_output: bool) -> None:
        self._template = sandbox
        self._saves_output = saves_output

    async def run_script(
        self, *, command: list[str], files: Mapping[str, bytes], timeout_seconds: float, tool_context: ToolContext
    ) -> ScriptResult:
        """Raises ToolError when there is no sandbox, or one without a shell for a shell script."""
        if self._template is None:
            self._template = await default_sandbox()

        sandbox = self._template.new()
        try:
            await sandbox.initialize()
            await sandbox.write_files([File(name=path, content=content) for path, content in files.items()])
            if sandbox.has_shell:
                ran = await sandbox.execute(shlex.join(command), timeout=timeout_seconds)
            elif command[0] == "python3":
                ran = await sandbox.run_python(_RUN_SCRIPT.format(command=command[1:]), timeout=timeout_seconds)
            else:
                raise ToolError(f"{type(sandbox).__name__} has no shell: it can run scripts in Python only")

            if ran.timed_out:
                raise TimeoutError

            made = (await sandbox.changed_files())[0] if self._saves_output else []
        finally:
            await sandbox.close()

        return ScriptResult(
            stdout=ran.stdout,
            stderr=ran.stderr,
            exit_code=ran.exit_code,
            made={file.name: file.content for file in made},
        )


_RUN_SCRIPT = """\
import runpy, sys
sys.argv = {command!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


_RUN_COMMAND = """\
import subprocess, sys
command = {command!r}
if command[0] == "python3":
    command[0] = sys.executable
sys.exit(subprocess.run(command).returncode)
"""


class UnsupportedScript(ValueError):
    pass


Word: TypeAlias = str | int | float | bool


def script_command(
    path: str,
    args: JsonObject | list[Word] | None = None,
    short_options: JsonObject | None = None,
    positional_args: list[Word] | None = None,
) -> list[str]:
    """A script's command line: options, then positions.

    args: long options, in which true is an option without a value and a list a repeated option, or
    the words themselves. Raises UnsupportedScript, and ValueError for an option of another type.
    """
    interpreter = _INTERPRETERS.get(PurePosixPath(path).suffix.lower())
    if interpreter is None:
        raise UnsupportedScript(path)

    if isinstance(args, list):
        arguments = _words(args)
    else:
        arguments = _options(args, "--")

    return [
        interpreter,
        path,
        *arguments,
        *_options(short_options, "-"),
        *_words(positional_args or []),
    ]


def _options(options: JsonObject | None, dashes: str) -> list[str]:
    words: list[str] = []
    for name, value in (options or {}).items():
        option = dashes + name.lstrip("-")
        for item in cast("list[JsonValue]", value) if isinstance(value, list) else [value]:
            if isinstance(item, (dict, list)):
                raise ValueError(f"the value of {option} must be a text, a number or a truth value")
            if item is True:
                words.append(option)
            elif item is not None and item is not False:
                words += [option, *_words([item])]

    return words


def _words(values: Sequence[Word]) -> list[str]:
    return [str(value).lower() if isinstance(value, bool) else str(value) for value in values]


async def run_script(
    runner: ScriptRunner, skill: Skill, command: list[str], tool_context: ToolContext, *, timeout_seconds: float
) -> JsonObject:
    """Runs the command; returns output and artifacts for the model. Raises the runner's exceptions."""
    files = await asyncio.to_thread(skill.files)
    async with asyncio.timeout(timeout_seconds + 5):
        result = await runner.run_script(
            command=command, files=files, timeout_seconds=timeout_seconds, tool_context=tool_context
        )

    if result.exit_code:
        status = "error"
    elif result.stderr:
        status = "warning"
    else:
        status = "success"

    response: JsonObject = {
        "stdout": shortened(result.stdout, MAX_OUTPUT_CHARACTERS),
        "stderr": shortened(result.stderr, MAX_OUTPUT_CHARACTERS),
        "status": status,
    }
    saved, skipped = await _save(result.made, tool_context)
    if saved:
        response["saved_artifacts"] = saved

    if skipped:
        response["skipped_artifacts"] = skipped

    return response


async def _save(
    outputs: Mapping[str, bytes],
    tool_context: ToolContext,
) -> tuple[list[str], list[JsonObject]]:
    saved: list[str] = []
    skipped: list[JsonObject] = []
    left = MAX_SAVED_BYTES_IN_ALL
    for path, content in sorted(outputs.items()):
        name = PurePosixPath(path).name
        reason = None
        if not belongs_to_session(name):
            reason = "the name is one of artifacts of all the user's sessions"
        elif len(content) > MAX_SAVED_BYTES:
            reason = f"larger than {MAX_SAVED_BYTES} bytes"
        elif len(content) > left:
            reason = f"more than {MAX_SAVED_BYTES_IN_ALL} bytes in all"
        elif len(saved) == MAX_SAVED_FILES:
            reason = f"more than {MAX_SAVED_FILES} files"
        else:
            media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
            try:
                await tool_context.save_artifact(
                    name,
                    Part.from_bytes(data=content, mime_type=media_type),
                )
            except AgentConfigError as error:
                reason = error.detail

        if reason is not None:
            skipped.append({"name": name, "reason": reason})
        else:
            saved.append(name)
            left -= len(content)

    return saved, skipped
