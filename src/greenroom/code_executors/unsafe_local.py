"""Code run on this very machine, with nothing between it and the machine."""

from __future__ import annotations

import asyncio
import mimetypes
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from greenroom.code_executors.executor import (
    CODE_BLOCKS,
    RESULT_BLOCK,
    BaseCodeExecutor,
    CodeExecutionInput,
    CodeExecutionResult,
    Delimiters,
    result_of,
)
from greenroom.environments.files import MAX_BYTES_IN_ALL, MAX_FILE_BYTES, MAX_FILES, File
from greenroom.environments.process import ExecutionResult, run_process
from greenroom.errors import ToolError
from greenroom.invocation.context import InvocationContext

_BINARY = "application/octet-stream"


class UnsafeLocalCodeExecutor(BaseCodeExecutor):
    """Runs Python as a process of greenroom's own user: it can read and delete what greenroom can,
    use the network and see the environment, keys included. For models and prompts that you would
    give a shell to.

    Each piece of code has an empty folder of its own, with its input files, that is deleted afterwards. Files that it
    writes there are its output: at most 50, of at most 5 MiB each and 16 MiB in all; the rest is named in the output.
    100,000 bytes of its printed output are kept. Its output to stderr counts only if it fails. Not on Windows.
    """

    def __init__(
        self,
        *,
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
            optimize_data_file=optimize_data_file,
            timeout_seconds=timeout_seconds,
        )

    async def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        with tempfile.TemporaryDirectory(prefix="greenroom-code-") as scratch:
            script = Path(scratch, "code.py")
            folder = Path(scratch, "files")
            await asyncio.to_thread(_write_inputs, script, folder, code_execution_input)
            ran = await self._run(script, folder)
            files, left_out = await asyncio.to_thread(
                _created_files,
                folder,
                code_execution_input.input_files,
            )
            return result_of(ran, timeout_seconds=self.timeout_seconds, output_files=files, left_out=left_out)

    async def _run(self, script: Path, folder: Path) -> ExecutionResult:
        path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))

        env = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
        try:
            return await run_process(
                sys.executable, str(script), cwd=folder, env=env, timeout_seconds=self.timeout_seconds
            )
        except OSError as error:
            raise ToolError(f"Python can't be started: {error.strerror}") from error


def _write_inputs(script: Path, folder: Path, code_input: CodeExecutionInput) -> None:
    folder.mkdir()
    script.write_text(code_input.code, encoding="utf-8")

    for file in code_input.input_files:
        path = folder / file.name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ToolError(f"The input file {file.name!r} leads out of its folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)


def _created_files(folder: Path, input_files: Sequence[File]) -> tuple[list[File], list[str]]:
    """Returns new and changed files, and the names of files that are not returned."""
    before = {folder / file.name: file.content for file in input_files}

    created: list[File] = []
    left_out: list[str] = []
    left = MAX_BYTES_IN_ALL
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.is_symlink() or "__pycache__" in path.parts:
            continue

        name = path.relative_to(folder).as_posix()

        size = path.stat().st_size
        if path in before and size == len(before[path]) and path.read_bytes() == before[path]:
            continue

        if size > min(MAX_FILE_BYTES, left) or len(created) == MAX_FILES:
            left_out.append(name)
            continue

        left -= size
        created.append(File(name=name, content=path.read_bytes(), mime_type=mimetypes.guess_type(name)[0] or _BINARY))

    return created, left_out
