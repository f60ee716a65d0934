from google.adk.agents import LlmAgent
from google.genai import types

billing = LlmAgent(name="billing", model="scripted", description="Bills.")
support = LlmAgent(name="support", model="scripted", description="Repairs.")
root_agent = LlmAgent(name="desk", model="scripted", sub_agents=[billing, support])
REPLIES = [
    types.Part.from_function_call(name="transfer_to_agent", args={"agent_name": "billing"}),
    "Your bill is 3.",
    "It is due in May.",
]
MESSAGES = ["My bill?", "When?"]
