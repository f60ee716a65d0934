"""Tools that ADK exports as objects, from the modules that define them."""

from google.adk.agents import LlmAgent
from google.adk.agents.llm_agent import InstructionProvider
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.tools import agent_tool, exit_loop, load_artifacts
from google.adk.tools.get_user_choice_tool import get_user_choice_tool
from google.adk.tools.load_memory_tool import load_memory_tool
from google.adk.tools.preload_memory_tool import preload_memory_tool
from google.adk.utils.instructions_utils import inject_session_state
from google.genai import types

STATE = {"city": "Rome"}


async def instruction(context: ReadonlyContext) -> str:
    return await inject_session_state("Speak of {city}, {topic?}.", context)


provider: InstructionProvider = instruction
helper = LlmAgent(name="helper", model="scripted", description="Helps.")

root_agent = LlmAgent(
    name="root",
    model="scripted",
    instruction=provider,
    tools=[
        load_memory_tool,
        preload_memory_tool,
        get_user_choice_tool,
        exit_loop,
        load_artifacts,
        agent_tool.AgentTool(agent=helper),
    ],
)

MESSAGES = ["hello", "again"]
REPLIES = [
    types.Part.from_function_call(name="helper", args={"request": "help"}),
    "from the helper",
    "done",
    "hello again",
]
