"""Judges score a sample of live runs in the background, within a budget."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom import App, RunJudge
from greenroom.errors import AgentConfigError, ModelError
from greenroom.evaluation.metrics.judged import JUDGED
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, Part
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.run_judge import METRICS
from greenroom.runs.judging import is_sampled
from greenroom.testing.scripted_model import Said, ScriptedModel
from tests.server.agents import echo, scripted
from tests.server.conftest import Serve, Store
from tests.server.serving import Json, Serving

SESSION = "/apps/desk/users/ann/sessions/s-1"
RUBRIC = {"rubricId": "polite", "rubricContent": {"textProperty": "The answer is polite."}}


@pytest.fixture(params=["memory", "sqlite", "replicas"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


class JudgeModel:
    """Finds answers with "please" polite, for 100 tokens each."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.model = ScriptedModel(self.answer)

    async def answer(self, request: LlmRequest) -> Said:
        self.asked += 1
        await self.may_answer.wait()
        text = request.contents[0].text()
        if "fail" in text:
            return ModelError("down", model="judge")
        verdict = '{"rationale": "It says so.", "holds": %s}' % ("true" if "please" in text else "false")
        return LlmResponse(
            content=Content(role="model", parts=[Part(text=verdict)]),
            usage_metadata=GenerateContentResponseUsageMetadata(total_token_count=100, prompt_token_count=100),
            model_version="judge-1",
        )

    def judge(self, **fields: Any) -> RunJudge:
        options = {"judge_model": self.model, "num_samples": 1}
        criterion = {"rubrics": [RUBRIC], "judge_model_options": options}
        fields = {"share": 1.0, "max_tokens_per_day": 10_000, **fields}
        return RunJudge(metric="rubric_based_final_response_quality_v1", name="polite", criterion=criterion, **fields)


async def served(serve: Serve, *judges: RunJudge) -> Serving:
    agent = scripted("desk", lambda request: f"You said {(request.contents[-1].parts or [])[-1].text}")
    server = await serve(App(name="desk", root_agent=agent, judges=judges))
    assert (await server.client.post(SESSION, json={})).status_code == 200
    return server


async def ask(server: Serving, text: str) -> str:
    reply = await server.run("desk", text)
    assert reply.status_code == 200, reply.text
    return reply.json()[-1]["id"]


async def judged(server: Serving, count: int) -> list[Json]:
    async with asyncio.timeout(10):
        while True:
            found = (await server.client.get("/apps/desk/feedback")).json()["feedback"]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.01)


async def test_answers_get_scores_as_feedback_of_a_service(serve: Serve) -> None:
    model = JudgeModel()
    server = await served(serve, model.judge())
    polite = await ask(server, "please")
    rude = await ask(server, "now")
    by_event = {one["eventId"]: one for one in await judged(server, 2)}
    assert (by_event[polite]["score"], by_event[polite]["label"]) == (1.0, "passed")
    assert (by_event[rude]["score"], by_event[rude]["label"]) == (0.0, "failed")
    assert by_event[rude]["comment"] == "polite: It says so."
    assert {(one["source"], one["subject"], one["name"]) for one in by_event.values()} == {
        ("service", "judge:polite", "polite")
    }
    usage = (await server.client.get("/apps/desk/usage?user_id=judge:polite&group_by=model")).json()["usage"]
    assert [(one["model"], one["calls"], one["totalTokenCount"]) for one in usage] == [("judge-1", 2, 200)]


async def test_a_run_does_not_wait_for_its_judge(serve: Serve) -> None:
    model = JudgeModel()
    model.may_answer.clear()
    server = await served(serve, model.judge())
    await ask(server, "please")
    await ask(server, "please")
    assert await judged(server, 0) == []
    model.may_answer.set()
    assert len(await judged(server, 2)) == 2


async def test_a_judge_ends_with_its_budget_and_goes_on_after_failures(serve: Serve) -> None:
    model = JudgeModel()
    server = await served(serve, model.judge(max_tokens_per_day=150))
    await ask(server, "fail")
    for number in range(1, 3):
        await ask(server, f"please {number}")
        await judged(server, number)
    asked = model.asked
    await ask(server, "please 3")
    await asyncio.wait_for(idle(server), 10)
    assert (model.asked, len(await judged(server, 2))) == (asked, 2)


async def idle(server: Serving) -> None:
    """Returns when no judgement is being made."""
    judging = getattr(server, "app", None)
    if judging is None:
        await asyncio.sleep(0.5)  # four servers, which are not asked
        return
    while judging.engine._judging._tasks:
        await asyncio.sleep(0.01)


def test_a_sample_has_its_share_of_the_runs() -> None:
    judge = RunJudge(metric="safety_v1", share=0.2, max_cost_per_day=1)
    sampled = sum(is_sampled(judge, f"e-{number}") for number in range(10_000))
    assert 1_800 < sampled < 2_200
    assert all(is_sampled(RunJudge(metric="safety_v1", share=1, max_cost_per_day=1), f"e-{n}") for n in range(100))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, "needs max_tokens_per_day or max_cost_per_day"),
        ({"max_tokens_per_day": -1}, "from 0 on"),
        ({"max_tokens_per_day": 1, "share": 0}, "share"),
        ({"max_tokens_per_day": 1, "share": 1.1}, "share"),
        ({"max_tokens_per_day": 1, "name": "a b"}, "name"),
        ({"max_tokens_per_day": 1, "metric": "response_match_score"}, "metric is one of"),
    ],
)
def test_wrong_judges_are_refused(fields: dict[str, Any], error: str) -> None:
    given: dict[str, Any] = {"metric": "safety_v1", **fields}
    with pytest.raises(AgentConfigError, match=error):
        RunJudge(**given)


def test_judges_have_all_judged_metrics_but_those_that_compare() -> None:
    judged = {kind.info.metric_name for kind in JUDGED}
    assert judged - set(METRICS) == {"final_response_match_v2", "per_turn_user_simulator_quality_v1"}
    assert set(METRICS) < judged


def test_judges_of_an_app_have_different_names() -> None:
    judge = RunJudge(metric="safety_v1", max_tokens_per_day=1)
    with pytest.raises(AgentConfigError, match="two judges"):
        App(name="desk", root_agent=echo(), judges=[judge, judge])
