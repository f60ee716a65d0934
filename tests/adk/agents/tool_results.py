"""Tools that return no map."""

from google.adk.agents import Agent
from google.genai import types


def number() -> int:
    return 7


def nothing() -> None:
    pass


async def names() -> list[str]:
    return ["a", "b"]


def call(name):
    return types.Part.from_function_call(name=name, args={})


root_agent = Agent(name="a", model="scripted", tools=[number, nothing, names])
REPLIES = [[call("number"), call("nothing"), call("names")], "done"]
MESSAGES = ["go"]
