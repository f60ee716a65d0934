"""One class behind all contexts."""

from google.adk.agents import Context, LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.tools import ToolContext
from google.genai import types

assert Context is CallbackContext is ToolContext


def tool(x: int, ctx: Context) -> dict:
    ctx.state["x"] = x
    return {"agent": ctx.agent_name, "user": ctx.user_id}


root_agent = LlmAgent(name="a", model="scripted", tools=[tool])
REPLIES = [types.Part.from_function_call(name="tool", args={"x": 3}), "ok"]
MESSAGES = ["go"]
