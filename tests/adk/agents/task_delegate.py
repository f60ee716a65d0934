from google.adk.agents import LlmAgent
from google.genai import types

booker = LlmAgent(name="booker", model="scripted", mode="task", description="Books.")
root_agent = LlmAgent(name="desk", model="scripted", sub_agents=[booker])
REPLIES = [
    types.Part.from_function_call(name="booker", args={"request": "a table"}),
    "For how many?",
    types.Part.from_function_call(name="finish_task", args={"result": "table for 4"}),
    "It is booked.",
    "Bye.",
]
MESSAGES = ["Book a table", "four", "thanks"]
