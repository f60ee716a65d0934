from google.adk.agents import LlmAgent
from google.genai import types


def order(dish: str) -> str:
    return dish


root_agent = LlmAgent(name="a", model="scripted", tools=[order])
REPLIES = [types.Part.from_function_call(name="sell", args={}), "Sorry."]
MESSAGES = ["soup"]
