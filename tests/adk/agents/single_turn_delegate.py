from google.adk.agents import LlmAgent
from google.genai import types

expert = LlmAgent(name="expert", model="scripted", mode="single_turn", description="Knows.")
root_agent = LlmAgent(name="desk", model="scripted", sub_agents=[expert])
REPLIES = [types.Part.from_function_call(name="expert", args={"request": "why?"}), "Because.", "So it is."]
MESSAGES = ["Why?"]
