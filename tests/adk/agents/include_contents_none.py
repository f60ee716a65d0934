from google.adk.agents import LlmAgent, SequentialAgent

first = LlmAgent(name="first", model="scripted", output_key="first")
second = LlmAgent(name="second", model="scripted", include_contents="none", instruction="Improve {first}")
root_agent = SequentialAgent(name="pipe", sub_agents=[first, second])
REPLIES = ["one", "two"]
MESSAGES = ["go"]
