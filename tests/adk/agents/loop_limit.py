from google.adk.agents import LlmAgent, LoopAgent

root_agent = LoopAgent(name="refine", sub_agents=[LlmAgent(name="writer", model="scripted")], max_iterations=2)
REPLIES = ["v1", "v2", "v3"]
MESSAGES = ["go"]
