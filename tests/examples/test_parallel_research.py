from __future__ import annotations

from pathlib import Path

import pytest

from greenroom import InMemoryRunner, types
from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.records.event import Event
from greenroom.testing.scripted_model import ScriptedModel

EXAMPLES = Path(__file__).parents[2] / "examples"
RESEARCHERS = {"journalist": "read_news", "scientist": "read_studies", "economist": "look_up_prices"}


@pytest.fixture
def app() -> App:
    return DirectoryAppLoader(EXAMPLES / "parallel_research").load("parallel_research")


async def research(app: App, topic: str) -> tuple[list[Event], ScriptedModel, dict[str, object]]:
    script: dict[str, list[object]] = {
        name: [types.FunctionCall(name=tool, args={"topic": topic}), f"The {name} has found it."]
        for name, tool in RESEARCHERS.items()
    }
    model = ScriptedModel({**script, "writer": ["The report."]})  # pyright: ignore[reportArgumentType]
    for agent in app.root_agent.walk():
        if isinstance(agent, LlmAgent):
            agent.model = model
    runner = InMemoryRunner(app=app)
    session = await runner.session_service.create_session(app_name="parallel_research", user_id="ada")
    message = types.Content(role="user", parts=[types.Part.from_text(text=f"What about {topic}?")])
    run = runner.run_async(user_id="ada", session_id=session.id, new_message=message)
    events = [event async for event in run]
    stored = await runner.session_service.get_session(
        app_name="parallel_research", user_id="ada", session_id=session.id
    )
    assert stored is not None
    return events, model, stored.state


async def test_what_three_researchers_found_side_by_side_becomes_one_report(app: App) -> None:
    events, model, state = await research(app, "heat pumps")
    assert {event.branch for event in events} == {None, *(f"researchers.{name}" for name in RESEARCHERS)}
    found = {event.author: response.response for event in events for response in event.get_function_responses()}
    assert found == {
        "journalist": {"found": "Sales of heat pumps grew by 12% last year; installers are booked out until autumn."},
        "scientist": {"found": "In 412 houses a heat pump used 3.1 times less energy than the gas boiler before it."},
        "economist": {"found": "air heat pump, 8 kW: 9800 EUR (-6%)"},
    }
    said = [event.content.text() for event in events if event.content and event.author == "writer"]
    assert said == ["The report."]
    asked = model.requests[-1].config.system_text()
    assert "News: The journalist has found it." in asked
    assert "Prices: The economist has found it." in asked
    assert state["report"] == "The report."
    assert state["sources"] == ["newspaper", "study", "price list"]


async def test_a_topic_that_is_not_in_the_library_is_reported_to_the_model(app: App) -> None:
    events, _, state = await research(app, "dragons")
    responses = [response.response for event in events for response in event.get_function_responses()]
    assert responses == [{"error": "Nothing found. Topics are: heat pumps, wind power."}] * 3
    assert "sources" not in state
