"""Writes what happens in runs to the log: one readable line for each point, with its ids."""

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

    Contents are cut at 200 characters, arguments and results at 300. Register it first: a plugin behind one that
    answers is not asked.
    """

    def __init__(self, name: str = "logging_plugin", *, logger: logging.Logger | None = None) -> None:
        super().__init__(name)
        self._logger = logger or logging.getLogger("greenroom.plugins.logging")

    async def on_user_message_callback(self, *, invocation_context: InvocationContext, user_message: Content) -> None:
        ctx = invocation_context
        self._line(
            "user message",
            ctx.invocation_id,
            session=ctx.session.id,
            user=ctx.user_id,
            app=ctx.app_name,
            agent=ctx.agent.name,
            branch=ctx.branch,
            content=_content(user_message),
        )

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        ctx = invocation_context
        self._line("run goes on" if ctx.was_cut_off else "run starts", ctx.invocation_id, agent=ctx.agent.name)

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
        calls = [f"{call.name}({_cut(_json(call.args or {}), _ARGUMENT_CHARS)})" for call in event.get_function_calls()]
        self._line(
            "event",
            invocation_context.invocation_id,
            event=event.id,
            author=event.author,
            partial=event.partial,
            final=event.is_final_response(),
            content=_content(event.content),
            calls=", ".join(calls),
            responses=", ".join(response.name or "" for response in event.get_function_responses()),
            long_running=", ".join(event.long_running_tool_ids or ()),
            error=event.error_code,
        )

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        self._line("run ends", invocation_context.invocation_id, agent=invocation_context.agent.name)

    async def on_run_error_callback(self, *, invocation_context: InvocationContext, error: Exception) -> None:
        self._line("run failed", invocation_context.invocation_id, error=_error(error), level=logging.ERROR)

    async def before_agent_callback(self, *, agent: RunningAgent, callback_context: CallbackContext) -> None:
        ctx = callback_context
        self._line("agent starts", ctx.invocation_id, agent=agent.name, branch=ctx.branch)

    async def after_agent_callback(self, *, agent: RunningAgent, callback_context: CallbackContext) -> None:
        self._line("agent ends", callback_context.invocation_id, agent=agent.name)

    async def on_agent_error_callback(
        self, *, agent: RunningAgent, callback_context: CallbackContext, error: Exception
    ) -> None:
        ctx = callback_context
        self._line("agent failed", ctx.invocation_id, agent=agent.name, error=_error(error), level=logging.ERROR)

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        self._line(
            "model request",
            callback_context.invocation_id,
            agent=callback_context.agent_name,
            model=llm_request.model,
            system=_cut(llm_request.config.system_text(), _CONTENT_CHARS),
            tools=", ".join(llm_request.tools_dict),
            contents=len(llm_request.contents),
            last=_content(llm_request.contents[-1] if llm_request.contents else None),
        )

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        usage = llm_response.usage_metadata
        self._line(
            "model reply",
            callback_context.invocation_id,
            agent=callback_context.agent_name,
            partial=llm_response.partial,
            turn_complete=llm_response.turn_complete,
            content=_content(llm_response.content),
            error=f"{llm_response.error_code} {llm_response.error_message or ''}" if llm_response.error_code else None,
            tokens=f"{usage.prompt_token_count or 0}+{usage.candidates_token_count or 0}" if usage else None,
        )

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> None:
        ctx = callback_context
        self._line(
            "model failed",
            ctx.invocation_id,
            agent=ctx.agent_name,
            model=llm_request.model,
            error=_error(error),
            level=logging.ERROR,
        )

    async def before_tool_callback(self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext) -> None:
        self._tool_line("tool starts", tool, tool_context, arguments=_cut(_json(tool_args), _ARGUMENT_CHARS))

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, result: Any
    ) -> None:
        self._tool_line("tool ends", tool, tool_context, result=_cut(_json(result), _ARGUMENT_CHARS))

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, error: Exception
    ) -> None:
        arguments = _cut(_json(tool_args), _ARGUMENT_CHARS)
        self._tool_line(
            "tool failed", tool, tool_context, arguments=arguments, error=_error(error), level=logging.ERROR
        )

    async def close(self) -> None:
        self._logger.info("runner closes")

    def _tool_line(self, what: str, tool: BaseTool, ctx: ToolContext, **details: Any) -> None:
        call_id = ctx.function_call_id
        self._line(what, ctx.invocation_id, tool=tool.name, call=call_id, agent=ctx.agent_name, **details)

    def _line(self, what: str, invocation_id: str, /, *, level: int = logging.INFO, **details: object) -> None:
        """Details that say nothing (None, False, empty) are left out."""
        if self._logger.isEnabledFor(level):
            text = " ".join(f"{key}={value}" for key, value in details.items() if value not in (None, False, ""))
            self._logger.log(level, "[%s] %s %s", invocation_id, what, text)


def _content(content: Content | None) -> str:
    return _cut(" | ".join(_part(part) for part in (content.parts if content else None) or ()), _CONTENT_CHARS)


def _part(part: Part) -> str:
    if part.text is not None:
        return f"(thinks) {part.text}" if part.thought else part.text
    if part.function_call is not None:
        return f"calls {part.function_call.name}"
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
    except TypeError:  # a tool may return what JSON can't hold
        return repr(value)


def _error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _cut(text: str, limit: int) -> str:
    text = text.replace("\n", "\\n").replace("\r", "\\r")
    return text if len(text) <= limit else f"{text[:limit]}…"
