"""Code in sandboxes that Vertex AI's Agent Engine hosts.

Source: `google_cloud.sandboxes`. Names, the key of the session's state and the time to live: ADK.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from greenroom.code_executors.executor import (
    CODE_BLOCKS,
    RESULT_BLOCK,
    TIMED_OUT,
    BaseCodeExecutor,
    CodeExecutionInput,
    CodeExecutionResult,
    Delimiters,
    result_of,
)
from greenroom.code_executors.remote import OutputFiles, check_input_names, session_digest
from greenroom.environments.process import ExecutionResult, cut
from greenroom.errors import AgentConfigError, NotFound, StorageError
from greenroom.google_cloud.sandboxes import (
    CODE,
    RUNNING,
    AgentEngineSandboxes,
    Chunk,
    engine_of,
    file_chunk,
    is_engine_name,
)
from greenroom.google_cloud.vertex import VertexClient, tool_errors
from greenroom.invocation.context import InvocationContext
from greenroom.records import wire
from greenroom.records.base import JsonObject, as_object

STATE_KEY = "sandbox_name"
"""Of the session's state: the resource name of its sandbox."""

_YEAR_SECONDS = 31_536_000
_OPERATION = "Running code in a sandbox of Agent Engine"


class AgentEngineSandboxCodeExecutor(BaseCodeExecutor):
    """Runs Python in a sandbox of Agent Engine, without a network. Each session has a sandbox of its own, which keeps
    variables and files.

    sandbox_resource_name: of one sandbox for all sessions, which then share variables and files:
        `projects/…/locations/…/reasoningEngines/…/sandboxEnvironments/…`.
    agent_engine_resource_name: of the engine that gets the sandboxes: `projects/…/locations/…/reasoningEngines/…`.
        Without either: the one named by GOOGLE_CLOUD_AGENT_ENGINE_ID, else the project's engine called
        greenroom-sandboxes, which is created if it is missing.
    stateful: False: each piece of code has a new sandbox, which is deleted afterwards.
    sandbox_ttl_seconds: sandboxes are deleted after that time. Google drops the variables of one that was not used for
        14 days.
    timeout_seconds: the session's sandbox is deleted with the code that took longer.
    project, location, credentials, base_url: see `VertexClient`.

    A session's sandbox is found again by its name in the session's state. It is used only if this executor made it for
    this session, since clients can write the state.
    """

    def __init__(
        self,
        sandbox_resource_name: str | None = None,
        agent_engine_resource_name: str | None = None,
        *,
        stateful: bool = True,
        sandbox_ttl_seconds: int = _YEAR_SECONDS,
        timeout_seconds: float | None = 300.0,
        error_retry_attempts: int = 2,
        optimize_data_file: bool = False,
        code_block_delimiters: Sequence[Delimiters] = CODE_BLOCKS,
        execution_result_delimiters: Delimiters = RESULT_BLOCK,
        project: str | None = None,
        location: str | None = None,
        credentials: Any = None,
        base_url: str | None = None,
    ) -> None:
        super().__init__(
            code_block_delimiters=code_block_delimiters,
            execution_result_delimiters=execution_result_delimiters,
            error_retry_attempts=error_retry_attempts,
            stateful=stateful,
            optimize_data_file=optimize_data_file,
            timeout_seconds=timeout_seconds,
        )
        if sandbox_resource_name is not None and engine_of(sandbox_resource_name) is None:
            raise AgentConfigError(f"{sandbox_resource_name!r} is not the resource name of a sandbox")
        if agent_engine_resource_name is not None and not is_engine_name(agent_engine_resource_name):
            raise AgentConfigError(f"{agent_engine_resource_name!r} is not the resource name of an agent engine")
        if sandbox_resource_name is not None and not stateful:
            raise AgentConfigError("A sandbox keeps variables and files: sandbox_resource_name needs stateful=True")

        self._sandbox = sandbox_resource_name
        self._engine = agent_engine_resource_name
        self._ttl_seconds = sandbox_ttl_seconds
        client = VertexClient(project, location, credentials=credentials, base_url=base_url)
        self._sandboxes = AgentEngineSandboxes(client)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        check_input_names(code_execution_input)

        with tool_errors(_OPERATION):
            if self._sandbox is not None:
                result = await self._run(self._sandbox, code_execution_input)
                return result or self._timed_out("; it may still be running in the sandbox.")

            if code_execution_input.execution_id is None:
                return await self._run_alone(code_execution_input)

            return await self._run_in_session(
                invocation_context, code_execution_input, code_execution_input.execution_id
            )

    async def close(self) -> None:
        await self._sandboxes.close()

    async def _run_alone(self, code_input: CodeExecutionInput) -> CodeExecutionResult:
        sandbox = await self._create("single-use")
        try:
            result = await self._run(sandbox, code_input)
        finally:
            await self._sandboxes.discard(sandbox)
        return result or self._timed_out(".")

    async def _run_in_session(
        self, ctx: InvocationContext, code_input: CodeExecutionInput, execution_id: str
    ) -> CodeExecutionResult:
        owner = session_digest(ctx, execution_id)
        lock = self._locks.setdefault(owner, asyncio.Lock())
        async with lock:
            known = await self._usable(ctx.session.state.get(STATE_KEY), owner)
            sandbox = known or await self._create(owner)
            ctx.session.state[STATE_KEY] = sandbox  # for parallel branches; the result has it for the store

        try:
            result = await self._run(sandbox, code_input)
        except asyncio.CancelledError:  # the code would go on, and the next one wait for it
            await self._sandboxes.discard(sandbox)
            raise
        except BaseException:
            if known is None:  # nobody would know it
                await self._sandboxes.discard(sandbox)
            raise

        if result is None:
            await self._sandboxes.discard(sandbox)
            return self._timed_out(", and its sandbox deleted, with all variables and files.")
        return dataclasses.replace(result, state_delta={STATE_KEY: sandbox})

    async def _usable(self, remembered: object, owner: str) -> str | None:
        """The sandbox that the session's state names, if it is the owner's and runs.

        Only its id is taken from the state: clients can write that.
        """
        sandbox_id = str(remembered).rpartition("/")[2]
        if not (sandbox_id.isascii() and sandbox_id.isdecimal()):
            return None
        sandbox = f"{await self._engine_name()}/sandboxEnvironments/{sandbox_id}"
        try:
            found = await self._sandboxes.get(sandbox)
        except NotFound:
            return None
        is_owned = found.get("displayName") == _display_name(owner)
        return sandbox if is_owned and found.get("state") == RUNNING else None

    async def _create(self, owner: str) -> str:
        return await self._sandboxes.create(
            await self._engine_name(), display_name=_display_name(owner), spec=CODE, ttl_seconds=self._ttl_seconds
        )

    async def _engine_name(self) -> str:
        return self._engine or await self._sandboxes.default_engine()

    async def _run(self, sandbox: str, code_input: CodeExecutionInput) -> CodeExecutionResult | None:
        """None: it took too long."""
        code = Chunk(mime_type="application/json", data=wire.encode({"code": code_input.code}))
        files = [file_chunk(file.name, file.content, file.mime_type) for file in code_input.input_files]
        try:
            async with asyncio.timeout(self.timeout_seconds):
                outputs = await self._sandboxes.execute(sandbox, [code, *files])
        except TimeoutError:
            return None
        return _result(outputs, code_input)

    def _timed_out(self, what_follows: str) -> CodeExecutionResult:
        complaint = f"The code was stopped after {self.timeout_seconds:g} s{what_follows}"
        return CodeExecutionResult(stderr=complaint, exit_code=TIMED_OUT)


def _display_name(owner: str) -> str:
    return f"greenroom-{owner}"


def _result(outputs: Sequence[Chunk], code_input: CodeExecutionInput) -> CodeExecutionResult:
    """One chunk of JSON has the printed output and the exit code; the others are files."""
    printed: JsonObject = {}
    files = OutputFiles(code_input.input_files)
    for chunk in outputs:
        name = chunk.file_name
        if name is not None:
            files.add(name, chunk.data, chunk.mime_type)
        elif chunk.mime_type == "application/json":
            printed = as_object(_parsed(chunk.data))

    complaint = cut(printed.get("msg_err") or "")
    ran = ExecutionResult(
        exit_code=printed.get("exit_status_int", int(bool(complaint))),
        stdout=cut(printed.get("msg_out") or ""),
        stderr=complaint,
    )
    return result_of(ran, timeout_seconds=None, output_files=files.kept, left_out=files.left_out)


def _parsed(data: bytes) -> object:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise StorageError("A request to Vertex AI", f"the output of the code can't be read: {error}") from error
