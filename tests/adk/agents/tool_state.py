from google.adk.agents import Agent
from google.adk.tools import ToolContext
from google.genai import types


def remember(item: str, tool_context: ToolContext) -> str:
    tool_context.state["items"] = tool_context.state.get("items", []) + [item]
    tool_context.state["user:last"] = item
    tool_context.state["temp:scratch"] = item
    return "ok"


root_agent = Agent(name="a", model="scripted", tools=[remember], instruction="Items: {items?}")
STATE = {"items": ["pen"]}
REPLIES = [types.Part.from_function_call(name="remember", args={"item": "ink"}), "Noted.", "pen, ink"]
MESSAGES = ["remember ink", "what do you know?"]
