"""The contract of code executors, and the executor inside models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from greenroom.environments.files import File
from greenroom.environments.process import ExecutionResult
from greenroom.errors import AgentConfigError
from greenroom.invocation.context import InvocationContext
from greenroom.models.gemini.contents import UNCHECKED, gemini_version
from greenroom.records.base import JsonValue
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.tool_declaration import Tool

Delimiters: TypeAlias = tuple[str, str]

CODE_BLOCKS: tuple[Delimiters, ...] = (("```tool_code\n", "\n```"), ("```python\n", "\n```"))
RESULT_BLOCK: Delimiters = ("```tool_output\n", "\n```")

TIMED_OUT = 124
"""Exit code of code that took too long. Source: coreutils' `timeout`."""


@dataclass(frozen=True, kw_only=True)
class CodeExecutionInput:
    """Code to run, with its files."""

    code: str
    input_files: Sequence[File] = ()
    execution_id: str | None = None
    """The same for all code that shares variables and files; None for code that shares nothing."""


@dataclass(frozen=True, kw_only=True)
class CodeExecutionResult:
    """The code failed if there is something in stderr, or an exit code other than 0; `TIMED_OUT` if
    it took too long.
    """

    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    output_files: Sequence[File] = field(default_factory=tuple)
    """Those that the code wrote or changed."""

    state_delta: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    """Changes of the session's state, stored with the result."""

    @property
    def has_failed(self) -> bool:
        return bool(self.stderr) or bool(self.exit_code)


def result_of(
    ran: ExecutionResult, *, timeout_seconds: float | None, output_files: Sequence[File], left_out: Sequence[str]
) -> CodeExecutionResult:
    """Returns the result of code from that of its process. Output to stderr counts only if the code has failed.

    left_out: names of files that are not among the output files.
    """
    stdout = ran.stdout
    if left_out:
        stdout = f"{stdout}\nNot kept, because of their number, size or name: {', '.join(left_out)}\n"

    exit_code = ran.exit_code
    stderr = ran.stderr
    if ran.timed_out:
        exit_code = TIMED_OUT
        stderr = f"{stderr}\nThe code was stopped after {timeout_seconds:g} s.".lstrip()
    elif exit_code == 0:
        stderr = ""
    elif not stderr:
        stderr = f"The code ended with exit code {exit_code}."

    return CodeExecutionResult(
        stdout=stdout,
        stderr=stderr,
        exit_code=exit_code,
        output_files=output_files,
    )


class BaseCodeExecutor(ABC):
    """Runs the code in an agent's replies, which is then sent the result and continues.

    code_block_delimiters: texts before and after code in a reply; requests show earlier code between the first pair.
    execution_result_delimiters: the same for results in requests.
    error_retry_attempts: after this many failures in a row the agent's next reply is its last, code or not.
    stateful: code of one session shares variables and files.
    optimize_data_file: CSV files in a user's message are kept as files for the code instead of as text; the model sees
        their first rows.
    timeout_seconds: for one piece of code; None for no limit.

    Source of names and defaults: ADK.
    """

    def __init__(
        self,
        *,
        code_block_delimiters: Sequence[Delimiters] = CODE_BLOCKS,
        execution_result_delimiters: Delimiters = RESULT_BLOCK,
        error_retry_attempts: int = 2,
        stateful: bool = False,
        optimize_data_file: bool = False,
        timeout_seconds: float | None = None,
    ) -> None:
        pairs = [*code_block_delimiters, execution_result_delimiters]
        if not code_block_delimiters or not all(start and end for start, end in pairs):
            raise AgentConfigError(f"{type(self).__name__}: code and results need a text before and one after them")
        if error_retry_attempts < 0:
            raise AgentConfigError(f"{type(self).__name__}: error_retry_attempts must be 0 or more")
        if timeout_seconds is not None and timeout_seconds <= 0:
            raise AgentConfigError(f"{type(self).__name__}: timeout_seconds must be more than 0")

        self.code_block_delimiters = tuple(code_block_delimiters)
        self.execution_result_delimiters = execution_result_delimiters
        self.error_retry_attempts = error_retry_attempts
        self.stateful = stateful
        self.optimize_data_file = optimize_data_file
        self.timeout_seconds = timeout_seconds

    @abstractmethod
    def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult | Awaitable[CodeExecutionResult]:
        """Runs code to its end. A plain function is called in a thread of its own.

        An error in the code is a result. Raises ToolError when code can't be run at all, which
        fails the run.
        """

    async def close(self) -> None:
        """Releases processes and connections."""


class BuiltInCodeExecutor(BaseCodeExecutor):
    """Marks requests for Gemini, which runs the code and returns it with its result."""

    def __init__(self) -> None:
        super().__init__()

    def process_llm_request(self, llm_request: LlmRequest) -> None:
        """Raises AgentConfigError for models that are no Gemini."""
        if gemini_version(llm_request.model) is None:
            raise AgentConfigError(
                f"BuiltInCodeExecutor needs a Gemini model, which {llm_request.model!r} is not. "
                f"Should it be one under another name, set {UNCHECKED}=1."
            )
        llm_request.mark(Tool(code_execution={}))

    def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        raise AgentConfigError("BuiltInCodeExecutor leaves running code to the model's service")
