"""Code that runs in a sandbox, from which it can't reach the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from greenroom.artifacts.service import belongs_to_session
from greenroom.code_executors.executor import (
    CODE_BLOCKS,
    RESULT_BLOCK,
    BaseCodeExecutor,
    CodeExecutionInput,
    CodeExecutionResult,
    Delimiters,
    result_of,
)
from greenroom.environments.files import MAX_BYTES_IN_ALL, MAX_FILE_BYTES, MAX_FILES, File, is_safe_name
from greenroom.environments.sandbox import Sandbox
from greenroom.environments.sandbox_pool import IDLE_SECONDS, MAX_KEPT, KeptSandbox, SandboxPool
from greenroom.errors import SandboxLost, ToolError
from greenroom.invocation.context import InvocationContext
from greenroom.records.content import Part

_VARIABLES_GONE = "(This is a new sandbox. Variables and imports of earlier code are gone; saved files are there.)\n"


class SandboxCodeExecutor(BaseCodeExecutor):
    """Runs Python in sandboxes: each piece of code in a new one or, if it is stateful, all code of a
    session in one that is kept.

    Output files are those that the code created or changed: at most 50, of at most 5 MiB each and 16 MiB in all; the
    rest is named in the output. Its output to stderr counts only if it fails.

    sandbox: a sandbox with the settings to use, of which new ones are made; None: the default of this machine. It
        belongs to the caller, and isn't used itself.
    stateful: code of one session shares variables and files. A kept sandbox begins with the files that are the
        session's artifacts. When it has ended, the next code gets a new one, and its output says so.
    max_kept: sandboxes; then the one that was not used for the longest time is closed.
    idle_seconds: after which a kept sandbox is closed.
    """

    def __init__(
        self,
        sandbox: Sandbox | None = None,
        *,
        stateful: bool = False,
        timeout_seconds: float = 300.0,
        error_retry_attempts: int = 2,
        optimize_data_file: bool = False,
        code_block_delimiters: Sequence[Delimiters] = CODE_BLOCKS,
        execution_result_delimiters: Delimiters = RESULT_BLOCK,
        max_kept: int = MAX_KEPT,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        super().__init__(
            code_block_delimiters=code_block_delimiters,
            execution_result_delimiters=execution_result_delimiters,
            error_retry_attempts=error_retry_attempts,
            stateful=stateful,
            optimize_data_file=optimize_data_file,
            timeout_seconds=timeout_seconds,
        )
        self._pool = SandboxPool(sandbox, max_kept=max_kept, idle_seconds=idle_seconds)

    async def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        execution_id = code_execution_input.execution_id
        if execution_id is None:
            return await self._run_alone(await self._pool.new(), code_execution_input)

        key = (invocation_context.app_name, invocation_context.user_id, execution_id)
        async with self._pool.use(key) as kept:
            try:
                note = await _prepare(kept, invocation_context, code_execution_input.input_files)
                return await self._run(kept.sandbox, code_execution_input.code, keeps_variables=True, note=note)
            except SandboxLost as error:
                return _lost(error)

    async def close(self) -> None:
        await self._pool.close()

    async def _run_alone(self, sandbox: Sandbox, code_input: CodeExecutionInput) -> CodeExecutionResult:
        try:
            await _write(sandbox, code_input.input_files)
            return await self._run(sandbox, code_input.code, keeps_variables=False)
        except SandboxLost as error:
            return _lost(error)
        finally:
            await sandbox.close()

    async def _run(self, sandbox: Sandbox, code: str, *, keeps_variables: bool, note: str = "") -> CodeExecutionResult:
        ran = await sandbox.run_python(code, timeout=self.timeout_seconds, keeps_variables=keeps_variables)

        files: list[File] = []
        left_out: list[str] = []
        if sandbox.is_running:  # the code may have ended it
            files, left_out = await sandbox.changed_files()

        ran = replace(ran, stdout=note + ran.stdout)
        return result_of(ran, timeout_seconds=self.timeout_seconds, output_files=files, left_out=left_out)


def _lost(error: SandboxLost) -> CodeExecutionResult:
    """A failure for the model, which can write the code again."""
    return CodeExecutionResult(stderr=f"The code was not run to its end: {error}", exit_code=1)


async def _prepare(kept: KeptSandbox, ctx: InvocationContext, input_files: Sequence[File]) -> str:
    """Writes the files that the sandbox has not got. Returns a note for the code's output."""
    note = ""
    artifacts: list[File] = []
    if not kept.is_prepared:
        artifacts = await _artifacts(ctx)
        if _has_run_code(ctx):
            note = _VARIABLES_GONE

    contents = {file.name: hash(file.content) for file in input_files}
    new_files = [file for file in input_files if kept.versions.get(file.name) != contents[file.name]]
    await _write(kept.sandbox, [*new_files, *artifacts])
    kept.versions.update(contents)
    kept.is_prepared = True
    return note


async def _write(sandbox: Sandbox, files: Sequence[File]) -> None:
    try:
        await sandbox.write_files(files)
    except ValueError as error:
        raise ToolError(f"The code can't be run: {error}") from error


async def _artifacts(ctx: InvocationContext) -> list[File]:
    """Returns the session's artifacts, as many as an execution may return. They are newer than input files."""
    store = ctx.artifact_service
    if store is None:
        return []

    app_name, user_id, session_id = ctx.app_name, ctx.user_id, ctx.session.id
    files: list[File] = []
    bytes_left = MAX_BYTES_IN_ALL
    for name in await store.list_artifact_keys(app_name=app_name, user_id=user_id, session_id=session_id):
        if not belongs_to_session(name) or not is_safe_name(name):
            continue

        artifact = await store.load_artifact(app_name=app_name, user_id=user_id, session_id=session_id, filename=name)
        content = _content(artifact)
        if content is None or len(content) > min(bytes_left, MAX_FILE_BYTES):
            continue

        files.append(File(name=name, content=content))
        bytes_left -= len(content)
        if len(files) == MAX_FILES:
            break

    return files


def _content(part: Part | None) -> bytes | None:
    if part is None:
        return None
    if part.inline_data is not None:
        return part.inline_data.data
    if part.text is not None:
        return part.text.encode()
    return None


def _has_run_code(ctx: InvocationContext) -> bool:
    """True if code has run earlier in this session, here or on another server."""
    return any(
        part.code_execution_result is not None
        for event in ctx.session.events
        if event.content is not None
        for part in event.content.parts or ()
    )
