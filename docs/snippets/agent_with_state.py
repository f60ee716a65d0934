from typing import Any

from greenroom import LlmAgent, ToolContext


def get_weather(city: str, unit: str = "celsius") -> dict[str, Any]:
    """Current weather of a city.

    Args:
        city: Name of the city.
        unit: "celsius" or "fahrenheit".
    """
    return {"city": city, "temp": 18, "unit": unit}


def remember_city(city: str, tool_context: ToolContext) -> str:
    """Remembers the user's home city."""
    tool_context.state["user:home"] = city
    return "noted"


root_agent = LlmAgent(
    name="weather",
    model="local/smollm2-135m",
    instruction="Answer questions about the weather. The user's home is {user:home?}.",
    tools=[get_weather, remember_city],
)
