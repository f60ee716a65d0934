"""Planners' additions to requests, and their changes of replies."""

from __future__ import annotations

from typing import Any, cast

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.planning import (
    ACTION_TAG,
    FINAL_ANSWER_TAG,
    PLANNING_TAG,
    REASONING_TAG,
    REPLANNING_TAG,
    BuiltInPlanner,
    PlanReActPlanner,
    remove_thought_marks,
)
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.generation import GenerateContentConfig, ThinkingConfig
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import STREAMED, Talk, lines_of, shown

CONTEXT = cast("Any", None)  # neither planner looks at it


def processed(*parts: Part | str) -> list[Part] | None:
    given = [Part(text=part) if isinstance(part, str) else part for part in parts]
    return PlanReActPlanner().process_planning_response(CONTEXT, given)


def calls(name: str | None) -> Part:
    return Part(function_call=FunctionCall(name=name, args={}))


def thought(text: str) -> Part:
    return Part(text=text, thought=True)


def test_the_built_in_planner_sets_the_thinking_config_in_place_of_the_agents_and_nothing_else() -> None:
    config = ThinkingConfig(include_thoughts=True, thinking_budget=512)
    planner = BuiltInPlanner(thinking_config=config)
    request = LlmRequest(config=GenerateContentConfig(thinking_config=ThinkingConfig(), temperature=0.5))
    planner.apply_thinking_config(request)
    assert request == LlmRequest(config=GenerateContentConfig(thinking_config=config, temperature=0.5))
    assert planner.build_planning_instruction(CONTEXT, request) is None
    assert planner.process_planning_response(CONTEXT, [Part(text=f"{PLANNING_TAG} x")]) is None


def test_the_instruction_names_every_tag() -> None:
    instruction = PlanReActPlanner().build_planning_instruction(CONTEXT, LlmRequest())
    tags = ["/*PLANNING*/", "/*REPLANNING*/", "/*REASONING*/", "/*ACTION*/", "/*FINAL_ANSWER*/"]
    assert tags == [PLANNING_TAG, REPLANNING_TAG, REASONING_TAG, ACTION_TAG, FINAL_ANSWER_TAG]
    assert all(tag in instruction for tag in tags)


def test_a_reply_without_parts_stays_as_it_is() -> None:
    assert processed() is None


@pytest.mark.parametrize("tag", [PLANNING_TAG, REPLANNING_TAG, REASONING_TAG, ACTION_TAG])
def test_text_that_begins_with_a_tag_becomes_a_thought_without_it(tag: str) -> None:
    assert processed(f"\n{tag} 1. look\n") == [thought("\n 1. look\n")]


def test_tags_inside_a_thought_are_removed_too() -> None:
    assert processed(f"{PLANNING_TAG} plan\n{ACTION_TAG} act") == [thought(" plan\n act")]


def test_text_before_the_last_final_answer_tag_is_a_thought_and_the_rest_is_said() -> None:
    text = f"{PLANNING_TAG} plan {FINAL_ANSWER_TAG} draft {FINAL_ANSWER_TAG} It is 7."
    assert processed(text) == [thought(" plan  draft "), Part(text=" It is 7.")]
    assert processed(f"Hm. {FINAL_ANSWER_TAG} Yes.") == [thought("Hm. "), Part(text=" Yes.")]


def test_a_bare_final_answer_tag_leaves_no_empty_parts() -> None:
    assert processed(f"{FINAL_ANSWER_TAG} Yes.") == [Part(text=" Yes.")]
    assert processed(f"Hm.{FINAL_ANSWER_TAG}\n") == [thought("Hm.")]
    assert processed(PLANNING_TAG) == []


def test_text_with_a_tag_only_later_and_text_without_any_are_said_as_they_are() -> None:
    later = f"See {PLANNING_TAG} there"
    assert processed("Sure.", later) == [Part(text="Sure."), Part(text=later)]


def test_the_models_own_thoughts_and_other_parts_are_kept() -> None:
    own = Part(text=f"{PLANNING_TAG} mine", thought=True, thought_signature=b"s")
    code = Part.from_executable_code(code="1")
    assert processed(own, code) == [own, code]


def test_a_signature_stays_with_the_text() -> None:
    assert processed(Part(text=f"{ACTION_TAG} go", thought_signature=b"s")) == [
        Part(text=" go", thought=True, thought_signature=b"s")
    ]


def test_everything_after_the_first_group_of_calls_is_dropped() -> None:
    assert processed(f"{PLANNING_TAG} p", calls("a"), calls("b"), f"{FINAL_ANSWER_TAG} made up", calls("c")) == [
        thought(" p"),
        calls("a"),
        calls("b"),
    ]


def test_a_group_of_calls_at_the_very_start_is_kept_whole() -> None:
    assert processed(calls("a"), calls("b"), "made up", calls("c")) == [calls("a"), calls("b")]


@pytest.mark.parametrize("nameless", ["", None])
def test_calls_without_a_name_are_dropped_and_begin_no_group(nameless: str | None) -> None:
    assert processed(calls(nameless), "on", calls("a"), calls(nameless), calls("b"), "off") == [
        Part(text="on"),
        calls("a"),
        calls("b"),
    ]


def test_the_given_parts_are_not_changed() -> None:
    part = Part(text=f"{PLANNING_TAG} plan {FINAL_ANSWER_TAG} yes")
    processed(part)
    assert part == Part(text=f"{PLANNING_TAG} plan {FINAL_ANSWER_TAG} yes")


