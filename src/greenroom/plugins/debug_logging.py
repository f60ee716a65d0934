"""Writes runs to a YAML file: whole requests, replies, tool calls, events and the state."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext
from greenroom.plugins.plugin import ObservingPlugin, ToolResultClassifier
from greenroom.plugins.recordings_file import dump, to_snake
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.model_exchange import LlmRequest


class DebugLoggingPlugin(ObservingPlugin):
    """A log for development: the file contains all messages, and only its owner may read it.

    Each segment of a run is one YAML document, appended when the segment ends. Times are Unix
    seconds. HTTP options, which may contain tokens, are left out. A file that can't be written
    fails the run. Source: ADK's DebugLoggingPlugin, its file name included.
    """

    def __init__(
        self,
        *,
        name: str = "debug_logging_plugin",
        output_path: Path | str = "adk_debug.yaml",
        include_session_state: bool = True,
        include_system_instruction: bool = True,
        tool_result_classifier: ToolResultClassifier | None = None,
    ) -> None:
        super().__init__(name, tool_result_classifier)
        self.output_path = Path(output_path)
        self._has_state = include_session_state
        self._has_instruction = include_system_instruction
        self._runs: dict[str, JsonObject] = {}
        self._writing = asyncio.Lock()

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        await super().after_run_callback(invocation_context=invocation_context)
        await self._write(invocation_context)

    async def on_run_error_callback(
        self,
        *,
        invocation_context: InvocationContext,
        error: Exception,
    ) -> None:
        await super().on_run_error_callback(invocation_context=invocation_context, error=error)
        await self._write(invocation_context)

    def observe(self, what: str, ctx: InvocationContext | CallbackContext, **details: Any) -> None:
        run = self._runs.get(ctx.invocation_id)
        if run is None:
            run = _new_run(ctx)
            self._runs[ctx.invocation_id] = run

        if isinstance(ctx, InvocationContext):
            agent = ctx.agent.name
        else:
            agent = ctx.agent_name

        entry: JsonObject = {"timestamp": time.time(), "entry_type": what, "agent_name": agent}
        for name, value in details.items():
            if isinstance(value, Exception):
                entry |= {"error_type": type(value).__name__, "error_message": str(value)}
            elif name in ("args", "result"):
                entry[name] = _plain(value)
            elif value is not None:
                entry[name] = to_snake(value)

            if isinstance(value, LlmRequest):
                entry["tools"] = list(value.tools_dict)
                if not self._has_instruction:
                    entry[name].get("config", {}).pop("system_instruction", None)

        run["entries"].append(entry)

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


def _plain(value: object) -> JsonValue:
    try:
        return wire.to_plain(value)
    except TypeError:  # JSON can't represent every tool's result
        return repr(value)


def _new_run(ctx: InvocationContext | CallbackContext) -> JsonObject:
    session = ctx.session
    return {
        "invocation_id": ctx.invocation_id,
        "session_id": session.id,
        "app_name": session.app_name,
        "user_id": session.user_id,
        "start_time": time.time(),
        "entries": [],
    }
