"""Final answers: saved under a key of the state, and in a declared shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from greenroom.agents.llm_agent import LlmAgent
from greenroom.invocation.user_context import CallbackContext
from greenroom.records.content import Content, ModelContent, Part
from greenroom.records.model_exchange import LlmResponse
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import STREAMED, Talk, call, lines_of


class Person(BaseModel):
    name: str
    age: int


@dataclass
class Place:
    city: str
    people: list[str]


def look_up(word: str) -> str:
    return word.upper()


async def test_the_final_answer_is_saved_with_the_event_that_holds_it() -> None:
    model = ScriptedModel([[Part(text="Let me see."), call("look_up", word="x")], "It is X."])
    talk = Talk(LlmAgent(name="a", model=model, tools=[look_up], output_key="found"))
    events = await talk.say("x?", run_config=STREAMED)
    assert lines_of(events)[-4:] == ["a…: is ", "a…: X.", "a: It is X.", "a sets {'found': 'It is X.'}"]
    assert [event.actions.state_delta for event in events if event.actions.state_delta] == [{"found": "It is X."}]
    assert await talk.state() == {"found": "It is X."}


async def test_blanks_are_no_answer_of_a_declared_shape() -> None:
    model = ScriptedModel(['{"name": "Ada", "age": 7}', " \n"])
    talk = Talk(LlmAgent(name="a", model=model, output_schema=Person, output_key="who"))
    await talk.say("who?")
    await talk.say("and now?")
    assert await talk.state() == {"who": {"name": "Ada", "age": 7}}


async def test_a_later_answer_replaces_the_earlier() -> None:
    talk = Talk(LlmAgent(name="a", model=ScriptedModel(["one", "two"]), output_key="user:found"))
    await talk.say("1")
    await talk.say("2")
    assert await talk.state() == {"user:found": "two"}


async def test_thoughts_are_no_part_of_the_answer() -> None:
    reply = LlmResponse(
        content=Content(role="model", parts=[Part(text="hm", thought=True), Part(text="ye"), Part(text="s")])
    )
    only_thoughts = LlmResponse(content=Content(role="model", parts=[Part(text="hm", thought=True)]))
    talk = Talk(LlmAgent(name="a", model=ScriptedModel([reply, only_thoughts]), output_key="found"))
    await talk.say("sure?")
    await talk.say("really?")
    assert await talk.state() == {"found": "yes"}


async def test_a_callback_that_answers_in_place_of_the_agent_is_saved_in_the_same_shape() -> None:
    async def known(callback_context: CallbackContext) -> Content:
        return ModelContent('{"name": "Ada", "age": 36}')

    def bye(callback_context: CallbackContext) -> Content:
        return ModelContent("not the answer")

    talk = Talk(
        LlmAgent(
            name="a", model=ScriptedModel([]), output_schema=Person, output_key="person", before_agent_callback=known
        )
    )
    assert lines_of(await talk.say("who?"))[-1] == "a sets {'person': {'name': 'Ada', 'age': 36}}"
    assert await talk.state() == {"person": {"name": "Ada", "age": 36}}
    after = Talk(LlmAgent(name="a", model=ScriptedModel(["yes"]), output_key="said", after_agent_callback=bye))
    await after.say("sure?")
    assert await after.state() == {"said": "yes"}


async def test_what_another_agent_says_is_not_saved_under_this_agents_key() -> None:
    model = ScriptedModel({"root": [call("transfer_to_agent", agent_name="leaf")], "leaf": ["the leaf's words"]})
    leaf = LlmAgent(name="leaf")
    talk = Talk(LlmAgent(name="root", model=model, sub_agents=[leaf], output_key="root_said"))
    assert lines_of(await talk.say("leaf, please"))[-1] == "leaf: the leaf's words"
    assert await talk.state() == {}


async def test_an_agent_without_tools_asks_the_model_for_json_of_that_shape() -> None:
    model = ScriptedModel(['{"name": "Ada", "age": 36}'])
    talk = Talk(LlmAgent(name="a", model=model, output_schema=Person, output_key="person"))
    (event,) = await talk.say("who?")
    config = model.requests[0].config
    assert config.response_mime_type == "application/json"
    assert sorted(config.response_schema["properties"]) == ["age", "name"]
    assert config.tools is None
    assert event.actions.state_delta == {"person": {"name": "Ada", "age": 36}}


_ADA = '{"name": "Ada", "age": 36}'


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{_ADA}\n```",
        f"```\n{_ADA}```",
        f"Here it is:\n```json\n{_ADA}\n```\nAnything else?",
        f"<think>She is {{36}}.</think>\n{_ADA}",
        f"She is 36.</think>{_ADA}",
        f"<think>```json\n{{}}\n```</think>```json\n{_ADA}\n```",
    ],
)
async def test_fences_and_reasoning_around_an_answer_are_no_part_of_it(text: str) -> None:
    talk = Talk(LlmAgent(name="a", model=ScriptedModel([text]), output_schema=Person, output_key="person"))
    await talk.say("who?")
    assert await talk.state() == {"person": {"name": "Ada", "age": 36}}


@pytest.mark.parametrize("wrong", ["I don't know", '{"name": "Ada"}', '{"name": "Ada", "age": "old"}'])
async def test_an_answer_that_does_not_fit_is_asked_for_once_more(wrong: str) -> None:
    model = ScriptedModel([wrong, _ADA])
    talk = Talk(LlmAgent(name="a", model=model, output_schema=Person, output_key="person"))
    events = await talk.say("who?")
    assert [event.error_code for event in events] == [None, None]
    assert "Give the whole answer again" in model.requests[1].contents[-1].text()
    assert await talk.state() == {"person": {"name": "Ada", "age": 36}}


@pytest.mark.parametrize("max_steps", [None, 1])
async def test_an_answer_that_never_fits_is_an_error(max_steps: int | None) -> None:
    model = ScriptedModel(["I don't know"], loop=True)
    agent = LlmAgent(name="a", model=model, output_schema=Person, output_key="person", max_steps=max_steps)
    talk = Talk(agent)
    *_, last = await talk.say("who?")
    assert last.error_code == "OUTPUT_SCHEMA_MISMATCH"
    assert "does not fit the output schema" in (last.error_message or "")
    assert len(model.requests) == (2 if max_steps is None else 1)
    assert await talk.state() == {}


@pytest.mark.parametrize(
    ("shape", "args", "answer"),
    [
        (Person, {"name": "Ada", "age": "36"}, {"name": "Ada", "age": 36}),
        (Place, {"city": "Oslo", "people": ["Ada"]}, {"city": "Oslo", "people": ["Ada"]}),
        (list[Person], {"value": [{"name": "Ada", "age": 36}]}, [{"name": "Ada", "age": 36}]),
        (list[str], {"value": ["a", "b"]}, ["a", "b"]),
        (dict[str, int], {"a": 1}, {"a": 1}),
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, {"n": 1}, {"n": 1}),
    ],
)
async def test_an_agent_with_tools_takes_the_answer_through_a_tool(
    shape: Any, args: dict[str, Any], answer: Any
) -> None:
    model = ScriptedModel([call("look_up", word="x"), call("set_model_response", "c-2", **args)])
    talk = Talk(LlmAgent(name="a", model=model, tools=[look_up], output_schema=shape, output_key="found"))
    events = await talk.say("who?")
    response = answer if isinstance(answer, dict) else {"result": answer}
    assert lines_of(events)[3] == f"a: set_model_response -> {response}"
    last = events[-1]
    assert last.is_final_response()
    assert last.content is not None
    assert last.content.role == "model"
    assert last.actions.state_delta == {"found": answer}
    assert (await talk.state())["found"] == answer
    config = model.requests[0].config
    assert config.response_schema is None
    other, asked_for = model.requests[0].function_declarations()
    assert (other.name, asked_for.name) == ("look_up", "set_model_response")
    schema = asked_for.json_schema()
    assert (schema["type"], set(args) <= set(schema.get("properties", args))) == ("object", True)
    assert schema.get("required", []) in ([], list(args))
    assert "set_model_response" in config.system_text()


async def test_an_answer_beside_other_calls_counts() -> None:
    calls = [call("look_up", "c-1", word="x"), call("set_model_response", "c-2", name="Ada", age=36)]
    talk = Talk(LlmAgent(name="a", model=ScriptedModel([calls]), tools=[look_up], output_schema=Person))
    assert lines_of(await talk.say("who?"))[-1] == 'a: {"name":"Ada","age":36}'


async def test_an_answer_of_the_wrong_shape_is_reported_to_the_model_which_corrects_it() -> None:
    model = ScriptedModel(
        [
            call("set_model_response", name="Ada", age="old"),
            call("set_model_response", name="Ada"),
            call("set_model_response", name="Ada", age=36),
        ]
    )
    talk = Talk(LlmAgent(name="a", model=model, tools=[look_up], output_schema=Person, output_key="person"))
    lines = lines_of(await talk.say("who?"))
    assert [line.split(" -> ")[0] for line in lines] == [
        "a: set_model_response(name='Ada', age='old')",
        "a: set_model_response",
        "a: set_model_response(name='Ada')",
        "a: set_model_response",
        "a: set_model_response(name='Ada', age=36)",
        "a: set_model_response",
        'a: {"name":"Ada","age":36}',
        "a sets {'person': {'name': 'Ada', 'age': 36}}",
    ]
    assert "does not have the form" in lines[1]
    assert "age" in lines[1]
    assert "age" in lines[3]


async def test_an_agent_that_can_hand_over_takes_the_answer_through_a_tool_too() -> None:
    model = ScriptedModel([call("set_model_response", name="Ada", age=36)])
    agent = LlmAgent(name="a", model=model, output_schema=Person, sub_agents=[LlmAgent(name="b")])
    assert lines_of(await Talk(agent).say("who?"))[-1] == 'a: {"name":"Ada","age":36}'


async def test_without_a_declared_shape_json_text_stays_text() -> None:
    talk = Talk(LlmAgent(name="a", model=ScriptedModel(['{"a": 1}']), output_key="found"))
    await talk.say("?")
    assert await talk.state() == {"found": '{"a": 1}'}
