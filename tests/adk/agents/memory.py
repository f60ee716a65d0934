from google.adk.agents import LlmAgent
from google.adk.tools import load_memory


async def keep(callback_context):
    await callback_context.add_session_to_memory()


root_agent = LlmAgent(name="a", model="scripted", tools=[load_memory], after_agent_callback=keep)
REPLIES = ["Harbours freeze.", "Yes."]
MESSAGES = ["tell me of harbours", "thanks"]
