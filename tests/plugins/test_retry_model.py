"""Models that fail for a moment are asked again, and nobody but the provider notices."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import SequentialAgent
from greenroom.errors import AgentConfigError, ModelError
from greenroom.models.retrying import RetryingLlm
from greenroom.plugins.budget import BudgetLimit, BudgetPlugin
from greenroom.plugins.retry_model import RetryModelPlugin
from greenroom.testing.scripted_model import Fails, ScriptedModel
from tests.agents.talk import STREAMED, lines_of
from tests.plugins.watched import WatchedTalk

BUSY = ModelError("busy", model="m", retryable=True)
REFUSED = ModelError("no such key", model="m")
QUICK: dict[str, Any] = {"wait_seconds": 0.001}


def desk(model: ScriptedModel) -> LlmAgent:
    return LlmAgent(name="desk", model=model)


async def test_a_model_that_is_busy_is_asked_again() -> None:
    model = ScriptedModel([BUSY, BUSY, "Hello."])
    talk = WatchedTalk(desk(model), RetryModelPlugin(**QUICK))
    assert lines_of(await talk.say("hi")) == ["desk: Hello."]
    assert len(model.requests) == 3


async def test_after_the_last_attempt_the_models_own_error_ends_the_run() -> None:
    model = ScriptedModel([BUSY] * 3)
    with pytest.raises(ModelError, match="busy"):
        await WatchedTalk(desk(model), RetryModelPlugin(**QUICK)).say("hi")
    assert len(model.requests) == 3


async def test_an_error_that_will_not_pass_is_not_repeated() -> None:
    model = ScriptedModel([REFUSED, "Never said."])
    with pytest.raises(ModelError, match="no such key"):
        await WatchedTalk(desk(model), RetryModelPlugin(**QUICK)).say("hi")
    assert len(model.requests) == 1


async def test_a_stream_that_has_begun_is_not_repeated() -> None:
    model = ScriptedModel([Fails(error=BUSY, after_chunks=1), "Never said."])
    with pytest.raises(ModelError, match="busy"):
        await WatchedTalk(desk(model), RetryModelPlugin(**QUICK)).say("hi", run_config=STREAMED)
    assert len(model.requests) == 1


async def test_all_agents_of_the_app_retry_and_are_wrapped_once() -> None:
    models = [ScriptedModel([BUSY, "One.", "Two."]), ScriptedModel([BUSY, "Three.", "Four."])]
    agents = [LlmAgent(name=f"a{n}", model=model) for n, model in enumerate(models)]
    talk = WatchedTalk(SequentialAgent(name="team", sub_agents=agents), RetryModelPlugin(**QUICK))
    await talk.say("hi")
    wrapped = [agent.model for agent in agents]
    await talk.say("again")
    assert [len(model.requests) for model in models] == [3, 3]
    assert all(isinstance(model, RetryingLlm) for model in wrapped)
    assert [agent.model for agent in agents] == wrapped


async def test_a_budget_sees_one_call() -> None:
    budget = BudgetPlugin([BudgetLimit(per="run", tokens=100_000)])
    model = ScriptedModel([BUSY, "Hello."])
    assert lines_of(await WatchedTalk(desk(model), budget, RetryModelPlugin(**QUICK)).say("hi")) == ["desk: Hello."]


def test_no_attempt_at_all_is_refused() -> None:
    with pytest.raises(AgentConfigError, match="max_attempts"):
        RetryModelPlugin(max_attempts=0)
