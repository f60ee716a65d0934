from __future__ import annotations

from pathlib import Path

from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import Talk, call, shown

EXAMPLES = Path(__file__).parents[2] / "examples"


async def test_the_planner_asks_two_agents_and_answers_by_itself() -> None:
    planner = DirectoryAppLoader(EXAMPLES / "trip_planner").load("trip_planner").root_agent
    assert isinstance(planner, LlmAgent)
    model = ScriptedModel(
        {
            "planner": [
                [call("guide", request="Oslo?"), call("accountant", request="Oslo, two nights")],
                "See the Opera House, for 380 euros.",
            ],
            "guide": [call("list_sights", city="Oslo"), "See the Opera House."],
            "accountant": [call("hotel_price", city="Oslo"), '{"per_night": 140, "total": 380}'],
        }
    )
    for agent in (planner, *(tool.agent for tool in planner.tools if isinstance(tool, AgentTool))):
        assert isinstance(agent, LlmAgent)
        agent.model = model
    talk = Talk(planner)
    events = await talk.say("Two nights in Oslo, please.")
    answers = {
        response.name: response.response
        for event in events
        if event.author == "planner"
        for response in event.get_function_responses()
    }
    assert answers == {
        "guide": {"result": "See the Opera House."},
        "accountant": {"per_night": 140, "total": 380},
    }
    asked = {request.contents[0].text(): shown(request) for request in model.requests}
    assert set(asked) == {"Two nights in Oslo, please.", "Oslo?", "Oslo, two nights"}
    assert (await talk.state())["plan"] == "See the Opera House, for 380 euros."
    (final,) = [event for event in events if event.is_final_response()]
    assert final.author == "planner"
