from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.models import LlmRequest, LlmResponse
from google.genai import types


def guard(callback_context: CallbackContext, llm_request: LlmRequest):
    if "secret" in (llm_request.contents[-1].parts[0].text or ""):
        callback_context.state["blocked"] = True
        return LlmResponse(content=types.Content(role="model", parts=[types.Part(text="No.")]))
    return None


root_agent = LlmAgent(name="a", model="scripted", before_model_callback=guard)
REPLIES = ["Yes."]
MESSAGES = ["a secret", "else"]
