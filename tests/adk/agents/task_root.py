from google.adk.agents import LlmAgent
from google.genai import types

root_agent = LlmAgent(name="booker", model="scripted", mode="task", description="Books.")
REPLIES = [
    "For how many?",
    types.Part.from_function_call(name="finish_task", args={"result": "table for 4"}),
    "again",
]
MESSAGES = ["Book a table", "four", "thanks"]
