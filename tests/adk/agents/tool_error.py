from google.adk.agents import LlmAgent
from google.genai import types


def fail() -> str:
    raise ValueError("broken")


def on_error(tool, args, tool_context, error):
    return {"status": "failed", "type": type(error).__name__}


root_agent = LlmAgent(name="a", model="scripted", tools=[fail], on_tool_error_callback=on_error)
REPLIES = [types.Part.from_function_call(name="fail", args={}), "Sorry."]
MESSAGES = ["go"]
