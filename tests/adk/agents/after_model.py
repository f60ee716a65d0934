from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.models import LlmResponse


async def shout(callback_context: CallbackContext, llm_response: LlmResponse):
    llm_response.content.parts[0].text = llm_response.content.parts[0].text.upper()
    return llm_response


root_agent = LlmAgent(name="a", model="scripted", after_model_callback=[shout])
REPLIES = ["quiet"]
MESSAGES = ["hi"]
