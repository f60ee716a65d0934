from google.adk.agents import LlmAgent
from google.genai import types
from pydantic import BaseModel


class Out(BaseModel):
    n: int


def look(key: str) -> str:
    return "found " + key


a = LlmAgent(name="a", model="scripted", mode="single_turn", description="A.", tools=[look], output_key="a_said")
b = LlmAgent(name="b", model="scripted", mode="single_turn", description="B.", output_schema=Out)
root_agent = LlmAgent(name="desk", model="scripted", sub_agents=[a, b])
REPLIES = [
    types.Part.from_function_call(name="a", args={"request": "one"}),
    types.Part.from_function_call(name="look", args={"key": "k"}),
    "A done.",
    types.Part.from_function_call(name="b", args={"request": "two"}),
    '{"n": 3}',
    "All done.",
]
MESSAGES = ["go"]
