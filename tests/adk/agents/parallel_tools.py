import asyncio

from google.adk.agents import LlmAgent
from google.adk.tools import ToolContext
from google.genai import types


async def slow(n: int, tool_context: ToolContext) -> int:
    await asyncio.sleep(0.05 / n)
    tool_context.state[f"n{n}"] = n
    return n


def call(n):
    return types.Part.from_function_call(name="slow", args={"n": n})


root_agent = LlmAgent(name="a", model="scripted", tools=[slow])
REPLIES = [[call(1), call(2), call(3)], "done"]
MESSAGES = ["go"]
