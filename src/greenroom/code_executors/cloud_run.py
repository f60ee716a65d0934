"""Code in the sandboxes of Cloud Run, by the command that Cloud Run puts into the container.

Source: https://docs.cloud.google.com/run/docs/reference/sandbox-cli (`sandbox do`), and
https://docs.cloud.google.com/run/docs/code-execution. Names of the settings: ADK.
"""

from __future__ import annotations

import asyncio
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
from greenroom.code_executors.job import MAX_PRINTED_BYTES, Job
from greenroom.environments.process import ExecutionResult, cut, run_process
from greenroom.errors import ToolError
from greenroom.invocation.context import InvocationContext

_SCRATCH = "/tmp"
_START_SECONDS = 15.0


class CloudRunSandboxCodeExecutor(BaseCodeExecutor):
    """Runs each piece of code in a sandbox of its own, inside the container of Cloud Run that greenroom runs in, with
    the container's Python and packages: without its variables, credentials and metadata server. The service has to be
    deployed with `gcloud beta run deploy --sandbox-launcher`.

    sandbox_bin: the command that Cloud Run provides.
    allow_egress: the code has a network.
    timeout_seconds: for the code; None for no limit.

    The sandbox shares the CPU and the memory of the container, in which its files are, too.
    """

    def __init__(
        self,
        *,
        sandbox_bin: str = "/usr/local/gcp/bin/sandbox",
        allow_egress: bool = False,
        timeout_seconds: float | None = 300.0,
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
        egress = ["--allow-egress"] if allow_egress else []
        self._command = [sandbox_bin, "do", *egress, "--", sys.executable or "python3"]

    async def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        job = await asyncio.to_thread(Job, code_execution_input, folder=_SCRATCH, timeout_seconds=self.timeout_seconds)
        ran = await self._run(job.program)
        result = await asyncio.to_thread(job.result, ran.stdout.encode())
        if result is not None:
            return result

        # Code that ended its sandbox, or a sandbox that could not be made: only its own output says which.
        stopped = ExecutionResult(
            exit_code=ran.exit_code or 1,
            stderr=cut(f"The sandbox ended with exit code {ran.exit_code}. {ran.stderr}".strip()),
            timed_out=ran.timed_out,
        )
        return result_of(stopped, timeout_seconds=self.timeout_seconds, output_files=(), left_out=())

    async def _run(self, program: str) -> ExecutionResult:
        with tempfile.TemporaryFile() as source:
            source.write(program.encode())
            source.seek(0)
            try:
                return await run_process(
                    *self._command,
                    cwd=Path("/"),
                    env=os.environ,
                    timeout_seconds=None if self.timeout_seconds is None else self.timeout_seconds + _START_SECONDS,
                    stdin=source,
                    max_output_bytes=MAX_PRINTED_BYTES,
                )
            except OSError as error:
                raise ToolError(
                    f"Cloud Run's command {self._command[0]} can't be started ({error.strerror}): is this a service of "
                    "Cloud Run that was deployed with --sandbox-launcher?"
                ) from error
