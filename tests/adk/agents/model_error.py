from google.adk.agents import LlmAgent
from google.adk.models import LlmResponse
from google.genai import types


async def recover(callback_context, llm_request, error):
    return LlmResponse(content=types.ModelContent(f"Recovered from {type(error).__name__}."))


root_agent = LlmAgent(name="a", model="scripted", on_model_error_callback=recover)
REPLIES = [RuntimeError("down")]
MESSAGES = ["go"]
