"""Code run in an environment: a sandbox of E2B or Daytona, or one of your own."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from uuid import uuid4

import msgspec

from greenroom.code_executors import guest_program
from greenroom.code_executors.executor import (
    CODE_BLOCKS,
    RESULT_BLOCK,
    BaseCodeExecutor,
    CodeExecutionInput,
    CodeExecutionResult,
    Delimiters,
    result_of,
)
from greenroom.code_executors.remote import OutputFiles, check_input_names, session_digest
from greenroom.environments.environment import BaseEnvironment
from greenroom.environments.files import MAX_FILES, File, is_safe_name
from greenroom.environments.process import ExecutionResult
from greenroom.errors import SandboxLost, ToolError
from greenroom.invocation.context import InvocationContext

FOLDER = ".greenroom-code"

_SECONDS_TO_TIDY_UP = 30.0
_MAX_KEPT = 1000
_PROGRAM = "program.py"
_ANEW = "Note: the variables and files of earlier code are gone, because their sandbox has ended."

_log = logging.getLogger("greenroom.code_executors")


class EnvironmentCodeExecutor(BaseCodeExecutor):
    """Runs Python in an environment, which needs `python3`: what the code can reach is the environment's matter.

    Each piece of code has an empty folder of its own, with its input files, that is deleted afterwards. With
    `stateful`, the code of one session shares its folder and its variables: an interpreter stays in the environment and
    ends when it takes too long, its run is cancelled, or it is not used for half an hour; the next output then says so.
    Files that code writes there are its output: at most 50, of at most 5 MiB each and 16 MiB in all; the rest is named
    in the output. What can't be run, as when the service of a sandbox can't be reached, is a failure for the model.

    environment: initialized when code is first run, and closed with the executor. Sessions share it, and code can read
        the folders of others.
    """

    def __init__(
        self,
        *,
        environment: BaseEnvironment,
        stateful: bool = False,
        timeout_seconds: float = 300.0,
        error_retry_attempts: int = 2,
        optimize_data_file: bool = False,
        code_block_delimiters: Sequence[Delimiters] = CODE_BLOCKS,
        execution_result_delimiters: Delimiters = RESULT_BLOCK,
    ) -> None:
        super().__init__(
            code_block_delimiters=code_block_delimiters,
            execution_result_delimiters=execution_result_delimiters,
            error_retry_attempts=error_retry_attempts,
            stateful=stateful,
            optimize_data_file=optimize_data_file,
            timeout_seconds=timeout_seconds,
        )
        self.environment = environment
        self._seconds = timeout_seconds
        self._initializing = asyncio.Lock()
        self._folders: OrderedDict[str, _Folder] = OrderedDict()

    async def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        check_input_names(code_execution_input)
        await self._initialize()

        if code_execution_input.execution_id is None:
            folder = _Folder(f"{FOLDER}/{uuid4().hex}")
            return await self._run(folder, code_execution_input, "--once")

        digest = session_digest(invocation_context, code_execution_input.execution_id)
        folder = await self._folder(digest)
        async with folder.lock:
            return await self._run(folder, code_execution_input, "--stateful")

    async def close(self) -> None:
        if self._folders:
            self._folders.clear()
            await self._tidy_up(f"for program in {FOLDER}/*/{_PROGRAM}; do python3 $program stop; done")

        async with self._initializing:
            if self.environment.is_initialized:
                self.environment.is_initialized = False
                await self.environment.close()

    async def _initialize(self) -> None:
        async with self._initializing:
            if not self.environment.is_initialized:
                await self.environment.initialize()
                self.environment.is_initialized = True

    async def _folder(self, digest: str) -> _Folder:
        """Returns the folder of a stateful session. At most 1,000 interpreters are kept."""
        folder = self._folders.setdefault(digest, _Folder(f"{FOLDER}/{digest}"))
        self._folders.move_to_end(digest)
        if len(self._folders) > _MAX_KEPT:
            await self._tidy_up(self._folders.popitem(last=False)[1].command("stop"))
        return folder

    async def _run(self, folder: _Folder, code_input: CodeExecutionInput, mode: str) -> CodeExecutionResult:
        is_stateful = mode == "--stateful"
        end = folder.command("stop") if is_stateful else f"rm -rf {folder.path}"
        try:
            ran, changes, is_anew = await self._run_program(folder, code_input, mode)
            files, left_out = await self._read_files(folder, changes)
        except asyncio.CancelledError:
            folder.forget()
            await self._tidy_up(end)
            raise
        except Exception as error:  # an environment may raise anything; the model can take another way
            folder.forget()
            return CodeExecutionResult(stderr=f"The code could not be run: {error}", exit_code=1)

        if ran.timed_out or (changes.files and not is_stateful):
            await self._tidy_up(end)
        result = result_of(ran, timeout_seconds=self._seconds, output_files=files, left_out=left_out)
        if is_stateful and ran.timed_out:
            return replace(result, stderr=f"{result.stderr} The variables of earlier code are gone.")
        if is_anew:
            return replace(result, stdout=f"{_ANEW}\n{result.stdout}")
        return result

    async def _run_program(
        self, folder: _Folder, code_input: CodeExecutionInput, mode: str
    ) -> tuple[ExecutionResult, _Changes, bool]:
        """Returns what the code printed and wrote, and True if the folder's earlier files are gone."""
        try:
            await self._write(folder, code_input)
        except SandboxLost:  # no code has run: it can as well run in a new sandbox
            await self._write(folder, code_input)

        is_anew = False
        while True:
            options = [mode, "--continues"] if folder.was_used else [mode]
            ran = await self.environment.execute(folder.command("run", *options), timeout=self._seconds)
            changes = _parse(
                await self.environment.execute(folder.command("changes", mode), timeout=_SECONDS_TO_TIDY_UP)
            )
            if changes.ran or not folder.was_used:
                folder.was_used = True
                return ran, changes, is_anew

            # The sandbox has ended since the last code, and this is a new one.
            is_anew = True
            folder.forget()
            await self._write(folder, code_input)

    async def _write(self, folder: _Folder, code_input: CodeExecutionInput) -> None:
        contents: dict[str, str | bytes] = {
            _PROGRAM: _program(),
            guest_program.CODE: code_input.code,
        }
        new = {(file.name, file.content) for file in code_input.input_files} - folder.written
        for name, content in new:
            contents[f"{guest_program.FILES}/{name}"] = content

        writing = (self.environment.write_file(f"{folder.path}/{name}", content) for name, content in contents.items())
        await asyncio.gather(*writing)
        folder.written |= new

    async def _read_files(self, folder: _Folder, changes: _Changes) -> tuple[list[File], list[str]]:
        """Reads the files that code has written.

        What the program says about them need not be true, because code may change it.
        """
        files = OutputFiles(())
        files.left_out += changes.left_out
        for name in changes.files[:MAX_FILES]:
            if not is_safe_name(name):
                files.left_out.append(name)
                continue
            try:
                content = await self.environment.read_file(f"{folder.path}/{guest_program.FILES}/{name}")
            except (FileNotFoundError, ToolError, ValueError):
                files.left_out.append(name)
            else:
                files.add(name, content)
        return files.kept, files.left_out

    async def _tidy_up(self, command: str) -> None:
        try:
            await self.environment.execute(command, timeout=_SECONDS_TO_TIDY_UP)
        except Exception as error:  # an environment may raise anything
            _log.warning("Code's folder or interpreter could not be removed: %s", error)


@cache
def _program() -> str:
    return Path(guest_program.__file__).read_text("utf-8")


class _Folder:
    """A folder in the environment.

    was_used: code has run in it.
    written: the input files that are in it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.lock = asyncio.Lock()
        self.was_used = False
        self.written: set[tuple[str, bytes]] = set()

    def command(self, *arguments: str) -> str:
        return f"python3 {self.path}/{_PROGRAM} {' '.join(arguments)}"

    def forget(self) -> None:
        self.was_used = False
        self.written.clear()


class _Changes(msgspec.Struct):
    """The answer of the program's `changes`."""

    ran: bool
    files: list[str]
    left_out: list[str]


def _parse(answer: ExecutionResult) -> _Changes:
    """Reads the answer, which is as if nothing had been written if there is none."""
    try:
        return msgspec.json.decode(answer.stdout, type=_Changes)
    except msgspec.MsgspecError:
        return _Changes(ran=True, files=[], left_out=[])
