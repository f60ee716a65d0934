"""An agent as users of ADK write it; every question about the weather gets the same answer."""

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types


def get_weather(city: str) -> str:
    """The weather of a city."""
    return "snow"


class Scripted(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        part = llm_request.contents[-1].parts[0]
        if part.function_response is not None:
            said = types.Part(text="It snows a lot in the city today.")
        else:
            said = types.Part(function_call=types.FunctionCall(name="get_weather", args={"city": part.text.split()[0]}))
        yield LlmResponse(content=types.Content(role="model", parts=[said]))


root_agent = LlmAgent(name="desk", model=Scripted(model="scripted"), tools=[get_weather])
