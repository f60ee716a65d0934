"""Code that the model's own service runs."""

from __future__ import annotations

from greenroom.code_executors.executor import BaseCodeExecutor, CodeExecutionInput, CodeExecutionResult
from greenroom.errors import AgentConfigError
from greenroom.invocation.context import InvocationContext
from greenroom.models.gemini_names import UNCHECKED, gemini_version
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.tool_declaration import Tool


class BuiltInCodeExecutor(BaseCodeExecutor):
    """Only marks requests; Gemini runs the code and sends it along with its result."""

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