def test_earlier_thoughts_are_shown_as_plain_text_and_the_log_keeps_its_marks() -> None:
    user = Content(role="user", parts=[Part(text="hi")])
    reply = Content(role="model", parts=[thought("plan"), Part(text="yes")])
    log = CopyOnWriteList([user, reply, Content(role="model")])
    contents = log.snapshot()
    remove_thought_marks(contents)
    assert contents == [user, Content(role="model", parts=[Part(text="plan"), Part(text="yes")]), Content(role="model")]
    assert contents[0] is user
    assert log[1] is reply
    assert reply.parts == [thought("plan"), Part(text="yes")]


def look(where: str) -> str:
    return f"nothing in {where}"


async def test_a_run_with_plans_shows_thoughts_as_such_and_sends_them_to_the_model() -> None:
    plan = [
        Part(text=f"{PLANNING_TAG} look in a{ACTION_TAG}"),
        Part(function_call=FunctionCall(id="c-1", name="look", args={"where": "a"})),
        Part(text=f"{FINAL_ANSWER_TAG} made up"),
    ]
    model = ScriptedModel([plan, f"{REASONING_TAG} it is empty {FINAL_ANSWER_TAG} It is not in a."], chunks=1000)
    talk = Talk(LlmAgent(name="a", model=model, tools=[look], instruction="Find it.", planner=PlanReActPlanner()))
    events = await talk.say("find it", run_config=STREAMED)
    told_whole = [
        "a: ( look in a)",
        "a: look(where='a')",
        "a: look -> {'result': 'nothing in a'}",
        "a: ( it is empty )",
        "a:  It is not in a.",
    ]
    assert lines_of(event for event in events if not event.partial) == told_whole
    assert lines_of(event for event in events if event.partial) == [
        f"a…: {PLANNING_TAG} look in a{ACTION_TAG}",
        f"a…: {FINAL_ANSWER_TAG} made up",
        f"a…: {REASONING_TAG} it is empty {FINAL_ANSWER_TAG} It is not in a.",
    ]
    assert lines_of((await talk.log())[1:]) == told_whole
    assert shown(model.requests[1]) == [
        "user: find it",
        "model:  look in a",
        "model: look(where='a')",
        "user: look -> {'result': 'nothing in a'}",
    ]
    system = model.requests[0].config.system_text()
    assert system.startswith("Find it.")
    assert all(tag in system for tag in (PLANNING_TAG, REPLANNING_TAG, REASONING_TAG, ACTION_TAG, FINAL_ANSWER_TAG))


async def test_a_run_with_the_built_in_planner_asks_the_model_to_think() -> None:
    model = ScriptedModel(["hi"])
    planner = BuiltInPlanner(thinking_config=ThinkingConfig(thinking_budget=9))
    config = GenerateContentConfig(thinking_config=ThinkingConfig(thinking_budget=1), temperature=0.5)
    await Talk(LlmAgent(name="a", model=model, planner=planner, generate_content_config=config)).say("hello")
    asked = model.requests[0].config
    assert (asked.thinking_config, asked.temperature) == (ThinkingConfig(thinking_budget=9), 0.5)
    assert config.thinking_config == ThinkingConfig(thinking_budget=1)


async def test_a_planned_turn_from_the_instruction_to_the_answer() -> None:
    def look_up(word: str) -> str:
        """Looks a word up."""
        return f"{word} is found"

    plan = [
        Part(text="/*PLANNING*/ 1. look it up"),
        Part(text="/*ACTION*/ I call."),
        Part(function_call=FunctionCall(id="c-1", name="look_up", args={"word": "x"})),
        Part(function_call=FunctionCall(id="c-2", name="", args={})),
        Part(text="/*FINAL_ANSWER*/ made up"),
        Part(function_call=FunctionCall(id="c-3", name="look_up", args={"word": "never"})),
    ]
    answer = "/*REASONING*/ It is there. /*FINAL_ANSWER*/ no /*REPLANNING*/ hm /*FINAL_ANSWER*/ It is found."
    model = ScriptedModel([plan, answer])
    talk = Talk(LlmAgent(name="a", model=model, planner=PlanReActPlanner(), tools=[look_up]))
    assert lines_of(await talk.say("Where is x?")) == [
        "a: ( 1. look it up)",
        "a: ( I call.)",
        "a: look_up(word='x')",
        "a: look_up -> {'result': 'x is found'}",
        "a: ( It is there.  no  hm )",
        "a:  It is found.",
    ]
    instruction = model.requests[0].config.system_text()
    for tag in ("/*PLANNING*/", "/*REPLANNING*/", "/*REASONING*/", "/*ACTION*/", "/*FINAL_ANSWER*/"):
        assert tag in instruction
    assert shown(model.requests[1])[:3] == [
        "user: Where is x?",
        "model:  1. look it up",
        "model:  I call.",
    ]


@pytest.mark.parametrize("tag", ["PLANNING", "REPLANNING", "REASONING", "ACTION"])
async def test_a_section_is_a_thought_in_a_run(tag: str) -> None:
    model = ScriptedModel([f"/*{tag}*/ hm"])
    (event,) = await Talk(LlmAgent(name="a", model=model, planner=PlanReActPlanner())).say("go")
    assert lines_of([event]) == ["a: ( hm)"]
