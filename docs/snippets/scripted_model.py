import asyncio

from greenroom import InMemoryRunner, LlmAgent, types
from greenroom.testing import ScriptedModel


def get_weather(city: str) -> str:
    """Current weather of a city."""
    return f"18 degrees in {city}"


model = ScriptedModel([types.FunctionCall(name="get_weather", args={"city": "Oslo"}), "It is 18 degrees."])
agent = LlmAgent(name="weather", model=model, tools=[get_weather])


async def test_the_weather_is_looked_up() -> None:
    runner = InMemoryRunner(agent=agent, app_name="weather")
    session = await runner.session_service.create_session(app_name="weather", user_id="ada")
    message = types.UserContent("How is the weather in Oslo?")
    events = [e async for e in runner.run_async(user_id="ada", session_id=session.id, new_message=message)]
    assert events[1].get_function_responses()[0].response == {"result": "18 degrees in Oslo"}
    assert events[-1].content == types.ModelContent("It is 18 degrees.")
    assert len(model.requests) == 2


asyncio.run(test_the_weather_is_looked_up())
