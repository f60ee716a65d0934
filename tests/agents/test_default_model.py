"""Models of agents that name none (rows 4.1.6, 12.1 and 12.3 of ADK)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.models.by_name import LLMRegistry
from greenroom.records.content import UserContent
from greenroom.runner.in_memory import InMemoryRunner
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import call, lines_of


@pytest.fixture
def default_model() -> Iterator[ScriptedModel]:
    model = ScriptedModel(["of the process"], model="default")
    LlmAgent.set_default_model(model)
    yield model
    LlmAgent.set_default_model(None)


def test_adks_default_model_is_taken_where_it_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LlmAgent(name="root").canonical_model.model == "local/smollm2-135m"
    monkeypatch.setattr(LLMRegistry, "_factories", dict(LLMRegistry._factories))
    monkeypatch.setattr(LLMRegistry, "_models", {})
    LLMRegistry.register("gemini-.*", lambda name: ScriptedModel([], model=name))
    assert LlmAgent(name="root").canonical_model.model == "gemini-3.5-flash"


async def answers(app: App) -> list[str]:
    runner = InMemoryRunner(app=app)
    session = await runner.session_service.create_session(app_name=app.name, user_id="ada")
    message = UserContent("go")
    events = runner.run_async(user_id="ada", session_id=session.id, new_message=message)
    return lines_of([event async for event in events])


async def test_an_app_without_a_default_model_takes_that_of_the_process(default_model: ScriptedModel) -> None:
    assert (await answers(App(name="app", root_agent=LlmAgent(name="root"))))[-1] == "root: of the process"


@pytest.mark.usefixtures("default_model")
async def test_the_default_model_of_an_app_is_that_of_its_agents_and_agent_tools() -> None:
    root = LlmAgent(name="root", tools=[AgentTool(LlmAgent(name="helper"))])
    model = ScriptedModel({"root": [call("helper", request="help"), "done"], "helper": ["I help"]})
    assert (await answers(App(name="app", root_agent=root, default_model=model)))[-1] == "root: done"
