from google.adk.agents import LlmAgent
from google.adk.tools import get_user_choice
from google.genai import types

root_agent = LlmAgent(name="a", model="scripted", tools=[get_user_choice])
REPLIES = [types.Part.from_function_call(name="get_user_choice", args={"options": ["a", "b"]}), "You chose."]
MESSAGES = ["go"]
