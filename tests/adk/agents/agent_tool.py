from google.adk.agents import LlmAgent
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

expert = LlmAgent(name="expert", model="scripted", description="Knows.", output_key="found")
root_agent = LlmAgent(name="desk", model="scripted", tools=[AgentTool(agent=expert)])
REPLIES = [types.Part.from_function_call(name="expert", args={"request": "Why?"}), "Because.", "It is so."]
MESSAGES = ["Why?"]
