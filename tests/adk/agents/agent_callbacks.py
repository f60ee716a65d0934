from google.adk.agents import LlmAgent
from google.genai import types


def before(callback_context):
    callback_context.state["turns"] = callback_context.state.get("turns", 0) + 1
    if callback_context.state["turns"] == 2:
        return types.Content(role="model", parts=[types.Part(text="Enough.")])


def after(callback_context):
    callback_context.state["done"] = callback_context.agent_name
    return types.ModelContent("The end.")


root_agent = LlmAgent(name="a", model="scripted", before_agent_callback=before, after_agent_callback=after)
REPLIES = ["one"]
MESSAGES = ["1", "2"]
