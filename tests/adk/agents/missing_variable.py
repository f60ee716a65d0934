from google.adk.agents import LlmAgent

root_agent = LlmAgent(name="a", model="scripted", instruction="Serve {nobody}.")
REPLIES = ["ok"]
MESSAGES = ["hi"]
