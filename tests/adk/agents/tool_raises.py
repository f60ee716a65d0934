from google.adk.agents import LlmAgent
from google.genai import types


def fail() -> str:
    raise KeyError("broken")


root_agent = LlmAgent(name="a", model="scripted", tools=[fail])
REPLIES = [types.Part.from_function_call(name="fail", args={}), "Sorry."]
MESSAGES = ["go"]
