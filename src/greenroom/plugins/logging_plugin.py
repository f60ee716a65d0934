"""Logs runs: one readable line for each hook, with its ids."""

from __future__ import annotations

import logging
from typing import Any

from greenroom.invocation.context import InvocationContext, RunningAgent
from greenroom.invocation.user_context import CallbackContext, ToolContext
from greenroom.plugins.plugin import BasePlugin
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.tools.tool import BaseTool

_CONTENT_CHARS = 200
_ARGUMENT_CHARS = 300


class LoggingPlugin(BasePlugin):
    """Lines go to the logger `greenroom.plugins.logging`, at INFO; errors at ERROR.

    Contents are cut at 200 characters, arguments and results at 300. Register it first: a hook that returns a result
    keeps those of later plugins from being called.
    """

    def __init__(self, name: str = "logging_plugin", *, logger: logging.Logger | None = None) -> None:
        super().__init__(name)
        self._logger = logger or logging.getLogger("greenroom.plugins.logging")

    async def on_user_message_callback(self, *, invocation_context: InvocationContext, user_message: Content) -> None:
        ctx = invocation_context
        ids = {"session": ctx.session.id, "user": ctx.user_id, "app": ctx.app_name}
        self._line("user message", ctx, **ids, branch=ctx.branch, content=user_message)

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        self._line("run resumes" if invocation_context.was_cut_off else "run starts", invocation_context)

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
        self._line(
            "event",
            invocation_context,
            event=event.id,
            author=event.author,
            partial=event.partial,
            final=event.is_final_response(),
            content=event.content,
            long_running=", ".join(event.long_running_tool_ids or ()),
            error=event.error_code,
        )

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        self._line("run ends", invocation_context)

    async def on_run_error_callback(self, *, invocation_context: InvocationContext, error: Exception) -> None:
        self._line("run failed", invocation_context, error=error)

    async def before_agent_callback(self, *, agent: RunningAgent, callback_context: CallbackContext) -> None:
        self._line("agent starts", callback_context, branch=callback_context.branch)

    async def after_agent_callback(self, *, agent: RunningAgent, callback_context: CallbackContext) -> None:
        self._line("agent ends", callback_context)

    async def on_agent_error_callback(
        self, *, agent: RunningAgent, callback_context: CallbackContext, error: Exception
    ) -> None:
        self._line("agent failed", callback_context, error=error)

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        self._line(
            "model request",
            callback_context,
            model=llm_request.model,
            system=llm_request.config.system_text(),
            tools=", ".join(llm_request.tools_dict),
            contents=len(llm_request.contents),
            last=llm_request.contents[-1] if llm_request.contents else None,
        )

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        usage = llm_response.usage_metadata
        self._line(
            "model reply",
            callback_context,
            partial=llm_response.partial,
            turn_complete=llm_response.turn_complete,
            content=llm_response.content,
            error=f"{llm_response.error_code} {llm_response.error_message or ''}" if llm_response.error_code else None,
            tokens=f"{usage.prompt_token_count or 0}+{usage.candidates_token_count or 0}" if usage else None,
        )

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> None:
        self._line("model failed", callback_context, model=llm_request.model, error=error)

    async def before_tool_callback(self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext) -> None:
        self._tool_line("tool starts", tool, tool_context, arguments=tool_args)

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, result: Any
    ) -> None:
        self._tool_line("tool ends", tool, tool_context, result=result)

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, error: Exception
    ) -> None:
        self._tool_line("tool failed", tool, tool_context, arguments=tool_args, error=error)

    async def close(self) -> None:
        self._logger.info("runner closes")

    def _tool_line(self, what: str, tool: BaseTool, ctx: ToolContext, **details: object) -> None:
        self._line(what, ctx, tool=tool.name, call=ctx.function_call_id, **details)

    def _line(self, what: str, ctx: InvocationContext | CallbackContext, **details: object) -> None:
        """Logs one line, at ERROR if it has an exception; leaves out details that are None, False or empty text."""
        level = logging.ERROR if isinstance(details.get("error"), Exception) else logging.INFO
        if self._logger.isEnabledFor(level):
            agent = ctx.agent.name if isinstance(ctx, InvocationContext) else ctx.agent_name
            texts = {name: _text(name, value) for name, value in details.items()}
            text = "".join(f" {name}={value}" for name, value in texts.items() if value)
            self._logger.log(level, "[%s] %s agent=%s%s", ctx.invocation_id, what, agent, text)


def _text(name: str, value: object) -> str:
    if name in ("arguments", "result"):
        return _cut(_json(value), _ARGUMENT_CHARS)
    if value is None or value is False:
        return ""
    if isinstance(value, Content):
        value = " | ".join(map(_part, value.parts or ()))
    elif isinstance(value, Exception):
        return f"{type(value).__name__}: {value}"
    return _cut(str(value), _CONTENT_CHARS)


def _part(part: Part) -> str:
    if part.text is not None:
        return f"(thinks) {part.text}" if part.thought else part.text
    if part.function_call is not None:
        return f"calls {part.function_call.name}({_cut(_json(part.function_call.args or {}), _ARGUMENT_CHARS)})"
    if part.function_response is not None:
        return f"answers {part.function_response.name}"
    if part.inline_data is not None:
        return f"{len(part.inline_data.data or b'')} bytes of {part.inline_data.mime_type}"
    if part.file_data is not None:
        return f"file {part.file_data.file_uri}"
    if part.executable_code is not None:
        return f"code {part.executable_code.code}"
    if part.code_execution_result is not None:
        return f"output {part.code_execution_result.output}"
    return "?"


def _json(value: object) -> str:
    try:
        return wire.encode(value).decode()
    except TypeError:  # JSON can't represent every tool's result
        return repr(value)


def _cut(text: str, limit: int) -> str:
    text = text.replace("\n", "\\n").replace("\r", "\\r")
    return text if len(text) <= limit else f"{text[:limit]}…"
