from greenroom import LlmAgent


def get_weather(city: str, unit: str = "celsius") -> dict:
    """Current weather of a city.

    Args:
        city: Name of the city.
        unit: "celsius" or "fahrenheit".
    """
    return {"city": city, "temp": 18, "unit": unit}


root_agent = LlmAgent(
    name="weather",
    model="local/smollm2-135m",  # or "gemini-…", "claude-…", "openai/…" with their key, or a model class of your own
    instruction="Answer questions about the weather.",
    tools=[get_weather],
)
