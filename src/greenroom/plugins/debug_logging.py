"""Writes runs to a YAML file: whole requests, replies, tool calls, events and the state."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from greenroom.invocation.context import InvocationContext, RunningAgent
from greenroom.invocation.user_context import CallbackContext, ToolContext
from greenroom.plugins.plugin import BasePlugin
from greenroom.plugins.recordings_file import dump, to_snake
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.tools.tool import BaseTool


class DebugLoggingPlugin(BasePlugin):
    """For development: the file contains all messages, and only its owner may read it.

    Each segment of a run is one YAML document, appended when the segment ends. Times are Unix seconds. HTTP options,
    which may contain tokens, are left out. A file that can't be written fails the run. Source: ADK's
    DebugLoggingPlugin, its file name included.
    """

    def __init__(
        self,
        *,
        name: str = "debug_logging_plugin",
        output_path: Path | str = "adk_debug.yaml",
        include_session_state: bool = True,
        include_system_instruction: bool = True,
    ) -> None:
        super().__init__(name)
        self.output_path = Path(output_path)
        self._has_state = include_session_state
        self._has_instruction = include_system_instruction
        self._runs: dict[str, JsonObject] = {}
        self._writing = asyncio.Lock()

    async def on_user_message_callback(self, *, invocation_context: InvocationContext, user_message: Content) -> None:
        self._note(invocation_context, "user_message", content=to_snake(user_message))

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        self._note(
            invocation_context,
            "invocation_resume" if invocation_context.was_cut_off else "invocation_start",
            branch=invocation_context.branch,
        )

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
        self._note(invocation_context, "event", event=to_snake(event))

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        self._note(invocation_context, "invocation_end")
        await self._write(invocation_context)

    async def on_run_error_callback(self, *, invocation_context: InvocationContext, error: Exception) -> None:
        self._note(invocation_context, "invocation_error", **_error(error))
        await self._write(invocation_context)

    async def before_agent_callback(self, *, agent: RunningAgent, callback_context: CallbackContext) -> None:
        self._note(callback_context, "agent_start", branch=callback_context.branch)

    async def after_agent_callback(self, *, agent: RunningAgent, callback_context: CallbackContext) -> None:
        self._note(callback_context, "agent_end")

    async def on_agent_error_callback(
        self, *, agent: RunningAgent, callback_context: CallbackContext, error: Exception
    ) -> None:
        self._note(callback_context, "agent_error", **_error(error))

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        request: JsonObject = to_snake(llm_request)
        if not self._has_instruction:
            request.get("config", {}).pop("system_instruction", None)
        self._note(callback_context, "llm_request", tools=list(llm_request.tools_dict), request=request)

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        self._note(callback_context, "llm_response", response=to_snake(llm_response))

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> None:
        self._note(callback_context, "llm_error", model=llm_request.model, **_error(error))

    async def before_tool_callback(self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext) -> None:
        self._note_tool(tool_context, "tool_call", tool, args=_plain(tool_args))

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, result: Any
    ) -> None:
        self._note_tool(tool_context, "tool_response", tool, result=_plain(result))

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, error: Exception
    ) -> None:
        self._note_tool(tool_context, "tool_error", tool, args=_plain(tool_args), **_error(error))

    def _note_tool(self, ctx: ToolContext, kind: str, tool: BaseTool, **data: JsonValue) -> None:
        self._note(ctx, kind, tool=tool.name, function_call_id=ctx.function_call_id, **data)

    def _note(self, ctx: InvocationContext | CallbackContext, kind: str, **data: JsonValue) -> None:
        run = self._runs.get(ctx.invocation_id)
        if run is None:
            session = ctx.session
            run = self._runs[ctx.invocation_id] = {
                "invocation_id": ctx.invocation_id,
                "session_id": session.id,
                "app_name": session.app_name,
                "user_id": session.user_id,
                "start_time": time.time(),
                "entries": [],
            }
        agent = ctx.agent.name if isinstance(ctx, InvocationContext) else ctx.agent_name
        known = {key: value for key, value in data.items() if value is not None}
        run["entries"].append({"timestamp": time.time(), "entry_type": kind, "agent_name": agent, **known})

    async def _write(self, ctx: InvocationContext) -> None:
        run = self._runs.pop(ctx.invocation_id, None)
        if run is None:
            return
        if self._has_state:
            run["session_state"] = wire.to_plain(ctx.session.state)
        async with self._writing:
            await asyncio.to_thread(_append, self.output_path, run)


def _append(path: Path, run: JsonObject) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as file:
        file.write("---\n" + dump(run))


def _error(error: Exception) -> JsonObject:
    return {"error_type": type(error).__name__, "error_message": str(error)}


def _plain(value: object) -> JsonValue:
    try:
        return wire.to_plain(value)
    except TypeError:  # JSON can't represent every tool's result
        return repr(value)
