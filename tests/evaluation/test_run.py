"""Cases are run on the real runner, scored, and continued after a kill."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from greenroom import App, InMemoryRunner, LlmAgent
from greenroom.errors import InvalidRequest, ModelError
from greenroom.evaluation.journal import Journal
from greenroom.evaluation.metrics.by_name import metrics_of
from greenroom.evaluation.records import (
    EvalCase,
    EvalCaseResult,
    EvalMetric,
    EvalSet,
    EvalStatus,
    IntermediateData,
    Invocation,
    SessionInput,
)
from greenroom.evaluation.run import AgentUnderTest, Evaluation, RunOptions, app_details
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.testing.scripted_model import Said, ScriptedModel

_METRICS = [
    EvalMetric(metric_name="tool_trajectory_avg_score", threshold=1.0),
    EvalMetric(metric_name="response_match_score", threshold=0.8),
]


def get_weather(city: str) -> str:
    """The weather of a city."""
    return "snow"


def _answer(request: LlmRequest) -> Said:
    last = (request.contents[-1].parts or [])[0]
    if last.function_response is not None:
        return "It snows."
    if last.text == "raise":
        raise RuntimeError("not of ours")
    if last.text == "fail":
        return ModelError("down", model="scripted")
    return FunctionCall(name="get_weather", args={"city": last.text or ""})


def _agent() -> AgentUnderTest:
    agent = LlmAgent(name="desk", model=ScriptedModel(_answer), tools=[get_weather], instruction="Help.")
    return AgentUnderTest.of(InMemoryRunner(agent, app_name="desk"))


def _case(name: str, asked: str = "Oslo", city: str = "Oslo", **fields: Any) -> EvalCase:
    turn = Invocation(
        user_content=Content(role="user", parts=[Part(text=asked)]),
        final_response=Content(role="model", parts=[Part(text="It snows.")]),
        intermediate_data=IntermediateData(tool_uses=[FunctionCall(name="get_weather", args={"city": city})]),
    )
    return EvalCase(eval_id=name, conversation=[turn], **fields)


def _set(*cases: EvalCase) -> EvalSet:
    return EvalSet(eval_set_id="s", eval_cases=list(cases))


async def _all(evaluation: Evaluation) -> list[EvalCaseResult]:
    return [result async for result in evaluation.results()]


async def test_cases_pass_fail_and_are_reported() -> None:
    cases = _set(_case("good"), _case("bad", city="Rome"), _case("broken", asked="fail"))
    evaluation = Evaluation(_agent(), cases, metrics_of(_METRICS))
    await _all(evaluation)
    good, bad, broken = evaluation.summary().eval_case_results
    assert good.final_eval_status is EvalStatus.PASSED
    assert bad.final_eval_status is EvalStatus.FAILED
    assert [one.score for one in bad.overall_eval_metric_results[:2]] == [0.0, 1.0]
    assert (broken.final_eval_status, broken.error) == (EvalStatus.FAILED, "down")
    [turn] = good.eval_metric_result_per_invocation
    assert turn.actual_invocation.calls()[0].args == {"city": "Oslo"}
    assert {one.metric_name: one.score for one in turn.eval_metric_results}["inference_call_count_v1"] is not None
    assert good.session_id.startswith("adk-eval-session-")
    assert good.session_details is not None
    assert len(good.session_details.events) == 4


async def test_an_agent_that_raises_fails_its_case_only() -> None:
    cases = _set(_case("broken", asked="raise"), _case("good"))
    evaluation = Evaluation(_agent(), cases, metrics_of(_METRICS), options=RunOptions(parallel=1))
    broken, good = await _all(evaluation)
    assert (broken.final_eval_status, broken.error) == (EvalStatus.FAILED, "RuntimeError: not of ours")
    assert broken.session_details is not None
    assert good.final_eval_status is EvalStatus.PASSED


async def test_no_case_begins_after_the_time_is_up() -> None:
    evaluation = Evaluation(_agent(), _set(_case("a"), _case("b")), [], options=RunOptions(max_seconds=0))
    assert (await _all(evaluation), evaluation.not_run) == ([], 2)


async def test_what_judges_use_counts_towards_the_budget() -> None:
    verdict = LlmResponse(
        content=Content(role="model", parts=[Part(text='{"is_the_agent_response_valid": "valid"}')]),
        usage_metadata=GenerateContentResponseUsageMetadata(total_token_count=60),
    )
    judge = {"judgeModelOptions": {"judgeModel": ScriptedModel(lambda _: verdict), "numSamples": 2}}
    metric = EvalMetric(metric_name="final_response_match_v2", threshold=0.5, criterion={"threshold": 0.5, **judge})
    options = RunOptions(parallel=1, max_tokens=100)
    evaluation = Evaluation(_agent(), _set(_case("a"), _case("b")), metrics_of([metric]), options=options)
    assert ([one.eval_id for one in await _all(evaluation)], evaluation.not_run) == (["a"], 1)


async def test_state_user_and_samples() -> None:
    given = SessionInput(app_name="x", user_id="ann", session_id="mine", state={"unit": "C"})
    evaluation = Evaluation(_agent(), _set(_case("a", session_input=given)), [], options=RunOptions(samples=3))
    results = await _all(evaluation)
    assert [result.user_id for result in results] == ["ann"] * 3
    assert sum(result.session_id == "mine" for result in results) == 1
    assert all(result.session_details and result.session_details.state["unit"] == "C" for result in results)
    assert {result.final_eval_status for result in results} == {EvalStatus.NOT_EVALUATED}


async def test_only_the_wanted_cases_run() -> None:
    cases = _set(_case("a"), _case("b"))
    assert [one.eval_id for one in await _all(Evaluation(_agent(), cases, [], eval_ids=["b"]))] == ["b"]
    with pytest.raises(InvalidRequest, match="no cases c"):
        Evaluation(_agent(), cases, [], eval_ids=["c"])


def _tear(folder: Path) -> None:
    """As a process leaves the journal that is killed while it writes."""
    [file] = folder.iterdir()
    with file.open("ab") as torn:
        torn.write(b'{"evalId": "c')


async def test_a_run_that_was_cut_off_runs_only_the_rest(tmp_path: Path) -> None:
    cases = _set(*(_case(f"c{number}") for number in range(6)))
    journal = Journal(tmp_path, "s")
    first = Evaluation(_agent(), cases, metrics_of(_METRICS), options=RunOptions(parallel=1), journal=journal)
    async with aclosing(first.results()) as results:
        seen = [(await anext(results)).eval_id for _ in range(2)]
    _tear(tmp_path)
    again = Evaluation(_agent(), cases, metrics_of(_METRICS), journal=Journal(tmp_path, "s"))
    results_again = await _all(again)
    assert [one.eval_id for one in results_again][:2] == seen
    assert sorted(one.eval_id for one in results_again) == [f"c{number}" for number in range(6)]
    assert len(Journal(tmp_path, "s").read()) == 6
    assert Journal(tmp_path, "other").read() == []


async def test_a_reader_that_leaves_cancels_what_runs() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(request: LlmRequest) -> Said:
        if len(request.contents) == 1 and (request.contents[0].parts or [])[0].text == "quick":
            return "done"
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return ""

    runner = InMemoryRunner(LlmAgent(name="desk", model=ScriptedModel(wait)), app_name="desk")
    evaluation = Evaluation(AgentUnderTest.of(runner), _set(_case("slow"), _case("quick", asked="quick")), [])
    async with aclosing(evaluation.results()) as results:
        assert (await anext(results)).eval_id == "quick"
        await begun.wait()
    assert cancelled.is_set()


async def test_judges_see_instructions_and_tools() -> None:
    agent = LlmAgent(name="desk", model=ScriptedModel(_answer), tools=[get_weather], instruction="Help.")
    details = await app_details(App(name="desk", root_agent=agent))
    [desk] = details.agent_details.values()
    assert desk.instructions == "Help."
    assert [one.name for tool in desk.tool_declarations for one in tool.function_declarations or ()] == ["get_weather"]
