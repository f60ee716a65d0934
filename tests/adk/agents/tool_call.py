from google.adk.agents import LlmAgent
from google.genai import types


def get_weather(city: str, unit: str = "C") -> dict:
    """Weather of a city.

    Args:
        city: Its name.
        unit: C or F.
    """
    return {"city": city, "degrees": 4, "unit": unit}


root_agent = LlmAgent(name="weather", model="scripted", tools=[get_weather])
REPLIES = [types.Part.from_function_call(name="get_weather", args={"city": "Oslo"}), "It is 4 degrees."]
MESSAGES = ["Weather in Oslo?"]
