"""Tools are answered in their place, the same way each time."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import InvalidRequest, PluginFailed
from greenroom.evaluation.invocations import invocations_of
from greenroom.evaluation.tool_stubs import (
    AgentSimulatorFactory,
    EnvironmentSimulationConfig,
    EnvironmentSimulationFactory,
    EnvironmentSimulationPlugin,
    InjectedError,
    InjectionConfig,
    MockStrategy,
    RecordedResult,
    ToolSimulationConfig,
    recorded_tools,
)
from greenroom.records.base import JsonObject
from greenroom.records.event import Event
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import Talk, call
from tests.plugins.watched import WatchedTalk

RUNS: list[str] = []


def weather(city: str) -> JsonObject:
    """The weather of a city."""
    RUNS.append(city)
    return {"sky": "real"}


def agent(*cities: str, **more: Any) -> LlmAgent:
    """It asks for each city in a reply of its own."""
    script = [*([call("weather", city=city)] for city in cities), "done"]
    return LlmAgent(name="a", model=ScriptedModel(script, loop=True), tools=[weather], **more)


def results(events: list[Event]) -> list[JsonObject]:
    return [one.response or {} for event in events for one in event.get_function_responses()]


async def simulated(*cities: str, seed: int = 0, model: ScriptedModel | None = None, **tool: Any) -> list[JsonObject]:
    RUNS.clear()
    more: JsonObject = {"simulation_model": model, "environment_data": "Rome: rain"} if model is not None else {}
    config = EnvironmentSimulationConfig(
        tool_simulation_configs=[ToolSimulationConfig(tool_name="weather", **tool)], seed=seed, **more
    )
    return results(await WatchedTalk(agent(*cities), EnvironmentSimulationPlugin(config)).say("go"))


async def test_recorded_results_answer_equal_calls_in_their_order() -> None:
    recorded = [
        RecordedResult(args={"city": city}, response={"sky": sky})
        for city, sky in (("Rome", "sun"), ("Oslo", "snow"), ("Rome", "rain"))
    ]
    got = await simulated("Oslo", "Rome", "Rome", "Rome", "Bonn", recorded_results=recorded)
    assert [one.get("sky") for one in got] == ["snow", "sun", "rain", "rain", None]
    assert "no result" in got[-1]["error"]
    assert RUNS == []


async def test_results_of_a_conversation_are_recorded() -> None:
    talk = Talk(agent("Rome"))
    await talk.say("go")
    [tool] = recorded_tools([invocations_of(await talk.log())])
    assert tool == ToolSimulationConfig(
        tool_name="weather", recorded_results=[RecordedResult(args={"city": "Rome"}, response={"sky": "real"})]
    )


async def test_a_script_answers_in_order_or_by_function() -> None:
    assert await simulated("Rome", "Oslo", script=[{"sky": 1}, {"sky": 2}]) == [{"sky": 1}, {"sky": 2}]

    async def script(args: JsonObject, ctx: Any) -> JsonObject:
        return {"city": args["city"], "session": ctx.session.id}

    assert await simulated("Rome", script=script) == [{"city": "Rome", "session": "s-1"}]


async def test_injected_errors_depend_on_seed_and_call_only() -> None:
    error = InjectedError(injected_http_error_code=503, error_message="down")
    cities = [f"c{number}" for number in range(60)]

    async def failed(seed: int) -> list[int]:
        flaky = InjectionConfig(injection_probability=0.3, injected_error=error)
        got = await simulated(*cities, seed=seed, injection_configs=[flaky], script=[{"sky": "sun"}] * 60)
        assert [one for one in got if one not in ({"sky": "sun"}, {"error_code": 503, "error_message": "down"})] == []
        return [index for index, one in enumerate(got) if "error_code" in one]

    first = await failed(1)
    assert 8 <= len(first) <= 28
    assert await failed(1) == first
    assert await failed(2) != first


async def test_an_injection_takes_only_calls_with_its_arguments_and_the_tool_runs_otherwise() -> None:
    slow = InjectionConfig(match_args={"city": "Rome"}, injected_latency_seconds=0.001, injected_response={"sky": "?"})
    assert await simulated("Rome", "Oslo", injection_configs=[slow]) == [{"sky": "?"}, {"sky": "real"}]
    assert RUNS == ["Oslo"]


async def test_a_model_makes_results_up_from_data_and_earlier_results() -> None:
    model = ScriptedModel(['Here: {"sky": "rain"}', '{"sky": "fog"}'])
    strategy = MockStrategy.MOCK_STRATEGY_TOOL_SPEC
    assert await simulated("Rome", "Oslo", model=model, mock_strategy_type=strategy) == [
        {"sky": "rain"},
        {"sky": "fog"},
    ]
    second = model.requests[1].contents[0].text()
    assert all(text in second for text in ("The weather of a city", "Rome: rain", '"sky":"rain"', '{"city":"Oslo"}'))
    assert model.requests[1].config.seed == 0
    with pytest.raises(PluginFailed, match="no JSON object"):
        await simulated("Rome", model=ScriptedModel(["no idea"]), mock_strategy_type=strategy)


async def test_a_callback_simulates_the_tools_of_one_agent() -> None:
    tool = ToolSimulationConfig(tool_name="weather", script=[{"sky": "sun"}])
    callback = EnvironmentSimulationFactory.create_callback(EnvironmentSimulationConfig(tool_simulation_configs=[tool]))
    assert results(await Talk(agent("Rome", before_tool_callback=callback)).say("go")) == [{"sky": "sun"}]
    assert AgentSimulatorFactory is EnvironmentSimulationFactory


def test_a_configuration_is_read_from_json_as_adk_writes_it() -> None:
    config = EnvironmentSimulationConfig.model_validate(
        {
            "tool_simulation_configs": [
                {
                    "tool_name": "t",
                    "injection_configs": [
                        {
                            "match_args": {"some_id": 1},
                            "injected_error": {"injected_http_error_code": 1, "error_message": "e"},
                        }
                    ],
                    "mock_strategy_type": 1,
                }
            ]
        }
    )
    assert config.tool_simulation_configs[0].injection_configs[0].match_args == {"some_id": 1}
    assert config.simulation_model == "gemini-2.5-flash"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"tool_simulation_configs": []}, "no tool"),
        ({"tool_simulation_configs": [{"tool_name": "t"}]}, "needs injection_configs"),
        ({"tool_simulation_configs": [{"tool_name": "t", "mock_strategy_type": 1}] * 2}, "twice: t"),
        ({"tool_simulation_configs": [{"tool_name": "t", "injection_configs": [{}]}]}, "either injected_error"),
        (
            {
                "tool_simulation_configs": [
                    {
                        "tool_name": "t",
                        "injection_configs": [{"injected_response": {"a": 1}, "injection_probability": 2}],
                    }
                ]
            },
            "from 0 to 1",
        ),
        (
            {
                "tool_simulation_configs": [
                    {
                        "tool_name": "t",
                        "injection_configs": [{"injected_response": {"a": 1}, "injected_latency_seconds": 121}],
                    }
                ]
            },
            "at most 120",
        ),
    ],
)
def test_wrong_configurations_are_refused(wrong: JsonObject, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        EnvironmentSimulationConfig.model_validate(wrong)
