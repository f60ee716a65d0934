"""Calls whose answer comes in a later message."""

from __future__ import annotations

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import InvalidRequest
from greenroom.records.content import Content, Part
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import LongRunningFunctionTool
from tests.agents.talk import Talk, answer, call, lines_of, shown

started: list[str] = []


def export(table: str) -> None:
    """Starts an export."""
    started.append(table)


def order(item: str) -> dict[str, str]:
    """Orders something."""
    return {"ticket": item}


def ship(item: str) -> dict[str, str]:
    """Ships something, and has nothing to say of it yet."""
    return {}


TOOLS = [LongRunningFunctionTool(export), LongRunningFunctionTool(order), LongRunningFunctionTool(ship)]


async def test_a_call_without_a_first_word_ends_the_run_and_the_tool_was_started_once() -> None:
    started.clear()
    model = ScriptedModel([call("export", "c-1", table="t")])
    (event,) = await Talk(LlmAgent(name="a", model=model, tools=TOOLS)).say("export t")
    assert event.long_running_tool_ids == ["c-1"]
    assert event.is_final_response()
    assert started == ["t"]


async def test_open_calls_are_listed_in_an_order_of_their_own_so_that_equal_events_look_equal() -> None:
    calls = [call("export", "c-2", table="t"), call("export", "c-1", table="u")]
    (event,) = await Talk(LlmAgent(name="a", model=ScriptedModel([calls]), tools=TOOLS)).say("export both")
    assert event.long_running_tool_ids == ["c-1", "c-2"]


async def test_an_empty_first_word_is_none() -> None:
    model = ScriptedModel([call("ship", "c-1", item="tea")])
    assert lines_of(await Talk(LlmAgent(name="a", model=model, tools=TOOLS)).say("tea!")) == ["a: ship(item='tea')"]


async def test_a_first_result_is_sent_to_the_model_which_continues() -> None:
    model = ScriptedModel([call("order", "c-1", item="tea"), "I have ordered tea."])
    assert lines_of(await Talk(LlmAgent(name="a", model=model, tools=TOOLS)).say("tea!")) == [
        "a: order(item='tea')",
        "a: order -> {'ticket': 'tea'}",
        "a: I have ordered tea.",
    ]


async def test_the_answer_goes_to_the_same_agent_in_the_same_run_and_stands_beside_the_call() -> None:
    model = ScriptedModel(
        {
            "root": [call("transfer_to_agent", agent_name="clerk"), "never asked"],
            "clerk": [call("order", "c-1", item="tea"), "ordered", "Chatting.", "On its way.", "Here it is."],
        }
    )
    clerk = LlmAgent(name="clerk", tools=TOOLS, disallow_transfer_to_parent=True, disallow_transfer_to_peers=True)
    talk = Talk(LlmAgent(name="root", model=model, sub_agents=[clerk]))
    first = await talk.say("tea!")

    progress = await talk.say(answer("order", "c-1", {"status": "shipped"}))
    assert lines_of(progress) == ["clerk: Chatting."]
    assert shown(model.requests[-1])[-2:] == ["model: order(item='tea')", "user: order -> {'status': 'shipped'}"]

    done = await talk.say(answer("order", "c-1", {"status": "delivered"}))
    assert lines_of(done) == ["clerk: On its way."]
    assert shown(model.requests[-1])[-2:] == ["model: order(item='tea')", "user: order -> {'status': 'delivered'}"]
    assert {event.invocation_id for event in await talk.log()} == {first[0].invocation_id}


async def test_the_answer_takes_over_the_run_whatever_run_the_caller_names() -> None:
    model = ScriptedModel([call("export", "c-1", table="t"), "exported"])
    talk = Talk(LlmAgent(name="a", model=model, tools=TOOLS))
    (event,) = await talk.say("export t")
    (later,) = await talk.say(answer("export", "c-1", {"rows": 7}), invocation_id="e-other")
    assert later.invocation_id == event.invocation_id
    assert shown(model.requests[-1]) == ["user: export t", "model: export(table='t')", "user: export -> {'rows': 7}"]


async def test_while_a_call_is_open_the_conversation_continues() -> None:
    model = ScriptedModel([call("export", "c-1", table="t"), "still busy", "all is exported"])
    talk = Talk(LlmAgent(name="a", model=model, tools=TOOLS))
    first = await talk.say("export t")
    (chat,) = await talk.say("how far?")
    assert chat.invocation_id != first[0].invocation_id
    assert shown(model.requests[-1]) == [
        "user: export t",
        "model: export(table='t')",
        "user: export -> {'status': 'pending'}",
        "user: how far?",
    ]
    assert lines_of(await talk.say(answer("export", "c-1", {"rows": 7}))) == ["a: all is exported"]
    assert shown(model.requests[-1]) == ["user: export t", "model: export(table='t')", "user: export -> {'rows': 7}"]


async def test_of_two_open_calls_one_may_be_answered_first() -> None:
    model = ScriptedModel([[call("export", "c-1", table="x"), call("export", "c-2", table="y")], "one to go", "both"])
    talk = Talk(LlmAgent(name="a", model=model, tools=TOOLS))
    await talk.say("export")
    await talk.say(answer("export", "c-2", {"rows": 2}))
    assert shown(model.requests[-1])[-2:] == ["user: export -> {'status': 'pending'}", "user: export -> {'rows': 2}"]
    await talk.say(answer("export", "c-1", {"rows": 1}))
    assert shown(model.requests[-1])[1:5] == [
        "model: export(table='x')",
        "model: export(table='y')",
        "user: export -> {'rows': 1}",
        "user: export -> {'rows': 2}",
    ]


async def test_the_model_is_instructed_not_to_call_a_pending_tool_again() -> None:
    model = ScriptedModel(["hi"])
    await Talk(LlmAgent(name="a", model=model, tools=TOOLS)).say("hi")
    declared = {d.name: d.description or "" for d in model.requests[0].function_declarations()}
    assert "don't call it again" in declared["export"]


def answers_of(*ids: str) -> Content:
    return Content(parts=[part for i in ids for part in answer("export", i, {}).parts or ()])


async def test_answers_that_fit_no_call_are_refused_and_nothing_is_stored() -> None:
    model = ScriptedModel([call("export", "c-1", table="x"), call("export", "c-2", table="y")])
    talk = Talk(LlmAgent(name="a", model=model, tools=TOOLS))
    await talk.say("export x")
    await talk.say("export y")
    log = await talk.log()
    for message, reason in (
        (answers_of("c-7"), "No function call of this session has the id c-7"),
        (answers_of("c-1", "c-2"), "calls of several runs"),
        (Content(parts=[*(answers_of("c-1").parts or ()), Part(text="and")]), "not both"),
        (Content(parts=[Part(function_call=call("export"))]), "can't hold function calls"),
    ):
        with pytest.raises(InvalidRequest, match=reason):
            await talk.say(message)
    assert await talk.log() == log


async def test_what_other_tools_returned_is_not_for_a_client_to_say() -> None:
    def balance() -> int:
        """Looks up the balance."""
        return 7

    model = ScriptedModel(
        [call("balance", "c-1"), "It is 7.", [call("export", "c-2", table="x"), call("balance", "c-3")], "Under way."]
    )
    talk = Talk(LlmAgent(name="a", model=model, tools=[*TOOLS, balance]))
    await talk.say("balance?")
    await talk.say("export x")
    log = await talk.log()
    for ids in (["c-1"], ["c-3"], ["c-2", "c-3"]):
        with pytest.raises(InvalidRequest, match="is not long-running: its tool answers it"):
            await talk.say(answers_of(*ids))
    assert await talk.log() == log
