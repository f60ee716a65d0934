from google.adk.agents import LlmAgent, LoopAgent
from google.adk.tools import exit_loop
from google.genai import types

critic = LlmAgent(name="critic", model="scripted", tools=[exit_loop])
writer = LlmAgent(name="writer", model="scripted", output_key="text")
root_agent = LoopAgent(name="refine", sub_agents=[writer, critic], max_iterations=5)
REPLIES = ["v1", "Not yet.", "v2", types.Part.from_function_call(name="exit_loop", args={})]
MESSAGES = ["go"]
