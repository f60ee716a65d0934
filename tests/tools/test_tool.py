"""The base class of tools."""

from __future__ import annotations

import inspect
from typing import Any, cast

import pytest

from greenroom.errors import ToolError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject
from greenroom.records.model_exchange import LlmRequest
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset
from tests.tools.one_call import call_once, calls_in_a_run


class TermsOfService(BaseTool):
    """Edits requests and declares nothing."""

    def __init__(self) -> None:
        super().__init__(name="terms", description="Adds the terms of service.")

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        llm_request.append_instructions(["Mention the terms of service."])


@pytest.mark.parametrize("base", [BaseTool, BaseToolset])
def test_what_tools_are_made_of_is_given_by_name(base: type[object]) -> None:
    """7.18."""
    kinds = {one.kind for one in inspect.signature(base).parameters.values()}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}


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


async def test_a_subclass_of_a_function_tool_decides_which_calls_need_approval() -> None:
    """Row 12.7."""

    def pay(amount: int) -> str:
        return f"paid {amount}"

    class Cautious(FunctionTool):
        async def check_require_confirmation(self, args: JsonObject, tool_context: ToolContext) -> bool:
            return args["amount"] > 100

    calls = await calls_in_a_run(Cautious(pay), ("pay", {"amount": "5"}), ("pay", {"amount": 500}))
    assert calls.responses[0] == {"result": "paid 5"}
    assert "needs approval" in calls.responses[1]["error"]


async def test_the_predicate_of_a_function_tool_can_be_asked(tool_context: ToolContext) -> None:
    tool = FunctionTool(lambda amount: amount, require_confirmation=lambda amount: amount > 100)
    assert await tool.check_require_confirmation({"amount": 101}, tool_context)
    assert not await tool.check_require_confirmation({"amount": 1}, tool_context)
    assert not await TermsOfService().check_require_confirmation({}, tool_context)


async def test_a_tool_is_made_from_a_configuration() -> None:
    class Greeter(BaseTool):
        def __init__(self, greeting: str = "Hi") -> None:
            super().__init__(name="greet", description=greeting)

    assert Greeter.from_config({"greeting": "Hello"}, "agent.yaml").description == "Hello"


async def test_a_response_carries_the_scheduling_of_its_tool() -> None:
    tool = FunctionTool(lambda: 1, name="count")
    tool.response_scheduling = "SILENT"
    (event,) = [event for event in (await call_once(tool, "count")).events if event.get_function_responses()]
    assert event.get_function_responses()[0].scheduling == "SILENT"
