"""Tools that end a loop, or whose answer is the user's: a choice, or input of any form."""

from __future__ import annotations

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import LoopAgent
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.builtin.run_control import exit_loop, get_user_choice, request_input
from tests.agents.talk import Talk, answer, call, lines_of, shown


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


async def test_a_choice_is_left_open_for_the_client_and_its_answer_goes_to_the_model() -> None:
    model = ScriptedModel([call("get_user_choice", "c-1", options=["tea", "coffee"]), "Tea it is."])
    talk = Talk(LlmAgent(name="a", model=model, tools=[get_user_choice]))
    (event,) = await talk.say("something hot")
    assert lines_of([event]) == ["a: get_user_choice(options=['tea', 'coffee'])"]
    assert event.long_running_tool_ids == ["c-1"]
    assert event.is_final_response()
    assert len(model.requests) == 1
    assert lines_of(await talk.say(answer("get_user_choice", "c-1", {"result": "tea"}))) == ["a: Tea it is."]
    assert shown(model.requests[-1])[-1] == "user: get_user_choice -> {'result': 'tea'}"
    (declaration,) = model.requests[0].function_declarations()
    assert declaration.json_schema()["properties"]["options"]["items"] == {"type": "string"}
    assert declaration.json_schema()["required"] == ["options"]


async def test_input_is_left_open_for_the_client_under_the_name_that_clients_know() -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}}
    model = ScriptedModel([call("adk_request_input", "c-1", message="How old?", response_schema=schema)])
    talk = Talk(LlmAgent(name="a", model=model, tools=[request_input]))
    (event,) = await talk.say("book a seat")
    assert event.long_running_tool_ids == ["c-1"]
    assert event.is_final_response()
    (declaration,) = model.requests[0].function_declarations()
    assert declaration.name == "adk_request_input"
    parameters = declaration.json_schema()
    assert parameters["required"] == ["message"]
    assert set(parameters["properties"]) == {"message", "response_schema"}


async def test_the_model_sees_the_input_that_the_user_gave() -> None:
    model = ScriptedModel([call("adk_request_input", "c-1", message="How old?"), "Booked."])
    talk = Talk(LlmAgent(name="a", model=model, tools=[request_input]))
    await talk.say("book a seat")
    assert lines_of(await talk.say(answer("adk_request_input", "c-1", {"age": 7}))) == ["a: Booked."]
    assert shown(model.requests[-1])[-1] == "user: adk_request_input -> {'age': 7}"
