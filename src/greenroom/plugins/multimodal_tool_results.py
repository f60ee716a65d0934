"""Passes media that tools return to the model as content parts instead of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec

from greenroom.errors import AgentConfigError
from greenroom.invocation.user_context import CallbackContext, ToolContext
from greenroom.plugins.plugin import BasePlugin
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, FunctionResponse, Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.tools.tool import BaseTool

RESPONSE_KEY = "contentParts"
"""Key of the parts in the stored function response."""


class MultimodalToolResultsPlugin(BasePlugin):
    """Serves tools that return a `Part` or a list of parts: text, inline files, references to files.

    The parts follow the function response as a user's content.

    retention: in the agent's next request only ("next_model_call"), or in all later ones
        ("session").

    Source: ADK's MultimodalToolResultsPlugin.
    """

    def __init__(
        self,
        name: str = "multimodal_tool_results_plugin",
        *,
        retention: Literal["next_model_call", "session"] = "next_model_call",
    ) -> None:
        super().__init__(name)
        if retention not in ("next_model_call", "session"):
            raise AgentConfigError("MultimodalToolResultsPlugin: retention is next_model_call or session")
        self._keeps = retention == "session"

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, result: Any
    ) -> JsonObject | None:
        parts = _parts_of(result)
        if parts is None:
            return None
        return {RESPONSE_KEY: [wire.to_plain(part) for part in parts]}

    async def before_model_callback(
        self,
        *,
        callback_context: CallbackContext,
        llm_request: LlmRequest,
    ) -> None:
        shown: list[Content] = []
        last = len(llm_request.contents) - 1
        for at, content in enumerate(llm_request.contents):
            parts: list[Part] = []
            media: list[Part] = []
            for part in content.parts or ():
                returned = _returned(part.function_response)
                is_shown = self._keeps or at == last
                media += returned if is_shown else []
                parts.append(_pointer_part(part, len(returned), is_shown=is_shown) if returned else part)

            shown.append(Content(role=content.role, parts=parts))
            if media:
                shown.append(Content(role="user", parts=media))

        llm_request.contents = shown


def _parts_of(result: object) -> list[Part] | None:
    if isinstance(result, Part):
        return [result]
    if isinstance(result, Sequence) and result and all(isinstance(one, Part) for one in cast("Sequence[Any]", result)):
        return list(cast("Sequence[Part]", result))
    return None


def _returned(response: FunctionResponse | None) -> list[Part]:
    plain: JsonValue
    if response is not None and response.response:
        plain = response.response.get(RESPONSE_KEY)
    else:
        plain = None

    if isinstance(plain, list):
        return [wire.from_plain(part, Part) for part in cast("list[JsonValue]", plain)]

    return []


def _pointer_part(part: Part, count: int, *, is_shown: bool) -> Part:
    assert part.function_response is not None

    if is_shown:
        position = "follows this response"
    else:
        position = "was shown right after this response"

    pointer: JsonObject = {"result": f"What the tool returned ({count} part{'s' if count > 1 else ''}) {position}."}
    response = msgspec.structs.replace(part.function_response, response=pointer)

    return msgspec.structs.replace(part, function_response=response)
