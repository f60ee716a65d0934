from google.adk.agents import LlmAgent
from google.genai import types


def add(a: int, b: int) -> int:
    return a + b


def before(tool, args, tool_context):
    if args["a"] > 10:
        return {"error": "too large"}
    args["b"] += 1


async def after(tool, args, tool_context, tool_response):
    return {"seen": tool_response}


def call(a):
    return types.Part.from_function_call(name="add", args={"a": a, "b": 1})


root_agent = LlmAgent(name="a", model="scripted", tools=[add], before_tool_callback=before, after_tool_callback=after)
REPLIES = [[call(1), call(11)], "done"]
MESSAGES = ["go"]
