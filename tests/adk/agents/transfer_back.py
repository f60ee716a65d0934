from google.adk.agents import LlmAgent
from google.genai import types


def to(name):
    return types.Part.from_function_call(name="transfer_to_agent", args={"agent_name": name})


billing = LlmAgent(name="billing", model="scripted", description="Bills.")
repair = LlmAgent(name="repair", model="scripted", description="Repairs.", disallow_transfer_to_peers=True)
root_agent = LlmAgent(name="desk", model="scripted", sub_agents=[billing, repair])
REPLIES = [to("billing"), to("repair"), to("desk"), "What now?"]
MESSAGES = ["Hm"]
