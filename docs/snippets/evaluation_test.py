from my_package.weather.agent import root_agent

from greenroom import AgentEvaluator
from greenroom.testing import evaluate


async def test_the_agent_calls_the_right_tools() -> None:
    await evaluate(root_agent, "tests/weather/one.test.json", {"response_match_score": 0.8}, samples=3)


async def test_all_sets_of_a_folder() -> None:
    await AgentEvaluator.evaluate("my_package.weather", "tests/weather", num_runs=2)
