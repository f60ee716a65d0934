"""Lets the model reflect on a malformed reply and try again, instead of ending the run."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.errors import RunFailed
from greenroom.invocation.user_context import CallbackContext, ToolContext
from greenroom.plugins.plugin import REFLECT_AND_RETRY_RESPONSE_TYPE
from greenroom.plugins.reflect_retry_tool import ReflectAndRetryPlugin, TrackingScope
from greenroom.records.answer_metadata import FinishReason
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.model_exchange import LlmResponse
from greenroom.tools.tool import BaseTool

RESERVED_TOOL = "adk_handle_model_error"

_RESERVED_CALL = "RESERVED_TOOL_CALL"
_NO_SIGNATURE = b"skip_thought_signature_validator"
"""Accepted by Gemini 3 in place of the signature of a call that it has not made. Source: the Gemini
API.
"""


class ReflectAndRetryModelPlugin(ReflectAndRetryPlugin):
    """Replaces a reply that ended with one of on_model_errors by a call of a reserved tool, whose
    result gives the model what went wrong; up to max_retries consecutive times per agent.

    throw_exception_if_retry_exceeded: a further failure fails the run; otherwise that reply counts
    as it is. Source: ADK's ReflectAndRetryModelPlugin.
    """

    def __init__(
        self,
        name: str = "reflect_retry_model_plugin",
        max_retries: int = 3,
        throw_exception_if_retry_exceeded: bool = True,
        tracking_scope: TrackingScope = TrackingScope.INVOCATION,
        on_model_errors: Sequence[str] | None = None,
    ) -> None:
        super().__init__(name, max_retries, throw_exception_if_retry_exceeded, tracking_scope)
        self.on_model_errors = on_model_errors or [FinishReason.MALFORMED_FUNCTION_CALL]

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        if llm_response.partial:
            return None

        parts = (llm_response.content.parts if llm_response.content is not None else None) or []
        code = llm_response.error_code or llm_response.finish_reason
        details = llm_response.error_message
        if any(part.function_call is not None and part.function_call.name == RESERVED_TOOL for part in parts):
            code = _RESERVED_CALL
            details = f"{RESERVED_TOOL} is not a tool of yours."
        elif llm_response.finish_reason not in self.on_model_errors or (parts and not llm_response.error_code):
            self.reset_failures(callback_context.agent_name, callback_context)
            return None

        attempt = self.count_failure(callback_context.agent_name, callback_context)
        if attempt <= self.max_retries:
            args: JsonObject = {
                "response_type": REFLECT_AND_RETRY_RESPONSE_TYPE,
                "error_type": code,
                "error_details": details,
                "finish_reason": llm_response.finish_reason,
                "retry_count": attempt,
            }
            call = Part(
                function_call=FunctionCall(name=RESERVED_TOOL, args=args),
                thought_signature=_NO_SIGNATURE,
            )
            return LlmResponse(content=Content(role="model", parts=[call]))

        if self.throw_exception_if_retry_exceeded:
            raise RunFailed(f"The model failed {attempt} times in a row, the last time with {code}")
        if code == _RESERVED_CALL:
            return LlmResponse(error_code=code, error_message=details)

        return None

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext
    ) -> JsonObject | None:
        """Answers calls of the reserved tool, which is not declared to the model."""
        if tool.name == RESERVED_TOOL:
            return {"reflection_guidance": self._guidance(tool_args)}
        return None

    def _guidance(self, args: JsonObject) -> str:
        if args.get("error_details"):
            details = f": {args['error_details']}"
        else:
            details = ""

        return (
            f"Your last reply could not be used; it ended with {args.get('error_type')}{details}\n"
            f"This was failure {args.get('retry_count')} of at most {self.max_retries} after which you may try again.\n"
            "Check that\n"
            "- you call only tools that are declared, by their exact names;\n"
            "- the arguments are one JSON object that fits the tool's schema, without code or comments;\n"
            "- the reply is complete.\n"
            "Then reply again to what came before. Do not mention this message."
        )
