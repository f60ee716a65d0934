from google.adk.agents import LlmAgent, SequentialAgent
from google.genai import types

helper = LlmAgent(name="helper", model="scripted")
first = LlmAgent(name="first", model="scripted", sub_agents=[helper])
root_agent = SequentialAgent(name="pipe", sub_agents=[first, LlmAgent(name="second", model="scripted")])
REPLIES = [types.Part.from_function_call(name="transfer_to_agent", args={"agent_name": "helper"}), "helped", "second"]
MESSAGES = ["go"]
