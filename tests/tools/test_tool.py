"""The base class of tools."""

from __future__ import annotations

from typing import Any, cast

import pytest

from greenroom.errors import ToolError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject
from greenroom.records.model_exchange import LlmRequest
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.tool import BaseTool
from tests.tools.one_call import call_once, calls_in_a_run


class TermsOfService(BaseTool):
    """Edits requests and declares nothing."""

    def __init__(self) -> None:
        super().__init__(name="terms", description="Adds the terms of service.")

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        llm_request.append_instructions(["Mention the terms of service."])


async def test_a_tool_may_only_edit_requests() -> None:
    request = (await calls_in_a_run(TermsOfService())).requests[0]
    assert request.function_declarations() == []
    assert "terms of service" in request.config.system_text()


async def test_a_tool_that_only_edits_requests_can_not_be_called(tool_context: ToolContext) -> None:
    with pytest.raises(ToolError, match="'terms' can't be called"):
        await TermsOfService().run_async(args={}, tool_context=tool_context)


async def test_a_lambda_is_a_tool() -> None:
    calls = await call_once(lambda city: f"Sunny in {city}", "lambda", {"city": "Oslo"})
    assert calls.response == {"result": "Sunny in Oslo"}


def test_custom_metadata_is_read_only() -> None:
    given: JsonObject = {"team": {"name": "search", "members": ["ada"]}}
    tool = FunctionTool(lambda: 1, custom_metadata=given)
    metadata = cast("Any", tool.custom_metadata)
    with pytest.raises(TypeError):
        metadata["team"] = "other"
    with pytest.raises(TypeError):
        metadata["team"]["name"] = "other"
    with pytest.raises(AttributeError):
        metadata["team"]["members"].append("bob")
    with pytest.raises(AttributeError):
        cast("Any", tool).custom_metadata = {}
    given["team"]["name"] = "other"
    assert metadata["team"]["name"] == "search"
