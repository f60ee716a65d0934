"""Lets the model reflect on a failed tool call and retry it, instead of ending the run."""

from __future__ import annotations

from enum import Enum
from typing import Any

from greenroom.errors import AgentConfigError, ToolError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ToolContext
from greenroom.plugins.plugin import REFLECT_AND_RETRY_RESPONSE_TYPE, BasePlugin
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.tools.tool import BaseTool

_ALL_RUNS = ""


class TrackingScope(Enum):
    """Whether consecutive failures are counted per run, or over all runs of the process."""

    INVOCATION = "invocation"
    GLOBAL = "global"


class ReflectAndRetryPlugin(BasePlugin):
    """Counts consecutive failures by name, per run or over all runs."""

    def __init__(
        self, name: str, max_retries: int, throw_exception_if_retry_exceeded: bool, tracking_scope: TrackingScope
    ) -> None:
        super().__init__(name)
        if max_retries < 0:
            raise AgentConfigError(f"{type(self).__name__}: max_retries must be 0 or more")
        self.max_retries = max_retries
        self.throw_exception_if_retry_exceeded = throw_exception_if_retry_exceeded
        self.scope = tracking_scope
        self._failures: dict[str, dict[str, int]] = {}

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        self._failures.pop(invocation_context.invocation_id, None)

    async def on_run_error_callback(
        self,
        *,
        invocation_context: InvocationContext,
        error: Exception,
    ) -> None:
        self._failures.pop(invocation_context.invocation_id, None)

    def count_failure(self, name: str, ctx: ToolContext) -> int:
        counts = self._counts(ctx)
        counts[name] = counts.get(name, 0) + 1
        return counts[name]

    def reset_failures(self, name: str, ctx: ToolContext) -> None:
        self._counts(ctx).pop(name, None)

    def _counts(self, ctx: ToolContext) -> dict[str, int]:
        if self.scope is TrackingScope.INVOCATION:
            scope = ctx.invocation_id
        else:
            scope = _ALL_RUNS
        return self._failures.setdefault(scope, {})


class ReflectAndRetryToolPlugin(ReflectAndRetryPlugin):
    """Answers a failed call with the error and what to check, up to max_retries consecutive times
    per tool.

    throw_exception_if_retry_exceeded: a further failure ends the run; otherwise the model is asked
    to continue without the tool. Source: ADK's ReflectAndRetryToolPlugin.
    """

    def __init__(
        self,
        name: str = "reflect_retry_tool_plugin",
        max_retries: int = 3,
        throw_exception_if_retry_exceeded: bool = True,
        tracking_scope: TrackingScope = TrackingScope.INVOCATION,
    ) -> None:
        super().__init__(name, max_retries, throw_exception_if_retry_exceeded, tracking_scope)

    async def extract_error_from_result(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, result: Any
    ) -> JsonObject | str | None:
        """Override this for tools that report errors in their results; returns the error, or None."""
        return None

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, result: Any
    ) -> JsonObject | None:
        if isinstance(result, dict) and result.get("response_type") == REFLECT_AND_RETRY_RESPONSE_TYPE:  # pyright: ignore[reportUnknownMemberType]
            return None

        fault = await self.extract_error_from_result(
            tool=tool, tool_args=tool_args, tool_context=tool_context, result=result
        )
        if fault is None:
            self.reset_failures(tool.name, tool_context)
            return None

        error = ToolError(fault if isinstance(fault, str) else wire.encode(fault).decode())
        answer = self._answer(tool, tool_args, tool_context, error)
        if answer is None:
            raise error

        return answer

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, error: Exception
    ) -> JsonObject | None:
        return self._answer(tool, tool_args, tool_context, error)

    def _answer(
        self,
        tool: BaseTool,
        args: JsonObject,
        ctx: ToolContext,
        error: Exception,
    ) -> JsonObject | None:
        """The result for the model; None when the error should be raised."""
        attempt = self.count_failure(tool.name, ctx)
        if attempt <= self.max_retries:
            return _response(
                error,
                attempt,
                _retry_guidance(tool.name, args, error, attempt, self.max_retries),
            )
        if self.throw_exception_if_retry_exceeded:
            return None

        return _response(error, attempt, _final_guidance(tool.name, args, error, attempt))


def _response(error: Exception, retry_count: int, guidance: str) -> JsonObject:
    return {
        "response_type": REFLECT_AND_RETRY_RESPONSE_TYPE,
        "error_type": type(error).__name__,
        "error_details": str(error),
        "retry_count": retry_count,
        "reflection_guidance": guidance,
    }


def _retry_guidance(name: str, args: JsonObject, error: Exception, attempt: int, limit: int) -> str:
    return (
        f"The call of `{name}` failed with {type(error).__name__}: {error}\n"
        f"Its arguments were: {wire.encode(args).decode()}\n"
        f"This was failure {attempt} of at most {limit} after which you may try again.\n"
        "Before the next call, find out what was wrong. Check that\n"
        "- every required argument is there, with the right name and type;\n"
        "- the values exist and are spelled as earlier results spelled them;\n"
        "- what the call depends on was done before it;\n"
        f"- `{name}` is the right tool for this at all.\n"
        "Do not repeat the same call unchanged. Correct it, or take another way to the goal."
    )


def _final_guidance(name: str, args: JsonObject, error: Exception, attempt: int) -> str:
    return (
        f"The call of `{name}` failed {attempt} times in a row, the last time with {type(error).__name__}: {error}\n"
        f"Its arguments were: {wire.encode(args).decode()}\n"
        f"Do not call `{name}` again for this. Use other tools, or tell the user what could not be done."
    )
