"""Logs runs: one readable line for each hook, with its ids."""

from __future__ import annotations

import logging
from typing import Any

from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext
from greenroom.plugins.plugin import ObservingPlugin, ToolResultClassifier
from greenroom.records import wire
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest, LlmResponse

_CONTENT_CHARS = 200
_ARGUMENT_CHARS = 300


class LoggingPlugin(ObservingPlugin):
    """Lines go to the logger `greenroom.plugins.logging`, at INFO; errors at ERROR.

    Contents are cut at 200 characters, arguments and results at 300. Register it first: a hook that
    returns a result keeps those of later plugins from being called.
    """

    def __init__(
        self,
        name: str = "logging_plugin",
        *,
        logger: logging.Logger | None = None,
        tool_result_classifier: ToolResultClassifier | None = None,
    ) -> None:
        super().__init__(name, tool_result_classifier)
        self._logger = logger or logging.getLogger("greenroom.plugins.logging")

    def observe(self, what: str, ctx: InvocationContext | CallbackContext, **details: Any) -> None:
        """Logs one line, at ERROR if it has an exception; leaves out details that are None, False
        or empty text.
        """
        if isinstance(details.get("error"), Exception):
            level = logging.ERROR
        else:
            level = logging.INFO

        if not self._logger.isEnabledFor(level):
            return

        shown: dict[str, object] = {}
        if what == "user_message":
            session = ctx.session
            shown = {
                "session": session.id,
                "user": ctx.user_id,
                "app": session.app_name,
                "branch": ctx.branch,
            }

        for name, value in details.items():
            shown.update(_shown(name, value))

        if isinstance(ctx, InvocationContext):
            agent = ctx.agent.name
        else:
            agent = ctx.agent_name

        texts = {name: _text(name, value) for name, value in shown.items()}
        text = "".join(f" {name}={value}" for name, value in texts.items() if value)
        self._logger.log(
            level,
            "[%s] %s agent=%s%s",
            ctx.invocation_id,
            _WORDS.get(what, what),
            agent,
            text,
        )

    async def close(self) -> None:
        self._logger.info("runner closes")


_WORDS = {
    "user_message": "user message", "invocation_start": "run starts", "invocation_resume": "run resumes",
    "invocation_end": "run ends", "invocation_error": "run failed", "agent_start": "agent starts",
    "agent_end": "agent ends", "agent_error": "agent failed", "llm_request": "model request",
    "llm_response": "model reply", "llm_error": "model failed", "tool_call": "tool starts",
    "tool_response": "tool ends", "tool_error": "tool failed",
}  # fmt: skip
_NAMES = {"args": "arguments", "function_call_id": "call"}


def _shown(name: str, value: object) -> dict[str, object]:
    if isinstance(value, Event):
        return {
            "event": value.id,
            "author": value.author,
            "partial": value.partial,
            "final": value.is_final_response(),
            "content": value.content,
            "long_running": ", ".join(value.long_running_tool_ids or ()),
            "error": value.error_code,
        }
    if isinstance(value, LlmRequest):
        return {
            "model": value.model,
            "system": value.config.system_text(),
            "tools": ", ".join(value.tools_dict),
            "contents": len(value.contents),
            "last": value.contents[-1] if value.contents else None,
        }

    if isinstance(value, LlmResponse):
        usage = value.usage_metadata
        return {
            "partial": value.partial,
            "turn_complete": value.turn_complete,
            "content": value.content,
            "error": f"{value.error_code} {value.error_message or ''}" if value.error_code else None,
            "tokens": f"{usage.prompt_token_count or 0}+{usage.candidates_token_count or 0}" if usage else None,
        }

    return {_NAMES.get(name, name): value}


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
