"""A model or a script plays the user of a scenario, to its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from greenroom import InMemoryRunner, LlmAgent
from greenroom.errors import InvalidRequest, ModelError
from greenroom.evaluation.metrics.by_name import metrics_of
from greenroom.evaluation.records import (
    AgentDetails,
    AppDetails,
    ConversationScenario,
    EvalCase,
    EvalCaseResult,
    EvalMetric,
    EvalSet,
    EvalStatus,
    IntermediateData,
    Invocation,
    SessionInput,
    text_of,
)
from greenroom.evaluation.run import AgentUnderTest, Evaluation
from greenroom.evaluation.simulation import (
    PERSONAS,
    ConversationGenerationConfig,
    SimulatedUser,
    UserSimulatorConfig,
    generate_scenarios,
    scenario_cases,
    user_simulator,
)
from greenroom.models.local import files as local_files
from greenroom.models.local.llm import LocalLlm
from greenroom.records.base import JsonObject
from greenroom.records.content import FunctionCall, ModelContent, UserContent
from greenroom.testing.scripted_model import ScriptedModel

SCENARIO = ConversationScenario(starting_prompt="I want a train.", conversation_plan="To Oslo, on Friday, one ticket.")


def turns(*texts: str) -> list[Invocation]:
    """user, agent, user, agent …"""
    return [
        Invocation(
            user_content=UserContent(asked),
            final_response=ModelContent(said),
            intermediate_data=IntermediateData(tool_uses=[FunctionCall(name="find", args={"to": said})]),
        )
        for asked, said in zip(texts[::2], texts[1::2], strict=True)
    ]


async def said(user: SimulatedUser, conversation: list[Invocation]) -> str | None:
    return text_of(await user.next_message(conversation))


async def test_a_model_plays_the_user_by_the_plan_until_its_stop_signal() -> None:
    model = ScriptedModel([" On Friday. ", "Thanks! </Finished>"])
    user = SimulatedUser(SCENARIO, UserSimulatorConfig(model=model))
    assert await said(user, []) == "I want a train."
    assert not model.requests
    conversation = turns("I want a train.", "When?")
    assert await said(user, conversation) == "On Friday."
    prompt = model.requests[0].contents[0].text()
    assert "To Oslo, on Friday, one ticket." in prompt
    assert "user: I want a train.\n\nassistant: When?" in prompt
    assert "</finished>" in prompt
    assert "{{" not in prompt
    assert "find" not in prompt
    assert await said(user, [*conversation, *turns("On Friday.", "Done.")]) is None


async def test_no_more_than_the_allowed_invocations() -> None:
    user = SimulatedUser(SCENARIO, UserSimulatorConfig(model=ScriptedModel(["more"] * 3), max_allowed_invocations=2))
    assert await said(user, turns("a", "b")) == "more"
    assert await said(user, turns("a", "b", "c", "d")) is None
    endless = SimulatedUser(SCENARIO, UserSimulatorConfig(model=ScriptedModel(["more"]), max_allowed_invocations=-1))
    assert await said(endless, turns(*"ab" * 40)) == "more"


async def test_calls_are_shown_if_wanted_and_own_instructions_are_filled_in() -> None:
    model = ScriptedModel(["x"])
    config = UserSimulatorConfig(
        model=model,
        include_function_calls=True,
        custom_instructions="P={{conversation_plan}} H={{ conversation_history }} S={{ stop_signal }} W={{ persona }}",
    )
    scenario = ConversationScenario(
        starting_prompt="s",
        conversation_plan="{{ stop_signal }}",
        user_persona={
            "id": "me",
            "description": "Grumpy.",
            "behaviors": [{"name": "Tone", "behavior_instructions": ["Sigh."]}],
        },
    )
    await said(SimulatedUser(scenario, config), turns("a", "b"))
    prompt = model.requests[0].contents[0].text()
    assert prompt.startswith("P={{ stop_signal }} H=user: a")
    assert '(assistant calls find {"to":"b"})' in prompt
    assert "S=</finished>" in prompt
    assert "Grumpy.\nTone\n- Sigh." in prompt


@pytest.mark.parametrize("name", ["EXPERT", "NOVICE", "EVALUATOR"])
async def test_a_persona_is_in_the_prompt(name: str) -> None:
    model = ScriptedModel(["x"])
    scenario = ConversationScenario(starting_prompt="s", conversation_plan="p", user_persona=name)
    await said(SimulatedUser(scenario, UserSimulatorConfig(model=model)), turns("a", "b"))
    assert PERSONAS[name].text() in model.requests[0].contents[0].text()


async def test_a_script_plays_the_user() -> None:
    user = SimulatedUser(SCENARIO, UserSimulatorConfig(type="scripted", script=["Friday", "bye"]))
    got = [await said(user, turns(*"ab" * length)) for length in range(4)]
    assert got == ["I want a train.", "Friday", "bye", None]

    async def answers(conversation: Any) -> str | None:
        return "Friday" if conversation[-1].text() == "When?" else None

    user = SimulatedUser(SCENARIO, UserSimulatorConfig(type="scripted", script=answers))
    assert await said(user, turns("a", "When?")) == "Friday"
    assert await said(user, turns("a", "Done.")) is None


async def test_a_user_that_says_nothing_fails_the_case() -> None:
    with pytest.raises(ModelError, match="said nothing"):
        await said(SimulatedUser(SCENARIO, UserSimulatorConfig(model=ScriptedModel([" "]))), turns("a", "b"))


@pytest.mark.parametrize(
    ("config", "error"),
    [
        (
            {"custom_instructions": "{{ stop_signal }}"},
            "lacks the placeholders conversation_history, conversation_plan",
        ),
        ({"type": "scripted"}, "has a script"),
        ({"type": "llm_audio"}, "type"),
    ],
)
def test_wrong_configurations_are_refused(config: JsonObject, error: str) -> None:
    with pytest.raises(InvalidRequest, match=error):
        user_simulator(config)


async def results(agent: LlmAgent, config: JsonObject | UserSimulatorConfig, *metrics: EvalMetric) -> EvalCaseResult:
    simulator = (
        user_simulator(config)
        if isinstance(config, dict)
        else lambda case: SimulatedUser(case.conversation_scenario or SCENARIO, config)
    )
    cases = EvalSet(eval_set_id="s", eval_cases=[EvalCase(eval_id="c", conversation_scenario=SCENARIO)])
    run = Evaluation(
        AgentUnderTest.of(InMemoryRunner(agent, app_name="app")), cases, metrics_of(metrics), simulator=simulator
    )
    [result] = [one async for one in run.results()]
    return result


async def test_a_scenario_is_run_and_measured() -> None:
    agent = LlmAgent(name="desk", model=ScriptedModel(["When?", "Booked."]))
    result = await results(
        agent, {"type": "scripted", "script": ["On Friday."]}, EvalMetric(metric_name="tool_call_count_v1")
    )
    got = [one.actual_invocation for one in result.eval_metric_result_per_invocation]
    assert [(text_of(one.user_content), one.text()) for one in got] == [
        ("I want a train.", "When?"),
        ("On Friday.", "Booked."),
    ]
    assert result.final_eval_status is EvalStatus.NOT_EVALUATED


@pytest.fixture
def local_model() -> Iterator[LocalLlm]:
    model = LocalLlm(f"local/{local_files.pull('smollm2-135m')}")
    yield model
    asyncio.run(model.close())


@pytest.mark.model
async def test_a_local_model_plays_the_user_and_the_judge(local_model: LocalLlm) -> None:
    """A weak judge: it may give no verdict that can be read, and the case then has none."""
    agent = LlmAgent(name="desk", model=ScriptedModel(["When?", "And how many tickets?", "Booked."]))
    config = UserSimulatorConfig.model_validate(
        {"model_configuration": {"max_output_tokens": 24, "temperature": 0}, "max_allowed_invocations": 3}
    )
    config.model = local_model
    options = {"judge_model": local_model, "num_samples": 1, "judge_model_config": {"max_output_tokens": 60}}
    judge = EvalMetric(metric_name="safety_v1", threshold=0.5, criterion={"judge_model_options": options})
    result = await results(agent, config, judge)
    assert result.error is None
    got = [text_of(one.actual_invocation.user_content) for one in result.eval_metric_result_per_invocation]
    assert got[0] == "I want a train."
    assert 2 <= len(got) <= 3
    assert all(got)
    [score] = [one.score for one in result.overall_eval_metric_results if one.metric_name == "safety_v1"]
    assert score is None or 0.0 <= score <= 1.0
    assert (result.final_eval_status is EvalStatus.NOT_EVALUATED) == (score is None)


def test_cases_of_scenarios_have_ids_of_their_content() -> None:
    session_input = SessionInput(app_name="desk", user_id="ada", state={"vip": True})
    [first, other] = scenario_cases(
        [SCENARIO, ConversationScenario(starting_prompt="s", conversation_plan="p")], session_input
    )
    # As `adk eval_set add_eval_case` names it.
    assert first.eval_id == "74776d78"
    assert first.eval_id != other.eval_id
    assert first.session_input == session_input
    with pytest.raises(InvalidRequest, match="no persona 'GURU'"):
        scenario_cases([ConversationScenario(starting_prompt="s", conversation_plan="p", user_persona="GURU")], None)


async def test_scenarios_are_generated_without_repeats() -> None:
    def reply(*starts: str) -> str:
        return json.dumps({"scenarios": [{"starting_prompt": one, "conversation_plan": "p"} for one in starts]})

    model = ScriptedModel([reply("a", "b"), "nothing today", reply("b", "c", "d")])
    app = AppDetails(agent_details={"desk": AgentDetails(name="desk", instructions="Sell tickets.")})
    config = ConversationGenerationConfig(
        count=3, model_name=model, generation_instruction="Refunds.", environment_context="Trains: 7, 9"
    )
    assert [one.starting_prompt for one in await generate_scenarios(config, app)] == ["a", "b", "c"]
    first, last = model.requests[0].contents[0].text(), model.requests[2].contents[0].text()
    assert all(text in first for text in ("Invent 3 ", "Sell tickets.", "Refunds.", "Trains: 7, 9"))
    assert "Invent 1 " in last
    assert last.endswith("exist already\na\nb")
    with pytest.raises(ModelError, match="0 of 3"):
        await generate_scenarios(ConversationGenerationConfig(count=3, model_name=ScriptedModel(["?"] * 3)), app)
    with pytest.raises(ValueError, match="from 1 to 1000"):
        ConversationGenerationConfig(count=0)
