"""Functions that the client of a run executes."""

from __future__ import annotations

import pytest

from greenroom import FunctionTool, InMemoryRunner, LlmAgent
from greenroom.errors import InvalidRequest
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.run import RunConfig
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.testing.scripted_model import ScriptedModel

CONFIG = RunConfig(client_tools=[FunctionDeclaration(name="locate", description="Where the user is.")])


async def test_its_call_stays_open_until_the_client_answers() -> None:
    model = ScriptedModel([FunctionCall(name="locate", args={}), "In Oslo"])
    runner = InMemoryRunner(agent=LlmAgent(name="guide", model=model))
    [asked] = await runner.run_debug("Where am I?", run_config=CONFIG, quiet=True)
    [call] = asked.get_function_calls()
    assert asked.long_running_tool_ids == [call.id]
    answer = FunctionResponse(id=call.id, name="locate", response={"city": "Oslo"})
    message = Content(role="user", parts=[Part(function_response=answer)])
    [answered] = await runner.run_debug(message, run_config=CONFIG, quiet=True)
    assert answered.invocation_id == asked.invocation_id
    assert [request.tools_dict.keys() for request in model.requests] == [{"locate"}, {"locate"}]


async def test_a_tool_of_the_agent_is_not_replaced() -> None:
    async def locate() -> str:
        return "here"

    agent = LlmAgent(name="guide", model=ScriptedModel(["x"]), tools=[FunctionTool(locate)])
    with pytest.raises(InvalidRequest, match="'locate'"):
        await InMemoryRunner(agent=agent).run_debug("Where am I?", run_config=CONFIG, quiet=True)


async def test_a_declaration_needs_a_name() -> None:
    config = RunConfig(client_tools=[FunctionDeclaration(description="no name")])
    with pytest.raises(InvalidRequest, match="name"):
        await InMemoryRunner(agent=LlmAgent(name="guide", model=ScriptedModel(["x"]))).run_debug(
            "Where am I?", run_config=config, quiet=True
        )
