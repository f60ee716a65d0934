from google.adk.agents import LlmAgent, SequentialAgent

write = LlmAgent(name="write", model="scripted", output_key="draft")
review = LlmAgent(name="review", model="scripted", instruction="Review: {draft}", output_key="review")
root_agent = SequentialAgent(name="pipeline", sub_agents=[write, review])
REPLIES = ["A draft.", "Good."]
MESSAGES = ["Write"]
