from google.adk.agents import LlmAgent
from google.genai import types

root_agent = LlmAgent(name="a", model="scripted")
REPLIES = [types.Content(role="model", parts=[]), "again"]
MESSAGES = ["hi", "hi"]
