from greenroom import AgentEvaluator


async def test_the_agent_calls_the_right_tools() -> None:
    await AgentEvaluator.evaluate("my_package.weather", "tests/weather", num_runs=2)
