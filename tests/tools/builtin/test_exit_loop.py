"""Ending a loop."""

from __future__ import annotations

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.loop import LoopAgent
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.builtin.exit_loop import exit_loop
from tests.agents.talk import Talk, call


async def test_the_call_escalates_ends_the_turn_and_is_answered_with_null() -> None:
    model = ScriptedModel([call("exit_loop"), "never asked"])
    events = await Talk(LlmAgent(name="critic", model=model, tools=[exit_loop])).say("good enough?")
    last = events[-1]
    assert last.actions.escalate is True
    assert last.actions.skip_summarization is True
    assert [response.response for response in last.get_function_responses()] == [{"result": None}]
    assert len(model.requests) == 1
    (declaration,) = model.requests[0].function_declarations()
    assert (declaration.name, declaration.parameters_json_schema) == ("exit_loop", None)


async def test_a_loop_ends_with_the_round_in_which_it_is_called() -> None:
    model = ScriptedModel(["not yet", call("exit_loop")])
    critic = LlmAgent(name="critic", model=model, tools=[exit_loop])
    await Talk(LoopAgent(name="polish", sub_agents=[critic], max_iterations=5)).say("polish it")
    assert len(model.requests) == 2
