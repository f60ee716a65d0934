from google.adk.agents import LlmAgent
from google.adk.tools import FunctionTool
from google.adk.tools.base_toolset import BaseToolset
from google.genai import types


def one() -> int:
    return 1


def two() -> int:
    return 2


class Numbers(BaseToolset):
    async def get_tools(self, readonly_context=None):
        admin = readonly_context is not None and readonly_context.state.get("admin")
        return [FunctionTool(one), *([FunctionTool(two)] if admin else [])]

    async def close(self):
        pass


root_agent = LlmAgent(name="a", model="scripted", tools=[Numbers(tool_name_prefix="n")])
STATE = {"admin": True}
REPLIES = [types.Part.from_function_call(name="n_two", args={}), "2"]
MESSAGES = ["go"]
